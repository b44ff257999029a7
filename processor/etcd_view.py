"""`ProcessorView`: what etcd says about one changefeed to one processor, at one revision."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from changefeed.capture import Capture
from changefeed.config.configuration import Configuration
from changefeed.lifecycle import State
from changefeed.position import Position
from changefeed.records.ddl import Barrier, DdlRecord
from changefeed.records.node import Assignment, NodeId
from changefeed.records.requests import ChangefeedId, ChangefeedInfo, RepairRequest
from changefeed.records.status import ChangefeedStatus, Straggler
from changefeed.table import TableId, TableSchema
from coordination import decoded
from coordination.decoded import Decoded
from coordination.layout import Layout
from coordination.view import View
from processor.following import Orders


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorView:
    """`records` and `bases` are the same objects as long as nothing in them changed."""

    configuration: Configuration
    capture: Capture
    info_rev: int
    """The create-revision of the changefeed's info. A changefeed created again under the same name has another one."""
    orders: Orders
    checkpoint: Position
    """The changefeed's checkpoint: only stragglers are behind it, on any node."""
    patterns_since: Position | None
    """Where the filter got its present patterns. None: at the changefeed's start."""
    records: Mapping[str, decoded.StoredRecord[DdlRecord]]
    bases: Mapping[str, decoded.StoredRecord[TableSchema]]
    repairs: Mapping[str, decoded.StoredRecord[RepairRequest]]
    """By table."""
    others: AbstractSet[NodeId] = frozenset()
    """The other living nodes that have tables of it. Only where a limit is to be shared with them."""

    @property
    def settled_below(self) -> Position:
        """No DDL below it is open. The changefeed's checkpoint may have passed one of a straggler."""
        return min(
            [self.checkpoint, *(stored.record.position for stored in self.records.values() if stored.record.open)]
        )

    def ddls(self) -> list[DdlRecord]:
        return [stored.record for stored in self.records.values()]

    def tables(self) -> Iterable[TableSchema]:
        return [stored.record for stored in self.bases.values()]

    def base(self, table: TableId) -> TableSchema | None:
        return self.bases[table].record if table in self.bases else None


def groups(layout: Layout, id: ChangefeedId, node: NodeId) -> tuple[str, ...]:
    """The groups of keys that concern the node. While none changes there is nothing new to read."""
    return (
        layout.changefeed(id),
        layout.ddls(id),
        layout.schemas(id),
        layout.stragglers(id),
        layout.repairs(id),
        layout.assignment(id, node),
        layout.copies(id),
    )


def read(reader: Decoded, view: View, layout: Layout, id: ChangefeedId, node: NodeId) -> ProcessorView | None:
    """None until the owner has started the changefeed."""
    info = reader.one(ChangefeedInfo, view, layout.info(id))
    status = reader.one(ChangefeedStatus, view, layout.status(id))
    barrier = reader.one(Barrier, view, layout.barrier(id))
    if info is None or status is None or barrier is None or status.record.checkpoint is None:
        return None
    assignments = reader.assignments(view, id)
    assigned = assignments.get(node)
    limited = info.record.configuration.copy_limit or info.record.configuration.apply_limit
    others = {
        other
        for other, stored in (assignments.items() if limited else ())
        if other != node and stored.record.tables and view.get(layout.node(other)) is not None
    }
    records = reader.group(DdlRecord, view, layout.ddls(id))
    stragglers = reader.group(Straggler, view, layout.stragglers(id))
    orders = Orders(
        life=barrier.create_rev,
        running=status.record.lifecycle.running and status.record.tables != (),
        troubled=status.record.lifecycle.state is State.WARNING,
        run=status.record.run,
        barrier=barrier.record.holding(stored.record for stored in records.values()),
        barrier_rev=barrier.mod_rev,
        assignment=assigned.record if assigned else Assignment(),
        assignment_rev=assigned.mod_rev if assigned else 0,
        stops={TableId(table): stored.mod_rev for table, stored in stragglers.items() if stored.record.stopped},
    )
    return ProcessorView(
        configuration=status.record.as_found(info.record.configuration),
        capture=info.record.capture,
        info_rev=info.create_rev,
        orders=orders,
        checkpoint=status.record.checkpoint,
        patterns_since=max(status.record.taken_in_at, default=None),
        records=records,
        bases=reader.group(TableSchema, view, layout.schemas(id)),
        repairs=reader.group(RepairRequest, view, layout.repairs(id)),
        others=others,
    )
