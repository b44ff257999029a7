"""`admits`: checks the caller's access to a method of the admin API, and turns errors into gRPC statuses.

A method of a service is given an `AdmittedCall`. Whoever calls it with one already, as another door of the node does, gets the errors themselves.

not_found                                       NOT_FOUND
conflict                                        ABORTED
configuration_invalid                           INVALID_ARGUMENT
not_authenticated, not_permitted                UNAUTHENTICATED, PERMISSION_DENIED
retryable errors, and the end of a session      UNAVAILABLE
other permanent errors                          FAILED_PRECONDITION
invariants, and other exceptions                INTERNAL
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from inspect import isgeneratorfunction
from typing import Any, TypeVar
from urllib.parse import unquote

import grpc
import structlog

from admin import CODE_KEY, DETAILS_KEY
from admin.access import Access, Caller, Credentials, Guard
from admin.stubs.sluice.admin.v1 import admin_pb2 as pb
from changefeed.errors import (
    ConfigurationError,
    ConflictError,
    FencedError,
    InvariantError,
    NotAuthenticated,
    NotFoundError,
    NotPermitted,
    PermanentError,
    RetryableError,
    SinkRefused,
    SluiceError,
    SourceRefused,
)
from changefeed.printable import printable, shortened
from credentials.redaction import redacted

_BEARER = "bearer "
_MOST_NAME = 64
_MOST_LOGGED = 1_000
"""Characters. An error may quote what the caller sent, which may be a megabyte."""
_MOST_BYTES = 2_500
"""The limit for the text of an error: gRPC sends it twice, once percent-encoded, in headers of at most 8 KiB."""

_STATUSES: tuple[tuple[type[SluiceError], grpc.StatusCode], ...] = (
    (NotFoundError, grpc.StatusCode.NOT_FOUND),
    (ConflictError, grpc.StatusCode.ABORTED),
    (ConfigurationError, grpc.StatusCode.INVALID_ARGUMENT),
    (NotAuthenticated, grpc.StatusCode.UNAUTHENTICATED),
    (NotPermitted, grpc.StatusCode.PERMISSION_DENIED),
    (SourceRefused, grpc.StatusCode.FAILED_PRECONDITION),
    (SinkRefused, grpc.StatusCode.FAILED_PRECONDITION),
    (RetryableError, grpc.StatusCode.UNAVAILABLE),
    (FencedError, grpc.StatusCode.UNAVAILABLE),
    (PermanentError, grpc.StatusCode.FAILED_PRECONDITION),
    (InvariantError, grpc.StatusCode.INTERNAL),
)

_log = structlog.get_logger()

Method = TypeVar("Method", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class AdmittedCall:
    """A call of a known caller."""

    caller: Caller
    when_over: Callable[[Callable[[], None]], bool] = lambda _: True
    """Calls back when the call is over. False: it is over already."""


def admits(access: Access) -> Callable[[Method], Method]:
    """For a method with one response, or with a stream of them, which is a generator."""

    def decorate(method: Method) -> Method:
        @wraps(method)
        def one(self: Any, request: Any, context: Any) -> Any:
            with _entered(self.guard, context, access, method.__name__) as call:
                return method(self, request, call)

        @wraps(method)
        def many(self: Any, request: Any, context: Any) -> Iterator[Any]:
            with _entered(self.guard, context, access, method.__name__) as call:
                yield from method(self, request, call)

        return many if isgeneratorfunction(method) else one  # type: ignore[return-value]  # has the signature that it wraps

    return decorate


@contextmanager
def _entered(guard: Guard, context: Any, access: Access, method: str) -> Iterator[AdmittedCall]:
    """Who comes with a call that is admitted already gets the errors themselves."""
    if isinstance(context, AdmittedCall):
        context.caller.demand(access)
        yield context
        return
    with _answering(method, context):
        caller = guard.caller(_shown(context))
        caller.demand(access)
        _log.debug("call_admitted", method=method, by=caller.name, role=str(caller.access), address=caller.address)
        yield AdmittedCall(caller, context.add_callback)


def _shown(context: Any) -> Credentials:
    given = str(dict(context.invocation_metadata()).get("authorization", ""))
    token = given[len(_BEARER) :].strip() if given.lower().startswith(_BEARER) else None
    names = context.auth_context().get("x509_common_name", [])
    certificate = names[0].decode(errors="replace")[:_MOST_NAME] if names else ""
    return Credentials(token=token, certificate=certificate, address=_host(context.peer()))


def _host(peer: str) -> str:
    """Of `ipv4:10.0.0.7:51234` or `ipv6:%5B::1%5D:51234`."""
    return unquote(peer).partition(":")[2].rpartition(":")[0].strip("[]") or peer


def status_of(error: SluiceError) -> grpc.StatusCode:
    return next((status for kind, status in _STATUSES if isinstance(error, kind)), grpc.StatusCode.INTERNAL)


@contextmanager
def _answering(method: str, context: Any) -> Iterator[None]:
    try:
        yield
    except SluiceError as error:
        status = status_of(error)
        log = _log.error if status is grpc.StatusCode.INTERNAL else _log.info
        log("call_refused", method=method, code=error.code, error=shortened(str(error), _MOST_LOGGED))
        said = error.problems if isinstance(error, ConfigurationError) else (str(error),)
        problems = _fitting(tuple(printable(redacted(each)) for each in said))
        details = pb.ErrorDetails(code=error.code, problems=problems)
        context.set_trailing_metadata(((CODE_KEY, error.code), (DETAILS_KEY, details.SerializeToString())))
        context.abort(status, "\n".join(problems))
    except Exception:
        if not context.is_active() or context.code() is not None:
            raise
        _log.exception("call_failed", method=method)
        context.set_trailing_metadata(((CODE_KEY, InvariantError.code),))
        context.abort(grpc.StatusCode.INTERNAL, "internal error of the server; its log has the details")


def _fitting(problems: tuple[str, ...]) -> list[str]:
    """As many problems as fit into a header; the last one is cut."""
    taken: list[str] = []
    left = _MOST_BYTES
    for number, problem in enumerate(problems):
        size = len(problem.encode())
        if size > left:
            cut = problem.encode()[:left].decode(errors="ignore")
            return [*taken, f"{cut}... and {len(problems) - number - 1} more" if number else f"{cut}..."]
        taken.append(problem)
        left -= size
    return taken
