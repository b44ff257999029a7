"""`TableProgress`: where each table is and how far, as far as the owner can be sure. Pure.

What a node reports counts for a table only if the node had seen the assignment that says what the table is to it now:

    assignment of n1      at rev 10  {A, B}      at rev 20  {A, B, C from 7}
    report of n1          checkpoint 9 under rev 10: A and B are at 9. C is not covered: it is at its start, 7, and holds the
                          changefeed's checkpoint there.
                          checkpoint 12 under rev 20: A, B and C are at 12

So a report under an old assignment says nothing of a table given since, nor that a table was released which is leaving since. A
report counts only for the tables that its node's assignment names now: one that an expired node left behind is silent about a table as
soon as another node has it; until then it is the truth, for an expired node's writes are refused.

A `TableProgress` is derived from the one before, with work for what has changed: nothing but the nodes when no assignment has. An owner that takes
over begins with none: what is not covered is at the start that its assignment says, which is at or before its checkpoint.

That start may be long ago, and DDLs may have been done since: from there, a table's rows would be written once more to where it no longer
is. So a table is nowhere before the DDLs that its checkpoint allowed, nor before the changefeed's checkpoint (`Floor`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from changefeed.errors import InvariantError
from changefeed.position import Position
from changefeed.records import AssignedTable, Assignment, DdlRecord, DdlState, NodeId, PositionReport
from changefeed.table import TableId


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeState:
    """A node that lives, or one that is gone and has left an assignment behind."""

    assignment: Assignment = field(default_factory=Assignment)
    assignment_rev: int = 0
    report: PositionReport | None = None
    draining: bool = False
    gone_at: float | None = None
    """When this owner first knew that the node's lease is gone, on this owner's monotonic clock; None while it lives."""

    @property
    def reported_rev(self) -> int:
        return self.report.assignment_rev if self.report else 0


class Floor:
    """Where tables are at least, whatever was reported of them: what stands in etcd could not have come about otherwise."""

    def __init__(self, checkpoint: Position, records: Iterable[DdlRecord]) -> None:
        """`checkpoint` is the changefeed's."""
        self._checkpoint = checkpoint
        self._records = records

    def of(self, table: TableId) -> Position:
        return max(self._checkpoint, self._begun_at.get(table, self._checkpoint))

    @cached_property
    def _begun_at(self) -> dict[TableId, Position]:
        """A DDL begins when the checkpoints of its tables equal its position. A background one does not wait for that."""
        begun_at: dict[TableId, Position] = {}
        for record in sorted(self._records, key=lambda record: record.position):
            if record.state is not DdlState.PENDING and not record.background:
                begun_at.update(dict.fromkeys(record.scope.tables, record.position))
        return begun_at


@dataclass(frozen=True, slots=True)
class _Uncovered:
    """Where a table is at least, until a report under the assignment revision `rev` says more."""

    rev: int
    position: Position


