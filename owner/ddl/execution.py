"""`next_step`, `translated`: how one DDL is applied downstream, step by step, and what it is there. Pure.

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

from changefeed.capture import Capture
from changefeed.config.configuration import Configuration
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
from changefeed.event import DdlEvent, DdlType
from changefeed.lifecycle import ErrorReport
from changefeed.records.ddl import DdlRecord, DdlState, Observation
from changefeed.table import TableName
from owner.ddl.scope import ANEW
from schema_store.versions import SchemaVersions
from sink.ddl import DownstreamDdl, Routing, downstream, dropped_instead

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


def translated(record: DdlRecord, tip: SchemaVersions, configuration: Configuration, capture: Capture) -> DownstreamDdl:
    """Return what a recorded DDL is at the sink, in the sink's names. `tip`: with every DDL that is recorded. Raises `DdlRefused`."""

    def route(name: TableName) -> TableName | None:
        return configuration.routes.target(name) if configuration.filter.wants_table(name) else None

    event = record.event
    touched = record.scope.tables | record.scope.apart
    before = [schema for table in touched if (schema := tip.before(table, record.position)) is not None]
    if event.type is DdlType.DROP_DATABASE:
        named = record.scope.names  # a table without a name downstream is not among them
        before = [schema for schema in before if configuration.routes.target(schema.name) in named]
    if (refused := shown_otherwise(event, configuration)) and not record.drops:
        raise DdlRefused(refused)
    if refused := not_explained(record) or not_replicable(event, configuration, capture):
        raise DdlRefused(refused)
    translate = dropped_instead if record.drops else downstream
    event = replace(event, drop_target=None) if record.taken else event
    return translate(event, Routing.of(route, before))


def not_explained(record: DdlRecord) -> str:
    """Why a DDL is refused that does not fit what is known of its tables. Empty for any other DDL."""
    if record.event.type is not DdlType.UNKNOWN:
        return ""
    return f"{record.event}: {record.note or 'it does not fit what is known of its tables'}; {ANEW}"


def not_replicable(event: DdlEvent, configuration: Configuration, capture: Capture) -> str:
    """Why a created table is refused. Empty for any other DDL."""
    if event.type is not DdlType.CREATE or event.table is None or "timeseries" not in event.description.decode():
        return ""
    why = configuration.series_obstacle(event.table, capture)
    return f"{event}: {event.table} is a time series: {why}" if why else ""


def shown_otherwise(event: DdlEvent, configuration: Configuration) -> str:
    """Why a rename is refused after which other fields would be left out, masked or hashed: the table's rows would be a mixture. Empty for any
    other DDL.
    """
    old, new = event.table, event.renamed_to
    if old is None or new is None or not all(map(configuration.filter.wants_table, (old, new))):
        return ""
    if configuration.columns_of(old) == configuration.columns_of(new):
        return ""
    return (
        f"{event}: `columns` shows other fields of {new} than of {old}, and rows that are at the target stay as they are; leave the "
        "table out (filter.tables), drop it at the target, and have the changefeed replicate it again: then it is copied"
    )
