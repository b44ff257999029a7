"""`next_step`: how one DDL is applied downstream, step by step. Pure.

    pending ──observe──▶ (observed) ──record──▶ executing ──apply──▶ (applied) ──release──▶ done
       │                                     └──refused──▶ pending, until a user acts
       └─────── not to be sent, or unsupported and to be skipped ────────release──▶ skipped

States in brackets are known to this process only; the others are recorded in etcd. A crash just after
    observe      nothing has happened: the next owner observes again
    record       the observation is safe: `apply` compares the downstream with it and does what is missing, once
    apply        the effect exists: the next owner's `apply` finds it and does nothing
    release      the record is done and the gate open, in one transaction

A retryable failure is tried again after a delay, at the step that failed. A refusal is recorded: the DDL waits for a user, and with it
the tables that it touches, and no others. A DDL that the target refuses has had no effect and is not running any more, so it is
pending again: after a user has repaired the target and resumed the table, the downstream is observed again. Otherwise it would be
compared for ever with the observation from before the repair.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeAlias

from changefeed.config.tables.filter import Disposition
from changefeed.errors import (
    DdlAmbiguous,
    DdlRefused,
    DdlUnsupported,
    DefinitionsTooLarge,
    InvariantError,
    RetryableError,
    SluiceError,
)
from changefeed.lifecycle import ErrorReport
from changefeed.records.ddl import DdlRecord, DdlState, Observation

_WITHOUT_EFFECT = (DdlRefused, DdlUnsupported, DefinitionsTooLarge)
OF_ITS_TABLES = (*_WITHOUT_EFFECT, DdlAmbiguous, InvariantError)
"""Errors for which the DDL waits, with the tables that it touches. Any other concerns the whole changefeed."""


@dataclass(frozen=True, slots=True)
class Running:
    """A worker thread is running the step."""


@dataclass(frozen=True, slots=True)
class Observed:
    before: Observation


@dataclass(frozen=True, slots=True)
class Applied:
    note: str


@dataclass(frozen=True, slots=True)
class Failed:
    """`retry_deadline`: on the monotonic clock of this process."""

    error: SluiceError
    failed_at: datetime
    retry_deadline: float


DdlProgress: TypeAlias = Running | Observed | Applied | Failed


@dataclass(frozen=True, slots=True)
class Observe:
    record: DdlRecord


@dataclass(frozen=True, slots=True)
class RecordExecuting:
    """And apply it, as soon as etcd has the record."""

    record: DdlRecord


@dataclass(frozen=True, slots=True)
class Apply:
    record: DdlRecord


@dataclass(frozen=True, slots=True)
class ReleaseDdl:
    record: DdlRecord


@dataclass(frozen=True, slots=True)
class Refuse:
    """The DDL waits for a user."""

    record: DdlRecord


Step: TypeAlias = Observe | RecordExecuting | Apply | ReleaseDdl | Refuse


def next_step(
    record: DdlRecord, progress: DdlProgress | None, *, skip_unsupported: bool, monotonic: float, now: datetime
) -> Step | None:
    """The next step of a DDL that may run. None: wait."""
    if record.disposition is Disposition.SCHEMA_ONLY:
        return ReleaseDdl(skipped(record, record.note or "the filter keeps it from the target", now))
    match progress:
        case Running():
            return None
        case Applied(note):
            return ReleaseDdl(replace(record, state=DdlState.DONE, note=note, done_at=now))
        case Failed(error, _, retry_deadline):
            if isinstance(error, RetryableError):
                return None if monotonic < retry_deadline else _forward(record, progress, now)
            return _failed(record, progress, now, skip_unsupported=skip_unsupported)
        case _:
            return _forward(record, progress, now)


def _failed(record: DdlRecord, failure: Failed, now: datetime, *, skip_unsupported: bool) -> Step | None:
    error = failure.error
    if not isinstance(error, OF_ITS_TABLES):
        return None
    if skip_unsupported and isinstance(error, DdlUnsupported):
        return ReleaseDdl(skipped(record, str(error), now))
    refused = replace(record, refused=ErrorReport.of(error, failure.failed_at))
    if isinstance(error, _WITHOUT_EFFECT):
        refused = replace(refused, state=DdlState.PENDING, before=None, executing_at=None)
    return Refuse(refused)


def _forward(record: DdlRecord, progress: DdlProgress | None, now: datetime) -> Step:
    if record.state is DdlState.EXECUTING:
        return Apply(record)
    if isinstance(progress, Observed):
        return RecordExecuting(replace(record, state=DdlState.EXECUTING, before=progress.before, executing_at=now))
    return Observe(record)


def skipped(record: DdlRecord, note: str, now: datetime) -> DdlRecord:
    return replace(record, state=DdlState.SKIPPED, note=note, done_at=now)