@dataclass(frozen=True, slots=True, kw_only=True)
class TableProgress:
    """`tables` are those to be replicated, with where the first node of each begins; the same object as long as they are the same."""

    tables: Mapping[TableId, AssignedTable] = field(default_factory=dict)
    nodes: Mapping[NodeId, NodeState] = field(default_factory=dict)
    home: Mapping[TableId, NodeId] = field(default_factory=dict)
    unassigned: tuple[TableId, ...] = ()
    ended: tuple[TableId, ...] = ()
    """Assigned, but to be replicated no more."""
    _waiting_at: Position | None = None
    """The least start of the unassigned tables."""
    _ended_at: Mapping[NodeId, int] = field(default_factory=dict)
    _uncovered: Mapping[NodeId, Mapping[TableId, _Uncovered]] = field(default_factory=dict)

    def next(
        self, tables: Mapping[TableId, AssignedTable], nodes: Mapping[NodeId, NodeState], floor: Floor
    ) -> TableProgress:
        uncovered = {node: self._still_uncovered(node, state, floor) for node, state in nodes.items()}
        if tables is self.tables and _revisions(nodes) == _revisions(self.nodes):
            return replace(self, nodes=dict(nodes), _uncovered=uncovered)
        home = _homes(nodes)
        unassigned = tuple(sorted(tables.keys() - home.keys()))
        ended = tuple(sorted(home.keys() - tables.keys()))
        return TableProgress(
            tables=tables,
            nodes=dict(nodes),
            home=home,
            unassigned=unassigned,
            ended=ended,
            _waiting_at=min((tables[table].start for table in unassigned), default=None),
            _ended_at=Counter(home[table] for table in ended),
            _uncovered=uncovered,
        )

    def of(self, table: TableId) -> Position | None:
        """A table's checkpoint; None while the table is with no node."""
        node = self.home.get(table)
        if node is None:
            return None
        uncovered = self._uncovered[node].get(table)
        report = self.nodes[node].report
        if uncovered is not None or report is None:
            return uncovered.position if uncovered else self.nodes[node].assignment.tables[table].start
        return report.released.get(table, report.of(table))

    def released(self, table: TableId) -> bool:
        """Its node has been asked to give it up, and says that it has."""
        node = self.home[table]
        report = self.nodes[node].report
        return report is not None and table in report.released and table not in self._uncovered[node]

    @property
    def least(self) -> Position | None:
        """The least checkpoint of all tables, those with no node included; None without tables."""
        places = [place for node in self.nodes for place in self._least_of(node)]
        return min([*places, *([self._waiting_at] if self._waiting_at else [])], default=None)

    def _least_of(self, node: NodeId) -> Iterator[Position]:
        """Names only the tables that differ from the rest."""
        state, uncovered = self.nodes[node], self._uncovered[node]
        apart = self._ended_at.get(node, 0)
        for table, pending in uncovered.items():
            if table in self.tables:
                apart += 1
                yield pending.position
        if state.report is None:
            return
        differing = state.report.exceptions.keys() | state.report.released.keys()
        for table in differing - uncovered.keys():
            if self.home.get(table) == node and table in self.tables:
                apart += 1
                yield state.report.released.get(table, state.report.of(table))
        if len(state.assignment.tables) > apart:
            yield state.report.checkpoint

    def _still_uncovered(self, node: NodeId, state: NodeState, floor: Floor) -> Mapping[TableId, _Uncovered]:
        before = self.nodes.get(node, NodeState())
        uncovered = self._uncovered.get(node, {})
        if before.assignment_rev != state.assignment_rev:
            uncovered = self._reassigned(before.assignment, state, uncovered, floor)
        reported = state.reported_rev
        if not uncovered or all(pending.rev > reported for pending in uncovered.values()):
            return uncovered
        return {table: pending for table, pending in uncovered.items() if pending.rev > reported}

    def _reassigned(
        self, before: Assignment, state: NodeState, uncovered: Mapping[TableId, _Uncovered], floor: Floor
    ) -> Mapping[TableId, _Uncovered]:
        now = state.assignment
        result = {table: pending for table, pending in uncovered.items() if table in now.tables}
        for table, assigned in now.tables.items():
            if before.tables.get(table) != assigned:
                result[table] = _Uncovered(state.assignment_rev, max(assigned.start, floor.of(table)))
        for table in now.leaving - before.leaving:
            known = self.of(table) if table in before.tables else None
            result[table] = _Uncovered(state.assignment_rev, known or max(now.tables[table].start, floor.of(table)))
        return result


def _revisions(nodes: Mapping[NodeId, NodeState]) -> dict[NodeId, int]:
    return {node: state.assignment_rev for node, state in nodes.items()}


def _homes(nodes: Mapping[NodeId, NodeState]) -> dict[TableId, NodeId]:
    homes: dict[TableId, NodeId] = {}
    for node, state in nodes.items():
        for table in state.assignment.tables:
            other = homes.setdefault(table, node)
            if other != node:
                raise InvariantError(
                    f"table {table} is assigned to {other} and to {node}; a table is with one node at most"
                )
        _check_leaving(node, state.assignment)
    return homes


def _check_leaving(node: NodeId, assignment: Assignment) -> None:
    if strangers := assignment.leaving - assignment.tables.keys():
        raise InvariantError(f"{sorted(strangers)} are leaving node {node}, which does not have them")
