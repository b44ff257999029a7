"""`SourceWatch`: what a tick learns of a changefeed's source: the DDLs that were shown since the last one, and what is lost there.

`check`, `lost_tables`, `loss_of`: whether the source still has what has not been replicated, and for how much longer.

    position of         90   95   91   96
    the oplog begins at 93                     the first and the third are lost, alone: the others go on
    at 97                                      all are: the changefeed is lost, and no table of it
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial

import structlog

from changefeed.errors import HistoryLost, SluiceError
from changefeed.event import DdlType
from changefeed.lifecycle import ErrorReport, State
from changefeed.position import Position
from changefeed.records.ddl import DdlRecord
from changefeed.records.requests import ChangefeedId
from changefeed.records.status import ChangefeedStatus
from changefeed.source_history import SourceHistory
from changefeed.table import COPY_ANEW, TableId
from owner.background import Background, Chore, logged
from owner.connections import SourceConnection
from owner.ddl.feed import Subscription
from owner.etcd_view import OwnerView
from owner.owner_memory import Lifecycles, OwnerMemory
from owner.tables.known_tables import KnownTables
from owner.tables.node_standings import without_nodes
from owner.tables.progress import TableProgress
from source.loss import Loss, Losses, ReadTable
from source.oplog.window import OplogWindow

_SMALL_SHARE = 0.25
_EVERY_SECONDS = 10.0

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class OplogLeft:
    """`left`: how long the changefeed may stop before the oplog loses the events that it needs next."""

    left: timedelta
    scarce: bool
    shards: Mapping[str, timedelta | None] = field(default_factory=dict)
    """Of a cluster: by each shard's own oplog, and that of the config servers. None: it did not answer."""


def check(changefeed: str, checkpoint: Position, window: OplogWindow) -> OplogLeft:
    """`scarce`: less than a quarter of the oplog's span is left. Raises `HistoryLost` if the checkpoint is no longer in the oplog."""
    if not window.holds(checkpoint):
        raise HistoryLost(
            f"changefeed {changefeed!r}: checkpoint {checkpoint} is no longer in the source's oplog {window.of}(oldest is {window.oldest_ts}, "
            f"{window.oldest_ts.to_iso()}); remove it and create it again with --start initial, and give the source a larger oplog"
        )
    left = window.remaining(checkpoint)
    shards = {
        name: timedelta(seconds=checkpoint.ts.seconds - oldest_ts.seconds) if oldest_ts is not None else None
        for name, oldest_ts in window.parts.items()
    }
    return OplogLeft(left=left, scarce=left < window.span * _SMALL_SHARE, shards=shards)


def lost_tables(known: OwnerView, progress: TableProgress, window: OplogWindow | None) -> dict[TableId, HistoryLost]:
    """With the reason for each."""
    if window is None:
        return {}
    lost = {table for table, it in known.stragglers.items() if not it.lost} | lost_alone(known, progress, window)
    places = {table: progress.of(table) for table in lost}
    return {
        table: _lost_at(at, window).about(table)
        for table, at in places.items()
        if at is not None and not window.holds(at)
    }


def lost_alone(known: OwnerView, progress: TableProgress, window: OplogWindow | None) -> AbstractSet[TableId]:
    """Those that cannot keep up, if others can. None of these is a straggler yet."""
    if window is None or window.holds(progress.least(known.stragglers.keys()) or window.newest):
        return frozenset()
    others = progress.tables.keys() - known.stragglers.keys()
    lost = {table for table in others if (at := progress.of(table)) is not None and not window.holds(at)}
    return lost if lost != others else frozenset()


def others_go_on(known: OwnerView, progress: TableProgress, window: OplogWindow | None) -> bool:
    """Whether what the oplog has lost concerns stragglers and those of `lost_alone` only. The checkpoint follows the other tables a moment after
    one that has held it became a straggler.
    """
    if window is None:
        return False
    apart = known.stragglers.keys() | lost_alone(known, progress, window)
    least = progress.least(apart)
    return bool(apart) and least is not None and window.holds(least)


def _lost_at(at: Position, window: OplogWindow) -> HistoryLost:
    return HistoryLost(
        f"it is at {at}, which is no longer in the source's oplog (the oldest is {window.oldest_ts}, {window.oldest_ts.to_iso()}); "
        + COPY_ANEW
    )


def loss_of(
    losses: Losses | None, known: OwnerView, tables: KnownTables, progress: TableProgress, shown: SourceHistory | None
) -> Loss:
    """What is lost with parts of the source's history that cannot be read any more. `shown`: by the watch."""
    if losses is None:
        return Loss()
    lost = {table for table, stored in known.stragglers.items() if stored.lost}
    open_records = [record for record in known.records.values() if record.open]
    least = progress.least(lost)
    begins = min((record.position for record in open_records), default=least)
    beginning = (
        {DdlType.CREATE, DdlType.ENTER} if known.info.configuration.sink_traits.keeps_messages else {DdlType.CREATE}
    )
    begun = [record for record in open_records if record.event.type in beginning]
    return losses.look(
        shown,
        history_of(known),
        min(least, begins) if least and begins else None,
        partial(_read_tables, tables, progress, lost, begun),
    )


