"""`translate`: PyMongo's exceptions as errors of a sink; `refusal_in`: what the target answered about one row.

    the target cannot be reached, has no primary, is busy, full or closed to writes   SinkUnavailable
    credentials or privileges are missing                                             SinkRefused
    the connection string is wrong                                                    ConfigurationError
    the client was used after it was closed                                           InvariantError
    everything else that the target (or BSON) refuses                                 the caller's class: DdlRefused, RowRejected

A full disk counts as unavailable: the target accepts writes again as soon as there is space, and waiting loses nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from bson.errors import BSONError
from pymongo import errors as pymongo_errors
from pymongo.errors import (
    AutoReconnect,
    ConnectionFailure,
    InvalidOperation,
    NotPrimaryError,
    OperationFailure,
    ProtocolError,
    PyMongoError,
)

from changefeed.driver_text import (
    ATLAS,
    WRONG_CREDENTIALS,
    gave_up_before_sending,
    in_one_line,
    unreachable,
    wrong_credentials,
)
from changefeed.errors import (
    ConfigurationError,
    DdlRefused,
    InvariantError,
    RowRejected,
    SinkRefused,
    SinkUnavailable,
    SluiceError,
)
from credentials.redaction import redacted
from sink.mongodb.refusal import ABOUT_A_ROW, Refusal, RefusedRow, retryable_code, told, unauthorized_code
from sink.row import RowChange

_RETRYABLE_LABELS = ("RetryableWriteError", "TransientTransactionError", "SystemOverloadedError", "RetryableError")


def code_of(error: Exception) -> int | None:
    return error.code if isinstance(error, OperationFailure) else None


def answer_of(error: Exception) -> str:
    """The target's error text."""
    code = code_of(error)
    details = dict(_details(error) or {})
    return redacted(in_one_line(str(error), details | {"code": code} if code is not None else details))


def _details(error: Exception) -> Mapping[str, Any] | None:
    """The target's reply."""
    details = error.details if isinstance(error, OperationFailure | NotPrimaryError) else None
    return details if isinstance(details, Mapping) else None


def translate(error: Exception, *, doing: str, refused: type[SluiceError]) -> SluiceError:
    """`doing` names the operation and its subject (`createIndexes on shop.orders`); `refused` is the class for a plain refusal."""
    lost = isinstance(error, ConnectionFailure | ProtocolError | AutoReconnect)
    if lost or gave_up_before_sending(str(error)):
        return SinkUnavailable(f"{doing}: {redacted(unreachable('target', str(error), _details(error)))}")
    said = f"{doing}: the target answers: {answer_of(error)}"
    match error:
        case OperationFailure() if _may_pass(error):
            return SinkUnavailable(said)
        case OperationFailure() if unauthorized_code(error.code, str(error)):
            return SinkRefused(f"{said}; {_remedy(error)}")
        case pymongo_errors.ConfigurationError():
            return ConfigurationError([f"sink: {answer_of(error)}; check the sink's connection string"])
        case InvalidOperation():
            return InvariantError(f"{doing}: {answer_of(error)}")
        case _:
            return refused(said)


def _remedy(error: OperationFailure) -> str:
    if error.code in WRONG_CREDENTIALS or error.code == ATLAS:
        return wrong_credentials("sink")
    return "grant the sink's user the roles that docs/how-to/privileges.md lists"


def _may_pass(error: OperationFailure) -> bool:
    return retryable_code(error.code, str(error)) or any(map(error.has_error_label, _RETRYABLE_LABELS))


@contextmanager
def translated(doing: str, refused: type[SluiceError] = DdlRefused) -> Iterator[None]:
    try:
        yield
    except (PyMongoError, BSONError) as error:
        raise translate(error, doing=doing, refused=refused) from error


def duplicate_key(error: Exception) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """The key pattern and the value that two documents share, from the error of a refused unique index."""
    details = error.details if isinstance(error, OperationFailure) else None
    if details and "keyPattern" in details:
        return dict(details["keyPattern"]), dict(details.get("keyValue", {}))
    return None


def about_a_row(error: RowRejected) -> bool:
    """Whether the target refused a command because of one of its statements, and not because of the target's own state."""
    cause = error.__cause__
    return isinstance(cause, BSONError) or (isinstance(cause, OperationFailure) and cause.code in ABOUT_A_ROW)


def refusal_in(error: RowRejected) -> Refusal | None:
    cause = error.__cause__
    if not isinstance(cause, OperationFailure):
        return None
    return Refusal(index=0, code=cause.code or 0, message=answer_of(cause))


def refused_with(change: RowChange, error: RowRejected) -> RefusedRow:
    refusal = refusal_in(error)
    if refusal is None:
        return RefusedRow(str(error), None)
    return RefusedRow(told(change, refusal), refusal if refusal.duplicate else None)
