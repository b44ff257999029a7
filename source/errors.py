"""`translate`: errors of PyMongo and of a source server as errors of our error tree. No other module translates them.

An error counts as retryable unless it is known to need a user's action. A retry is safe: a stream is opened again from a time, which
does not depend on the failed cursor. An error that persists is shown by the changefeed's back-off.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import bson
from bson.errors import BSONError
from bson.raw_bson import RawBSONDocument
from pymongo import errors as driver

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
    HistoryLost,
    InvariantError,
    PermanentError,
    SluiceError,
    SourceRefused,
    SourceUnavailable,
    SourceUnsupported,
)
from credentials.redaction import redacted

CHANGE_STREAM_HISTORY_LOST = 286
CAPPED_POSITION_LOST = 136
CURSOR_NOT_FOUND = 43

EVENT_TOO_LARGE = frozenset(
    {
        10334,  # BSONObjectTooLarge
        16493,  # a resume token of more than 16 MB
        7182500,  # $changeStreamSplitLargeEvent cannot split it
    }
)

_REFUSED = frozenset(
    {
        13,  # Unauthorized
        ATLAS,
        *WRONG_CREDENTIALS,
    }
)

_UNSUPPORTED = frozenset(
    {
        2,  # BadValue: the request makes no sense to this server, also when it is repeated
        9,  # FailedToParse: an option that this server does not know
        20,  # IllegalOperation: a standalone server
        59,  # CommandNotFound
        72,  # InvalidOptions
        115,  # CommandNotSupported
        123,  # NotAReplicaSet
        166,  # CommandNotSupportedOnView
        303,  # QueryFeatureNotAllowed
        40324,  # unrecognized pipeline stage
        40415,  # unknown field
        40573,  # $changeStream only on replica sets
    }
)

_SOON = timedelta(milliseconds=100)
_RESUMABLE_AT_ONCE = frozenset(
    {
        CURSOR_NOT_FOUND,
        222,  # CloseChangeStream
        234,  # RetryChangeStream
        237,  # CursorKilled
        260,  # InvalidResumeToken: we start from a time
        280,  # ChangeStreamFatalError: a resume token that is not found
    }
)


def is_refusal(error: driver.OperationFailure) -> bool:
    """Whether the server refuses the command, also when it is repeated."""
    return error.code in _REFUSED | _UNSUPPORTED


@contextmanager
def translated(doing: str) -> Iterator[None]:
    """`doing` names the operation in the message: `reading the DDL stream of the source`."""
    try:
        yield
    except (driver.PyMongoError, BSONError) as error:
        raise translate(error, doing) from error


def translate(error: driver.PyMongoError | BSONError, doing: str) -> SluiceError:
    lost = isinstance(error, driver.ConnectionFailure | driver.ProtocolError)
    if lost or gave_up_before_sending(str(error)):
        return SourceUnavailable(f"{doing}: {redacted(unreachable('source', str(error), _details(error)))}")
    message = f"{doing}: {error_text(error)}"
    match error:
        case driver.InvalidURI() | driver.ConfigurationError() | driver.InvalidName():
            return ConfigurationError([message])
        case driver.OperationFailure():
            return _of_server(error, f"{doing}: the source answers: {error_text(error)}")
        case driver.InvalidOperation() | driver.CollectionInvalid():
            return InvariantError(message)
        case driver.EncryptionError() | BSONError():
            return PermanentError(message)
        case _:
            return SourceUnavailable(message)


def error_text(error: driver.PyMongoError | BSONError) -> str:
    """The error in one line, for messages and logs."""
    return redacted(in_one_line(str(error), _details(error)))


def _details(error: driver.PyMongoError | BSONError) -> Mapping[str, Any] | None:
    """The server's reply."""
    details = error.details if isinstance(error, driver.OperationFailure | driver.NotPrimaryError) else None
    return details if isinstance(details, Mapping) else None


def _of_server(error: driver.OperationFailure, message: str) -> SluiceError:
    code = error.code
    if code == CHANGE_STREAM_HISTORY_LOST:
        return HistoryLost(message)
    if code in WRONG_CREDENTIALS or (code == ATLAS and "auth" in message):
        return SourceRefused(f"{message}; {wrong_credentials('source')}")
    if code in _REFUSED:
        return SourceRefused(f"{message}; {_missing(message)}")
    if code in _UNSUPPORTED:
        return SourceUnsupported(message)
    if code in _RESUMABLE_AT_ONCE:
        return SourceUnavailable(message, retry_after=_SOON)
    return SourceUnavailable(message)


def _missing(message: str) -> str:
    """`readAnyDatabase` does not include database `local`, whose oplog may be needed for rows, for DDL and for the oplog window."""
    if "not authorized on local " in message:
        return "grant the source's user read on database local, or the role clusterMonitor"
    return "grant the source's user what docs/reference/source.md lists"


def readable(error: driver.OperationFailure) -> driver.OperationFailure:
    """The same error with a readable message: the driver put the raw reply into it."""
    if not isinstance(error.details, RawBSONDocument):
        return error
    details = {name: value for name, value in bson.decode(error.details.raw).items() if not name.startswith("$")}
    return type(error)(details.get("errmsg", ""), error.code, details)
