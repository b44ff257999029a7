"""Who may call which method, and what a caller is told of an error."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
import structlog

from admin import DETAILS_KEY
from admin.access import Access, AccessToken, Caller, Guard
from admin.services import rpc
from admin.services.changefeed_service import ChangefeedService
from admin.services.node_service import ClusterService, NodeService
from admin.services.table_service import DdlService, TableService
from admin.services.verify_service import VerifyService
from admin.stubs.sluice.admin.v1 import admin_pb2 as pb
from changefeed import errors
from changefeed.errors import ConfigurationError, NotFoundError, NotPermitted, SinkRefused, SluiceError
from coordination.etcd.protocol import HistoryCompacted
from credentials.redaction import keep_secret, reveal


def _tree(kind: type[SluiceError]) -> Iterator[type[SluiceError]]:
    yield kind
    for narrower in kind.__subclasses__():
        yield from _tree(narrower)


_EXPECTED = {
    "not_found": "NOT_FOUND",
    "conflict": "ABORTED",
    "configuration_invalid": "INVALID_ARGUMENT",
    "not_authenticated": "UNAUTHENTICATED",
    "not_permitted": "PERMISSION_DENIED",
    "fenced": "UNAVAILABLE",
    "source_refused": "FAILED_PRECONDITION",
    "sink_refused": "FAILED_PRECONDITION",
    "error": "INTERNAL",
    "invariant_violated": "INTERNAL",
}


@pytest.mark.parametrize("kind", [kind for kind in _tree(SluiceError) if kind.__module__ == errors.__name__])
def test_each_error_has_a_status(kind: type[SluiceError]) -> None:
    error = kind(["a"]) if issubclass(kind, ConfigurationError) else kind("a")
    retryable = "UNAVAILABLE" if isinstance(error, errors.RetryableError) else "FAILED_PRECONDITION"
    assert rpc.status_of(error).name == _EXPECTED.get(kind.code, retryable)


def test_an_error_of_an_adapter_has_that_of_its_kind() -> None:
    assert rpc.status_of(HistoryCompacted("gone")) is grpc.StatusCode.UNAVAILABLE


class Aborted(Exception):
    """What `abort` raises, as gRPC's does."""


class Call:
    """A gRPC context, as far as `rpc` uses it."""

    def __init__(self, token: str = "", *, peer: str = "ipv4:10.0.0.7:51234", common_name: bytes = b"") -> None:
        self._metadata = [("authorization", f"Bearer {token}")] if token else []
        self._peer = peer
        self._common_name = common_name
        self.status: grpc.StatusCode | None = None
        self.said = ""
        self.trailing: dict[str, str | bytes] = {}

    def invocation_metadata(self) -> list[tuple[str, str]]:
        return self._metadata

    def peer(self) -> str:
        return self._peer

    def auth_context(self) -> dict[str, list[bytes]]:
        return {"x509_common_name": [self._common_name]} if self._common_name else {}

    def add_callback(self, callback: object) -> bool:
        return True

    def set_trailing_metadata(self, metadata: tuple[tuple[str, str | bytes], ...]) -> None:
        self.trailing = dict(metadata)

    def is_active(self) -> bool:
        return True

    def code(self) -> grpc.StatusCode | None:
        return self.status

    def abort(self, status: grpc.StatusCode, said: str) -> None:
        self.status, self.said = status, said
        raise Aborted

    def problems(self) -> list[str]:
        details = self.trailing[DETAILS_KEY]
        assert isinstance(details, bytes)
        return list(pb.ErrorDetails.FromString(details).problems)


TOKENS = (AccessToken(Access.VIEWER, "v" * 16, "dashboard"), AccessToken(Access.OPERATOR, "o" * 16, "maria"))
GUARD = Guard(lambda: TOKENS)


class Service:
    guard = GUARD

    @rpc.admits(Access.VIEWER)
    def get(self, request: object, context: object) -> str:
        return "got"

    @rpc.admits(Access.OPERATOR)
    def change(self, request: object, context: object) -> str:
        return "changed"

    @rpc.admits(Access.VIEWER)
    def who(self, request: object, call: Any) -> Any:
        return call.caller

    @rpc.admits(Access.VIEWER)
    def watch(self, request: object, context: object) -> Iterator[str]:
        yield "seen"

    @rpc.admits(Access.OPERATOR)
    def finalize(self, request: object, context: object) -> Iterator[str]:
        yield "finalized"

    @rpc.admits(Access.VIEWER)
    def fail(self, request: Exception, context: object) -> str:
        raise request


