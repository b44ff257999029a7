"""`ChangefeedState`: what the owner knows of one changefeed when it decides. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from changefeed.config.configuration import Configuration
from changefeed.documents.document import Document
from changefeed.errors import SluiceError
from changefeed.event import DdlEvent
from changefeed.lifecycle import ErrorReport
from changefeed.position import Position
from changefeed.records.ddl import Barrier, DdlRecord
from changefeed.records.node import PositionReport
from changefeed.records.requests import ChangefeedInfo
from changefeed.records.status import ChangefeedStatus, LetterTotals
from changefeed.source_history import SourceHistory
from changefeed.table import TableId
from coordination.large_values import MOST_BYTES
from owner.ddl.execution import DdlProgress
from owner.ddl.sightings import Sightings
from owner.tables.progress import TableProgress
from owner.tables.wishes import TableWishes
from schema_store.versions import SchemaVersions


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangefeedState:
    epoch: int
    info: ChangefeedInfo
    status: ChangefeedStatus
    barrier: Barrier | None
    records: Mapping[Position, DdlRecord]
    wishes: TableWishes = field(default_factory=TableWishes)
    reports: Sequence[PositionReport] = ()
    """Of the live processors."""
    node_errors: Sequence[ErrorReport] = ()
    """What nodes with tables report in this run, each with its node's name."""
    checkpoints: TableProgress
    tip: SchemaVersions
    arrived: Sequence[DdlEvent]
    """Shown by the watch and not recorded yet, in stream order; none is at or past `resolved`."""
    resolved: Position
    room: int = MOST_BYTES
    """For large definitions, in bytes."""
    history: SourceHistory | None = None
    """As the watch saw it with `resolved`."""
    holding: bool = False
    """Tables are being stopped that a part of the source is lost for, and until then nothing that the watch shows is taken."""
    sync_place: Position | None = None
    """Where everything waits for the next sync point."""
    horizon: Position | None = None
    """What is at or past it is too new for a changefeed with a delay. None: nothing is."""
    sightings: Sightings = field(default_factory=Sightings)
    """Empty while the changefeed does not run."""
    watching: bool = True
    """The watch has no error."""
    executions: Mapping[Position, DdlProgress]
    beside: AbstractSet[TableId] = frozenset()
    """The tables copied beside the target's whose copies have ended."""
    still: bool = False
    """No pipeline of its last run is running any more. Determined only while the changefeed rests."""
    copying: bool = False
    """The initial copy of some table has not ended. Determined only for a changefeed with a target."""
    entered: Mapping[tuple[Position, TableId | None], Document | SluiceError] = field(default_factory=dict)
    """What the source's catalog says about tables that had to be looked up, at the DDL that brings them in. An error: no catalog will ever say it."""
    letters: LetterTotals | None = None
    """None: not counted yet."""
    errors: Sequence[ErrorReport] = ()
    """Errors of the owner's own work for this changefeed: the DDL watch, the look-ups in the catalog, the oplog guard."""


def checkpoint_now(state: ChangefeedState) -> Position:
    assert state.status.checkpoint is not None, "expected a changefeed that has begun"
    return state.status.checkpoint


def end_of(state: ChangefeedState) -> Position | None:
    """Where all tables end: at the user's target, or at the published position if that is further. None: no end yet.

    A running copy reads changes later than the target, and ends only when the barrier has passed everything that it read.
    """
    target = state.info.configuration.target
    if target is None or state.copying:
        return None
    return max(Position(target), published(state.status, state.barrier))


def bound_of(state: ChangefeedState) -> Position | None:
    """Where DDLs wait, and rows: at the end, at a sync point, or where they are too new. Never before what is published. None: nowhere."""
    bounds = [at for at in (end_of(state), state.horizon, state.sync_place) if at is not None]
    return max(min(bounds), published(state.status, state.barrier)) if bounds else None


def published(status: ChangefeedStatus, barrier: Barrier | None) -> Position:
    """Every DDL below it is recorded, according to the status, or to a barrier that was published after the status."""
    assert status.resolved is not None, "expected a changefeed that has begun"
    return max(status.resolved, barrier.position) if barrier else status.resolved


def horizon(
    configuration: Configuration,
    status: ChangefeedStatus,
    resolved: Position,
    copying: Callable[[Position], Collection[TableId]],
) -> Position | None:
    """Return from where on changes are too new for a changefeed with a delay. None: nowhere.

        delay 1h, everything up to 12:00:05 of the source's clock is known      11:00:05: what is there or later waits
        no delay, or a target, as a cut-over sets one                           None: nothing waits
        a first copy is not done                                                None: its rows are of now, and are consistent only later

    A first copy is one of a table with which the changefeed began. A table that is stopped counts as done: it may wait for its user for ever. Once
    the delay has begun, as the status says, no copy ends it: changes of the other tables must not be let through.

    `copying`: the tables that began at a position with a copy that goes on.
    """
    if configuration.delay is None or configuration.target is not None:
        return None
    began_at = status.copied_from if status.overdue_seconds is None else None
    if began_at is not None and copying(began_at):
        return None
    return Position(resolved.ts.earlier_by(configuration.delay.span))


def asked_about(event: DdlEvent) -> tuple[Position, TableId | None]:
    """Of a table that is looked up: what `entered` has its answer under."""
    return event.position, event.id
