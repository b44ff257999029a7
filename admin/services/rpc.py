"""`unary`, `streaming`: check the caller's access to a method of the admin API, and turn errors into gRPC statuses.

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
from functools import wraps
from typing import Any, Protocol, TypeVar

import grpc
import structlog

from admin.access import Access, Guard
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
from credentials.redaction import redacted

CODE_KEY = "sluice-error-code"
DETAILS_KEY = "sluice-error-details-bin"

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


class Guarded(Protocol):
    @property
    def guard(self) -> Guard: ...


def unary(access: Access) -> Callable[[Method], Method]:
    """For a method with one response."""

    def decorate(method: Method) -> Method:
        @wraps(method)
        def answer(self: Guarded, request: Any, context: Any) -> Any:
            with _answering(method.__name__, context):
                self.guard.demand(access, context.invocation_metadata())
                return method(self, request, context)

        return answer  # type: ignore[return-value]  # has the signature that it wraps

    return decorate


def streaming(access: Access) -> Callable[[Method], Method]:
    """For a method with a stream of responses."""

    def decorate(method: Method) -> Method:
        @wraps(method)
        def answer(self: Guarded, request: Any, context: Any) -> Iterator[Any]:
            with _answering(method.__name__, context):
                self.guard.demand(access, context.invocation_metadata())
                yield from method(self, request, context)

        return answer  # type: ignore[return-value]  # has the signature that it wraps

    return decorate


def status_of(error: SluiceError) -> grpc.StatusCode:
    return next((status for kind, status in _STATUSES if isinstance(error, kind)), grpc.StatusCode.INTERNAL)


@contextmanager
def _answering(method: str, context: Any) -> Iterator[None]:
    try:
        yield
    except SluiceError as error:
        status = status_of(error)
        log = _log.error if status is grpc.StatusCode.INTERNAL else _log.info
        log("call_refused", method=method, code=error.code, error=str(error))
        said = error.problems if isinstance(error, ConfigurationError) else (str(error),)
        problems = _fitting(tuple(map(redacted, said)))
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
