"""Who may call which method, and what a caller is told of an error."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import grpc
import pytest

from admin.access import Access, AccessToken, Guard
from admin.services import rpc
from admin.services.changefeed_service import ChangefeedService
from admin.services.node_service import ClusterService, NodeService
from admin.services.table_service import DdlService, TableService
from admin.services.verify_service import VerifyService
from admin.stubs.sluice.admin.v1 import admin_pb2 as pb
from changefeed import errors
from changefeed.errors import ConfigurationError, SinkRefused, SluiceError
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

    def __init__(self, token: str = "") -> None:
        self._metadata = [("authorization", f"Bearer {token}")] if token else []
        self.status: grpc.StatusCode | None = None
        self.said = ""
        self.trailing: dict[str, str | bytes] = {}

    def invocation_metadata(self) -> list[tuple[str, str]]:
        return self._metadata

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
        details = self.trailing[rpc.DETAILS_KEY]
        assert isinstance(details, bytes)
        return list(pb.ErrorDetails.FromString(details).problems)


TOKENS = (AccessToken(Access.VIEWER, "v" * 16), AccessToken(Access.OPERATOR, "o" * 16))
GUARD = Guard(lambda: TOKENS)


class Service:
    guard = GUARD

    @rpc.unary(Access.VIEWER)
    def get(self, request: object, context: object) -> str:
        return "got"

    @rpc.unary(Access.OPERATOR)
    def change(self, request: object, context: object) -> str:
        return "changed"

    @rpc.streaming(Access.VIEWER)
    def watch(self, request: object, context: object) -> Iterator[str]:
        yield "seen"

    @rpc.streaming(Access.OPERATOR)
    def finalize(self, request: object, context: object) -> Iterator[str]:
        yield "finalized"

    @rpc.unary(Access.VIEWER)
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


READS = {
    *("GetChangefeed", "ListChangefeeds", "GetReadiness", "WatchChangefeed", "ListNodes", "GetCluster"),
    *("ListTables", "ListRejectedRows", "ListDdl"),
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