@pytest.mark.parametrize(
    ("method", "needs_operator"), [("get", False), ("change", True), ("watch", False), ("finalize", True)]
)
@pytest.mark.parametrize(
    ("token", "refused"),
    [
        ("", grpc.StatusCode.UNAUTHENTICATED),
        ("x" * 16, grpc.StatusCode.UNAUTHENTICATED),
        ("v" * 16, grpc.StatusCode.PERMISSION_DENIED),
        ("o" * 16, None),
    ],
)
def test_a_call_is_made_by_those_who_may(
    method: str, needs_operator: bool, token: str, refused: grpc.StatusCode | None
) -> None:
    """A stream is refused with its first message."""
    call = Call(token)
    expected = None if refused is grpc.StatusCode.PERMISSION_DENIED and not needs_operator else refused
    answered: list[str] = []
    try:
        answer = getattr(Service(), method)(None, call)
        answered += [answer] if isinstance(answer, str) else answer
    except Aborted:
        pass
    assert (call.status, bool(answered)) == (expected, expected is None)


@pytest.mark.parametrize(
    ("peer", "address"), [("ipv4:10.0.0.7:51234", "10.0.0.7"), ("ipv6:%5B::1%5D:51234", "::1"), ("unix:", "unix:")]
)
def test_a_method_is_told_who_calls(peer: str, address: str) -> None:
    assert Service().who(None, Call("v" * 16, peer=peer)) == Caller(
        name="dashboard", access=Access.VIEWER, address=address
    )


def test_a_certificate_names_who_has_no_token() -> None:
    service = Service()
    service.guard = Guard()
    assert service.who(None, Call(common_name=b"laptop of maria")).name == "laptop of maria"
    assert service.who(None, Call()).name == "anonymous"


def test_another_door_gives_its_caller_and_gets_the_errors_themselves() -> None:
    viewer = rpc.AdmittedCall(Caller(name="dashboard", access=Access.VIEWER, address="10.0.0.7"))
    assert Service().who(None, viewer) is viewer.caller
    assert list(Service().watch(None, viewer)) == ["seen"]
    with pytest.raises(NotPermitted, match="the token of dashboard has the role viewer"):
        Service().change(None, viewer)
    with pytest.raises(NotPermitted):
        list(Service().finalize(None, viewer))


def test_a_refused_call_is_logged_without_all_that_was_sent() -> None:
    """A caller may send a megabyte, and an error may quote it."""
    with structlog.testing.capture_logs() as logged, pytest.raises(Aborted):
        Service().fail(NotFoundError("x" * 1_000_000), Call("v" * 16))
    [line] = [line for line in logged if line["event"] == "call_refused"]
    assert len(line["error"]) < 1_100
    assert "more characters" in line["error"]


READS = {
    *("GetChangefeed", "ListChangefeeds", "GetReadiness", "WatchChangefeed", "ListNodes", "GetCluster"),
    *("ListTables", "ListRejectedRows", "ListDdl", "ListHistory", "ListSyncPoints"),
}


@pytest.mark.parametrize(
    "service", [ChangefeedService, NodeService, ClusterService, TableService, DdlService, VerifyService]
)
def test_a_viewer_may_call_only_what_reads(service: type) -> None:
    """The methods themselves have nothing here to answer with: a call that is admitted ends with an internal error."""
    methods = [name for name in vars(service) if name[0].isupper()]
    assert methods
    for name in methods:
        call = Call("v" * 16)
        with pytest.raises(Aborted):
            list(getattr(service, name)(SimpleNamespace(guard=GUARD), None, call))
        admitted = call.status is grpc.StatusCode.INTERNAL
        assert (name, admitted) == (name, name in READS)


def test_no_secret_is_in_the_answer_to_a_caller() -> None:
    """Neither in its text nor in its details, of one problem or of many."""
    keep_secret("hunter2hunter2")
    try:
        for error in (SinkRefused("user:hunter2hunter2@db"), ConfigurationError(["a", "b: found hunter2hunter2"])):
            call = Call("v" * 16)
            with pytest.raises(Aborted):
                Service().fail(error, call)
            assert "hunter2" not in call.said
            assert "***" in call.said
            assert call.problems() == call.said.split("\n")
    finally:
        reveal("hunter2hunter2")


def test_an_unexpected_exception_is_told_to_the_log_alone() -> None:
    call = Call("v" * 16)
    with pytest.raises(Aborted):
        Service().fail(ValueError("row 7 of shop.orders"), call)
    assert call.status is grpc.StatusCode.INTERNAL
    assert "shop.orders" not in call.said


def test_a_name_in_an_error_cannot_draw_on_the_callers_terminal() -> None:
    call = Call("v" * 16)
    with pytest.raises(Aborted):
        Service().fail(NotFoundError("there is no table 'shop.\x1b[2J\nall is well'"), call)
    assert call.said == r"there is no table 'shop.\u001b[2J\nall is well'"
