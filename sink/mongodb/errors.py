"""`translate`: PyMongo's exceptions as errors of a sink.

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
    SinkRefused,
    SinkUnavailable,
    SluiceError,
)
from credentials.redaction import redacted

_UNREACHABLE = frozenset({6, 7, 89, 9001, 202, 279, 303, 317, 384})
_NO_PRIMARY = frozenset({91, 133, 149, 189, 216, 10058, 10107, 11600, 11602, 13435, 13436})
_BUSY = frozenset(
    {
        24,  # LockTimeout
        43,  # CursorNotFound
        46,  # LockBusy
        50,  # MaxTimeMSExpired
        107,  # LockFailed
        112,  # WriteConflict
        117,  # ConflictingOperationInProgress
        134,  # ReadConcernMajorityNotAvailableYet
        215,  # DatabaseDropPending
        237,  # CursorKilled
        262,  # ExceededTimeLimit
        264,  # TooManyFilesOpen
        267,  # PreparedTransactionInProgress
        276,  # IndexBuildAborted
        278,  # UnsatisfiableCommitQuorum
        285,  # IndexBuildAlreadyInProgress
        314,  # ObjectIsBusy
        355,  # InterruptedDueToStorageChange
        365,  # TemporarilyUnavailable
        402,  # ResourceExhausted
        407,  # PooledConnectionAcquisitionExceededTimeLimit
        412,  # UpdatesStillPending
        433,  # AdmissionQueueOverflow
        449,  # RateLimitExceeded
        450,  # PooledConnectionAcquisitionRejected
        11601,  # Interrupted
        12586,  # BackgroundOperationInProgressForDatabase
        12587,  # BackgroundOperationInProgressForNamespace
        46841,  # ClientMarkedKilled
    }
)
_MOVING = frozenset({150, 249, 272, 319, 338, 406, 414, 13388})
"""Chunks, databases or shards are being moved; the router answers again when it knows their new place."""
_UNACKNOWLEDGED = frozenset({64, 100})
_FULL = frozenset({371, 14031})
"""UserWritesBlocked, OutOfDiskSpace."""
_RETRYABLE = _UNREACHABLE | _NO_PRIMARY | _BUSY | _MOVING | _UNACKNOWLEDGED | _FULL
_RETRYABLE_LABELS = ("RetryableWriteError", "TransientTransactionError", "SystemOverloadedError", "RetryableError")

_UNAUTHORIZED = frozenset({13, 31, 33, 141, 214, 391}) | WRONG_CREDENTIALS


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


def retryable_code(code: int | None, message: str = "") -> bool:
    """Whether waiting may help. It takes a code because the errors inside a bulk write's reply are not exceptions."""
    return code in _RETRYABLE or (code == ATLAS and "quota" in message)


def unauthorized_code(code: int | None, message: str = "") -> bool:
    return code in _UNAUTHORIZED or (code == ATLAS and "auth" in message)


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
    return "grant the sink's user the roles that docs/operations.md lists"


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