def history_of(known: OwnerView) -> SourceHistory | None:
    """What nodes read windows by."""
    return known.barrier.history if known.barrier is not None else None


def _read_tables(
    known: KnownTables, progress: TableProgress, lost: AbstractSet[TableId], begun: Iterable[DdlRecord]
) -> dict[TableId, ReadTable]:
    """`begun`: by which tables begin. A copy anew needs changes from there on only at a sink of messages, which has them all. Until it begins, the table
    is where it is: it has to come there, or is lost before.
    """
    uuids: dict[TableId, list[TableId]] = {}
    for uuid, table in known.tip.by_uuid().items():
        uuids.setdefault(table, [table]).append(uuid)
    tables = {
        schema.id: ReadTable(name=schema.name, at=progress.of(schema.id), uuids=uuids.get(schema.id, [schema.id]))
        for _, schema in known.settled
        if schema.id in known.replicated and schema.id not in lost
    }
    for record in begun:
        event = record.event
        if event.table is not None and event.id is not None and event.id not in tables:
            tables[event.id] = ReadTable(
                name=event.table, at=event.position, uuids=uuids.get(event.id, [event.id]), there=False
            )
    return tables


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """`resolved`: everything that the watch shows below it is in the memory. `holding`: nothing more that it shows may be taken yet. `gone_shards`: nobody
    needs them any more.
    """

    resolved: Position
    errors: tuple[ErrorReport, ...]
    lost: Mapping[TableId, ErrorReport]
    lost_from_the_start: Mapping[TableId, ErrorReport]
    holding: bool
    gone_shards: AbstractSet[str]


class SourceWatch:
    """For the owner's thread. Never waits, and writes nothing."""

    def __init__(
        self, id: ChangefeedId, source: SourceConnection, background: Background, lifecycles: Lifecycles
    ) -> None:
        self._source = source
        self._background = background
        self._report = lifecycles.report
        self._id = id
        self._log = _log.bind(changefeed=id)
        self._oplog = Chore[OplogWindow | None](
            background, "oplog", _EVERY_SECONDS, logged(self._log.warning, "oplog_window_unknown")
        )
        self._losses = source.losses(background)
        self.oplog_left: OplogLeft | None = None
        """None until it is known, and once nothing more is needed."""

    def look(
        self, known: OwnerView, status: ChangefeedStatus, memory: OwnerMemory, also: Iterable[SluiceError | None]
    ) -> Watched:
        """Take what arrived since the last tick into the memory. `also`: further errors of the owner's work, None for none."""
        tables, report = memory.tables, self._report
        assert status.resolved is not None
        assert tables is not None, "expected a memory that follows etcd"
        errors: list[SluiceError | None] = [self._lost(known, status, memory)]
        loss, resolved = Loss(), status.resolved
        if status.lifecycle.running:
            taken = self._subscription(known, status.resolved, memory).take()
            loss = loss_of(self._losses, known, tables, memory.progress, taken.history)
            memory.take(taken, hold=loss.hold)
            resolved = resolved if loss.hold else taken.resolved
            nobody = without_nodes(known.processors) if tables.replicated else None
            errors += [*also, taken.error, memory.error, loss.error, nobody]
        else:
            memory.leave_feed()
        lost = {**lost_tables(known, memory.progress, self._oplog.answer), **loss.lost}
        return Watched(
            resolved=resolved,
            errors=tuple(report(error) for error in errors if error is not None),
            lost={table: report(error) for table, error in lost.items()},
            lost_from_the_start={table: report(error) for table, error in loss.begin_lost.items()},
            holding=loss.hold,
            gone_shards=loss.gone,
        )

    def _subscription(self, known: OwnerView, resolved: Position, memory: OwnerMemory) -> Subscription:
        if memory.subscription is None:
            start = max(resolved, known.barrier.position) if known.barrier else resolved
            memory.subscription = self._source.feed.subscribe(start, self._background.wake)
        return memory.subscription

    def _lost(self, known: OwnerView, status: ChangefeedStatus, memory: OwnerMemory) -> HistoryLost | None:
        """The changefeed's loss of its place, unless that concerns single tables. One that is paused or failed needs its place to go on."""
        assert status.checkpoint is not None
        if status.lifecycle.state is State.FINISHED:
            self.oplog_left = None
            return None
        lost = self._look_at_oplog(status.checkpoint)
        return None if others_go_on(known, memory.progress, self._oplog.answer) else lost

    def _look_at_oplog(self, checkpoint: Position) -> HistoryLost | None:
        """Return the loss at the tick that finds it. An error of looking is only logged: the changefeed itself does not need the oplog's bounds."""
        if not self._oplog.tick(self._source.oplog_window) or (window := self._oplog.answer) is None:
            return None
        try:
            self.oplog_left = check(self._id, checkpoint, window)
        except HistoryLost as lost:
            self.oplog_left = OplogLeft(left=timedelta(), scarce=True)
            return lost
        if self.oplog_left.scarce:
            self._log.warning("oplog_window_scarce", left_seconds=self.oplog_left.left.total_seconds())
        return None
