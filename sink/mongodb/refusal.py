"""`Refusal`: one change that the target did not apply; `resolution`: what is done about it. Pure.

    the target answers                        resolution
    a state that passes                       the change is sent again after a pause, as a replay
    insert: its `_id` exists                  the document is replaced: the insert was applied before
    replace: its `_id` exists, but differs    another shard key, or 1 for 1.0, or a zero timestamp, which only an insert keeps: the existing document
                                              is displaced, and the change replaces it
    a name that only an insert may have       the document is removed and inserted in one transaction
    a unique value is another row's           the change and later changes of its row wait, and are tried again after the others
    update: its document is not as stated     the row is edited here, in a replay as far as the update fits; otherwise it is divergence
    no right to write                         the changefeed stops
    another refusal of a replayed update      it is skipped, if its row may be repaired and has no letter: the source may never have had that state
    anything else                             a dead letter, or `RowRejected`

`WriteRun` carries it out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, NamedTuple

from changefeed.driver_text import ATLAS, WRONG_CREDENTIALS
from changefeed.event import RowType
from sink.row import RowChange

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
_UNAUTHORIZED = frozenset({13, 31, 33, 141, 214, 391}) | WRONG_CREDENTIALS

IMMUTABLE = 66
DOLLAR_NAME = 52
"""DollarPrefixedFieldName: servers before 5.0 refuse such a name inside a document, except in an insert."""
NO_TRANSACTION = frozenset({20, 263})
"""IllegalOperation, OperationNotSupportedInTransaction: a capped collection allows no delete in it, a standalone server has none."""
_DUPLICATE = frozenset({11000, 11001, 12582})
_MISFIT = frozenset({2, 28, IMMUTABLE})
"""BadValue, PathNotViable, ImmutableField: errors of an update, not of the resulting document."""
_TOO_LARGE = frozenset({10334, 17419, 17420})
ABOUT_A_ROW = _TOO_LARGE | {2, 9, 14, 15, 22, 40, 52, 56, 57}
"""BadValue, FailedToParse, TypeMismatch, Overflow, InvalidBSON, and refused paths and names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """One change that the server did not apply, by its place in the batch."""

    index: int
    code: int
    message: str
    key_pattern: Mapping[str, Any] | None = None

    @property
    def duplicate(self) -> bool:
        return self.code in _DUPLICATE

    @property
    def duplicate_id(self) -> bool:
        if not self.duplicate:
            return False
        if self.key_pattern is not None:
            return list(self.key_pattern) == ["_id"]
        return "index: _id_ " in self.message

    @property
    def passing(self) -> bool:
        return retryable_code(self.code, self.message)

    @property
    def misfit(self) -> bool:
        """An error when a pipeline is evaluated has one of the server's many assertion numbers, all from 10000 on."""
        return self.code in _MISFIT or (self.code >= 10_000 and self.code not in _TOO_LARGE)


class RefusedRow(NamedTuple):
    """A change that was written by itself, and was refused. `taken`: a unique value of it is another row's, so it may be tried again later."""

    said: str
    taken: Refusal | None


class Resolution(Enum):
    SEND_AGAIN = auto()
    REPLACE = auto()
    STOP = auto()
    DISPLACE = auto()
    RENEW = auto()
    WAIT = auto()
    EDIT = auto()
    REJECT = auto()


def resolution(change: RowChange, refusal: Refusal) -> Resolution:  # noqa: PLR0911 - one case for each kind of refusal
    if refusal.passing:
        return Resolution.SEND_AGAIN
    if change.type is RowType.INSERT and refusal.duplicate_id:
        return Resolution.REPLACE
    if unauthorized_code(refusal.code, refusal.message):
        return Resolution.STOP
    if change.type is RowType.REPLACE and (refusal.duplicate_id or refusal.code == IMMUTABLE):
        return Resolution.DISPLACE
    if change.document is not None and refusal.code == DOLLAR_NAME:
        return Resolution.RENEW
    if refusal.duplicate and not refusal.duplicate_id:
        return Resolution.WAIT
    if change.type is RowType.UPDATE and refusal.misfit:
        return Resolution.EDIT
    return Resolution.REJECT


def refusal_of(error: Mapping[str, Any]) -> Refusal:
    return Refusal(
        index=error["idx"] if "idx" in error else error["index"],
        code=error["code"],
        message=error.get("errmsg", ""),
        key_pattern=error.get("keyPattern"),
    )


def told(change: RowChange, refusal: Refusal) -> str:
    return f"{change}: {change.table.name} answers: {refusal.message} (code {refusal.code})"


def retryable_code(code: int | None, message: str = "") -> bool:
    """Whether waiting may help. It takes a code because the errors inside a bulk write's reply are not exceptions."""
    return code in _RETRYABLE or (code == ATLAS and "quota" in message)


def unauthorized_code(code: int | None, message: str = "") -> bool:
    return code in _UNAUTHORIZED or (code == ATLAS and "auth" in message)
