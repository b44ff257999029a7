"""`SourceWatch`: what a tick learns of a changefeed's source: the DDLs that were shown since the last one, and what is lost there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from changefeed.errors import HistoryLost, SluiceError
from changefeed.lifecycle import ErrorReport
from changefeed.position import Position
from changefeed.records.requests import ChangefeedId
from changefeed.records.status import ChangefeedStatus
from changefeed.table import TableId
from owner.background import Background
from owner.ddl.feed import Subscription
from owner.etcd_view import OwnerView
from owner.losses import OplogGuard, OplogLeft, loss_of, lost_tables, others_go_on
from owner.owner_memory import Lifecycles, OwnerMemory
from owner.tables.node_standings import without_nodes
from owner.term import OwnerSource
from source.loss import Loss


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """`resolved`: everything that the watch shows below it is in the memory. `gone_shards`: nobody needs them any more."""

    resolved: Position
    errors: tuple[ErrorReport, ...]
    lost: Mapping[TableId, ErrorReport]
    lost_from_the_start: Mapping[TableId, ErrorReport]
    gone_shards: AbstractSet[str]


class SourceWatch:
    """For the owner's thread. Never waits, and writes nothing."""

    def __init__(self, id: ChangefeedId, source: OwnerSource, background: Background, lifecycles: Lifecycles) -> None:
        self._source = source
        self._background = background
        self._report = lifecycles.report
        self._guard = OplogGuard(id, background, source.oplog_window)
        self._losses = source.losses(background)

    @property
    def oplog_left(self) -> OplogLeft | None:
        """None until it is known."""
        return self._guard.left

    def look(
        self, known: OwnerView, status: ChangefeedStatus, memory: OwnerMemory, also: Iterable[SluiceError | None]
    ) -> Watched:
        """Take what arrived since the last tick into the memory. `also`: further errors of the owner's work, None for none."""
        tables, report = memory.tables, self._report
        assert status.resolved is not None
        assert tables is not None, "expected a memory that follows etcd"
        errors: list[SluiceError | None] = []
        loss, resolved = Loss(), status.resolved
        if status.lifecycle.running:
            errors.append(self._lost(known, status, memory))
            taken = self._subscription(known, status.resolved, memory).take()
            loss = loss_of(self._losses, known, tables, memory.progress, taken.history)
            memory.take(taken, hold=loss.hold)
            resolved = resolved if loss.hold else taken.resolved
            nobody = without_nodes(known.processors) if tables.replicated else None
            errors += [*also, taken.error, memory.error, loss.error, nobody]
        else:
            memory.leave_feed()
        lost = {**lost_tables(known, memory.progress, self._guard.window), **loss.lost}
        return Watched(
            resolved=resolved,
            errors=tuple(report(error) for error in errors if error is not None),
            lost={table: report(error) for table, error in lost.items()},
            lost_from_the_start={table: report(error) for table, error in loss.begin_lost.items()},
            gone_shards=loss.gone,
        )

    def _subscription(self, known: OwnerView, resolved: Position, memory: OwnerMemory) -> Subscription:
        if memory.subscription is None:
            start = max(resolved, known.barrier.position) if known.barrier else resolved
            memory.subscription = self._source.feed.subscribe(start, self._background.wake)
        return memory.subscription

    def _lost(self, known: OwnerView, status: ChangefeedStatus, memory: OwnerMemory) -> HistoryLost | None:
        """The changefeed's loss of its place, unless that concerns single tables."""
        assert status.checkpoint is not None
        lost = self._guard.look(status.checkpoint)
        return None if others_go_on(known, memory.progress, self._guard.window) else lost
