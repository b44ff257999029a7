"""`OwnerView`: everything that etcd says about one changefeed, at one revision."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import reduce

from changefeed.position import Position
from changefeed.records import (
    Assignment,
    Barrier,
    ChangefeedId,
    ChangefeedInfo,
    ChangefeedStatus,
    CopyRecord,
    CopyStage,
    DdlRecord,
    MoveRequest,
    NodeId,
    NodeRecord,
    PositionReport,
    Role,
    RowCounts,
    SkipRequest,
    Straggler,
    TableRequest,
    TableVerb,
    TargetRename,
)
from changefeed.table import TableId, TableName, TableSchema
from coordination import decoded
from coordination.decoded import Decoded
from coordination.layout import Layout
from coordination.mirror import View
from owner.capture_change import Standing
from owner.ddl.stragglers import StoredStraggler
from owner.decision import published
from owner.tables.known_tables import KnownTables
from owner.tables.progress import Floor, NodeState, TableProgress


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerView:
    info: ChangefeedInfo
    status: ChangefeedStatus | None
    status_rev: int
    barrier: Barrier | None
    barrier_rev: int
    records: Mapping[Position, DdlRecord]
    bases: Mapping[TableId, TableSchema]
    assignments: Mapping[NodeId, decoded.StoredRecord[Assignment]]
    reports: Mapping[NodeId, PositionReport]
    rows: RowCounts
    """The counts of gone nodes."""
    renames: Mapping[TableName, TargetRename]
    moves: Mapping[TableId, NodeId]
    stragglers: Mapping[TableId, StoredStraggler]
    requests: Mapping[TableId, TableVerb]
    skips: AbstractSet[Position]
    copied: AbstractSet[TableId]
    """The tables whose initial copy has ended."""
    processors: Mapping[NodeId, NodeRecord]
    """The living processors."""
    isolates: bool
    """Whether all living nodes know stragglers."""

    def nodes(self, gone_at: Mapping[NodeId, float]) -> dict[NodeId, NodeState]:
        """The living processors, and gone nodes that have left an assignment or a report behind."""
        return {
            node: NodeState(
                assignment=assigned.record if assigned else Assignment(),
                assignment_rev=assigned.mod_rev if assigned else 0,
                report=self.reports.get(node),
                draining=node in self.processors and self.processors[node].draining,
                gone_at=gone_at.get(node),
            )
            for node in sorted(self.processors.keys() | self.left_behind)
            for assigned in [self.assignments.get(node)]
        }

    def floor(self, checkpoint: Position) -> Floor:
        stragglers = {table: stored.record for table, stored in self.stragglers.items()}
        return Floor(checkpoint, self.records.values(), stragglers)

    def standing(self) -> Standing | None:
        """None if the changefeed has not begun."""
        status = self.status
        if status is None or status.checkpoint is None:
            return None
        tables = KnownTables(status.copy_starts, self.bases, self.records.values())
        floor = self.floor(status.checkpoint)
        progress = TableProgress().next(tables.replicated, self.nodes({}), floor)
        names = {schema.id: schema.name for _, schema in tables.settled}
        return Standing(
            still=status.still,
            checkpoint=status.checkpoint,
            resolved=published(status, self.barrier),
            places={
                names[id]: progress.of(id) or max(given.start, floor.of(id)) for id, given in tables.replicated.items()
            },
            copying={names[id] for id in tables.to_copy - self.copied},
            stragglers={names[id] for id in self.stragglers.keys() & names.keys()},
            records=self.records.values(),
        )

    @property
    def all_rows(self) -> RowCounts:
        return reduce(RowCounts.plus, (report.rows for report in self.reports.values()), self.rows)

    @property
    def flowing(self) -> bool:
        """Whether rows in scope have arrived recently, on any node."""
        return any(report.flowing for report in self.reports.values())

    @property
    def left_behind(self) -> frozenset[NodeId]:
        return frozenset((self.assignments.keys() | self.reports.keys()) - self.processors.keys())


def read(reader: Decoded, view: View, layout: Layout, id: ChangefeedId) -> OwnerView | None:
    """None when there is no such changefeed."""
    info = reader.one(ChangefeedInfo, view, layout.info(id))
    if info is None:
        return None
    status = reader.one(ChangefeedStatus, view, layout.status(id))
    barrier = reader.one(Barrier, view, layout.barrier(id))
    records = reader.derived(DdlRecord, view, layout.ddls(id), _record)
    stragglers = reader.group(Straggler, view, layout.stragglers(id))
    requests = reader.group(TableRequest, view, layout.requests(id))
    skips = reader.group(SkipRequest, view, layout.skips(id))
    moves = reader.group(MoveRequest, view, layout.moves(id))
    renames = reader.group(TargetRename, view, layout.renames(id))
    nodes = reader.group(NodeRecord, view, layout.nodes)
    rows = reader.one(RowCounts, view, layout.rows(id))
    return OwnerView(
        info=info.record,
        status=status.record if status else None,
        status_rev=status.mod_rev if status else 0,
        barrier=barrier.record.holding(records.values()) if barrier else None,
        barrier_rev=barrier.mod_rev if barrier else 0,
        records=records,
        bases=reader.derived(TableSchema, view, layout.schemas(id), _base),
        assignments=reader.assignments(view, id),
        reports=reader.reports(view, id),
        rows=rows.record if rows else RowCounts(),
        renames={TableName.parse(name): stored.record for name, stored in renames.items()},
        moves={TableId(table): stored.record.node for table, stored in moves.items()},
        stragglers={
            TableId(table): StoredStraggler(stored.record, stored.mod_rev) for table, stored in stragglers.items()
        },
        requests={TableId(table): stored.record.verb for table, stored in requests.items()},
        skips={stored.record.position for stored in skips.values()},
        copied=reader.derived(CopyRecord, view, layout.copies(id), _copied).keys(),
        isolates=all(stored.record.isolates for stored in nodes.values()),
        processors={
            NodeId(node): stored.record for node, stored in nodes.items() if Role.PROCESSOR in stored.record.roles
        },
    )


def _record(_: str, stored: decoded.StoredRecord[DdlRecord]) -> tuple[Position, DdlRecord]:
    return stored.record.position, stored.record


def _base(table: str, stored: decoded.StoredRecord[TableSchema]) -> tuple[TableId, TableSchema]:
    return TableId(table), stored.record


def _copied(table: str, stored: decoded.StoredRecord[CopyRecord]) -> tuple[TableId, CopyStage] | None:
    return (TableId(table), CopyStage.DONE) if stored.record.stage is CopyStage.DONE else None
