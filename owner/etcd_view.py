"""`OwnerView`: everything that etcd says about one changefeed, at one revision."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import partial, reduce

from changefeed.position import Position
from changefeed.records.copy import CopyPart, CopyRecord, CopyStage
from changefeed.records.ddl import Barrier, DdlRecord, TargetRename
from changefeed.records.node import Assignment, NodeId, NodeRecord, PositionReport, Role, RowCounts
from changefeed.records.requests import (
    ChangefeedId,
    ChangefeedInfo,
    MoveRequest,
    RepairRequest,
    SkipRequest,
    TableRequest,
    TableVerb,
)
from changefeed.records.status import ChangefeedStatus, Straggler
from changefeed.records.sync_point import SyncPoints, SyncRequest, Verified
from changefeed.table import TableId, TableName, TableSchema
from changefeed.users import PrincipalNames
from coordination import decoded
from coordination.decoded import Decoded
from coordination.layout import Layout, decode
from coordination.view import View
from owner.ddl.stragglers import StoredStraggler
from owner.decision.capture_change import Standing
from owner.decision.state import published
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
    principals: PrincipalNames = field(default_factory=PrincipalNames)
    """The users and roles that have been written to the target."""
    sync: SyncPoints = field(default_factory=SyncPoints)
    sync_asked: bool = False
    """A user wants a sync point now."""
    verified: Verified = field(default_factory=Verified)
    renames: Mapping[TableName, TargetRename]
    moves: Mapping[TableId, NodeId]
    stragglers: Mapping[TableId, StoredStraggler]
    requests: Mapping[TableId, TableVerb]
    request_revs: Mapping[TableId, int] = field(default_factory=dict)
    repairs: Mapping[TableId, RepairRequest]
    skips: AbstractSet[Position]
    copied: AbstractSet[TableId]
    """The tables whose initial copy has ended."""
    processors: Mapping[NodeId, NodeRecord]
    """The living processors."""
    large: frozenset[str] = frozenset()
    """The large values that records, bases and renames refer to."""
    copies: Mapping[TableId, CopyRecord] = field(default_factory=dict)
    """What is recorded of initial copies."""
    gone: Callable[[int], bool] = lambda _: False
    """Whether the node of this epoch is. Not, if it came after this view."""
    chunks_of: Callable[[TableId], Iterable[CopyPart]] = lambda _: ()
    """The chunks of a copy that has not ended, in order. Decoded at each call."""

    def nodes(
        self, gone_at: Mapping[NodeId, float], failing: AbstractSet[NodeId] = frozenset()
    ) -> dict[NodeId, NodeState]:
        """The living processors, and gone nodes that have left an assignment or a report behind. `failing`: nodes that fail this changefeed."""
        return {
            node: NodeState(
                assignment=assigned.record if assigned else Assignment(),
                assignment_rev=assigned.mod_rev if assigned else 0,
                report=self.reports.get(node),
                draining=node in self.processors and self.processors[node].draining,
                unfit=node in failing or (node in self.processors and not self.processors[node].ready),
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
        tables = KnownTables(self.bases, self.records.values())
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
    def reports_may_be_old(self) -> bool:
        """Whether nodes may have reported before they saw the last start: no report is under a barrier from after the status yet."""
        return self.barrier is not None and self.barrier_rev < self.status_rev

    def stands_still(self, gone_at: Mapping[NodeId, float], gone_before: float) -> bool:
        """Whether each living node reports that its pipelines have stopped, and each gone node is gone since `gone_before`.

        A report counts once its node has seen a barrier that was written after the status which ended the run.
        """
        if self.reports_may_be_old:
            return False
        busy = {node for node, assigned in self.assignments.items() if assigned.record.tables}
        for node in busy | self.reports.keys():
            report = self.reports.get(node)
            if node not in self.processors:
                still = gone_at[node] <= gone_before
            else:
                still = report is not None and report.run == 0 and report.barrier_rev >= self.barrier_rev
            if not still:
                return False
        return True

    def gone_at(self, before: Mapping[NodeId, float], now: float) -> dict[NodeId, float]:
        """When each node went that has left something behind. One that goes while the changefeed stands still leaves no task that writes, and none
        can start without its lease: it counts as long gone.
        """
        since = float("-inf") if self.status is not None and self.status.still else now
        return {node: before.get(node, since) for node in self.left_behind}

    @property
    def moving(self) -> frozenset[TableId]:
        """The tables that a node is giving up, or is to give up."""
        leaving = (assigned.record.leaving for assigned in self.assignments.values())
        return frozenset(self.moves).union(*leaving)

    @property
    def present_reports(self) -> Mapping[NodeId, PositionReport]:
        """Those of the present run. Those of an earlier run say nothing about now."""
        if self.status is None or not self.status.lifecycle.running:
            return {}
        return {node: report for node, report in self.reports.items() if report.run == self.status.run}

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
    repairs = reader.group(RepairRequest, view, layout.repairs(id))
    skips = reader.group(SkipRequest, view, layout.skips(id))
    moves = reader.group(MoveRequest, view, layout.moves(id))
    principals = reader.one(PrincipalNames, view, layout.principals(id))
    renames = reader.group(TargetRename, view, layout.renames(id))
    sync = reader.one(SyncPoints, view, layout.sync(id))
    verified = reader.one(Verified, view, layout.verified(id))
    nodes = reader.nodes(view)
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
        principals=principals.record if principals else PrincipalNames(),
        sync=sync.record if sync else SyncPoints(),
        sync_asked=reader.one(SyncRequest, view, layout.sync_request(id)) is not None,
        verified=verified.record if verified else Verified(),
        renames={TableName.parse(name): stored.record for name, stored in renames.items()},
        moves={TableId(table): stored.record.node for table, stored in moves.items()},
        stragglers={
            TableId(table): StoredStraggler(stored.record, stored.mod_rev) for table, stored in stragglers.items()
        },
        requests={TableId(table): stored.record.verb for table, stored in requests.items()},
        request_revs={TableId(table): stored.mod_rev for table, stored in requests.items()},
        repairs={TableId(table): stored.record for table, stored in repairs.items()},
        skips={stored.record.position for stored in skips.values()},
        large=reader.large(layout.ddls(id), layout.schemas(id), layout.renames(id)),
        copied=reader.derived(CopyRecord, view, layout.copies(id), _copied).keys(),
        copies=reader.derived(CopyRecord, view, layout.copies(id), _copy),
        gone=partial(_gone, view.revision, frozenset(kv.create_rev for kv in view.group(layout.nodes).values())),
        chunks_of=partial(_chunks_of, view, layout, id),
        processors={node: stored.record for node, stored in nodes.items() if Role.PROCESSOR in stored.record.roles},
    )


def _gone(revision: int, living: AbstractSet[int], epoch: int) -> bool:
    return epoch <= revision and epoch not in living


def _record(_: str, stored: decoded.StoredRecord[DdlRecord]) -> tuple[Position, DdlRecord]:
    return stored.record.position, stored.record


def _base(table: str, stored: decoded.StoredRecord[TableSchema]) -> tuple[TableId, TableSchema]:
    return TableId(table), stored.record


def _copy(table: str, stored: decoded.StoredRecord[CopyRecord]) -> tuple[TableId, CopyRecord]:
    return TableId(table), stored.record


def _chunks_of(view: View, layout: Layout, id: ChangefeedId, table: TableId) -> list[CopyPart]:
    return [decode(CopyPart, kv) for _, kv in sorted(view.group(layout.copy_parts(id, table)).items())]


def _copied(table: str, stored: decoded.StoredRecord[CopyRecord]) -> tuple[TableId, CopyStage] | None:
    return (TableId(table), CopyStage.DONE) if stored.record.stage is CopyStage.DONE else None
