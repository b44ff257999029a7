"""`TableProgress`: which node has each table, and how far the table is, as far as the owner can be sure. Pure.

A node's report counts for a table only if the node had seen the assignment with the table's current entry:

    assignment of n1      at rev 10  {A, B}      at rev 20  {A, B, C from 7}
    report of n1          checkpoint 9 under rev 10: A and B are at 9. C is not covered: it is at its start, 7, and holds the
                          changefeed's checkpoint there.
                          checkpoint 12 under rev 20: A, B and C are at 12

So a report under an old assignment does not count for a table that was assigned later, and not as a release of a table that was marked as
leaving later. A report counts only for the tables that its node's assignment currently names: the report of an expired node counts for a
table until another node has it. Until then it is true, since an expired node's writes are refused.

A `TableProgress` is derived from the previous one, at a cost that depends on the changes: without a changed assignment, only the nodes are
visited; with one, its tables. A new owner starts with an empty one: a table that is not covered is at the start in its assignment, which is at or before its
checkpoint.

That start may be old, and DDLs may have been done since: from there, the table's rows would be written again under a name that the table
no longer has. So a table is never before the DDLs that its checkpoint allowed, nor before the changefeed's checkpoint (`Floor`). Only the
stragglers may be behind that: each has a record of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType

from changefeed.errors import InvariantError
from changefeed.lifecycle import ErrorReport
from changefeed.position import Position
from changefeed.records.ddl import DdlRecord, DdlState
from changefeed.records.node import AssignedTable, Assignment, NodeId, PositionReport
from changefeed.records.status import Straggler
from changefeed.shards import Shards, differing
from changefeed.table import TableId

NO_STRAGGLERS: Mapping[TableId, Straggler] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeState:
    """A living node, or a gone node that has left something behind."""

    assignment: Assignment = field(default_factory=Assignment)
    assignment_rev: int = 0
    report: PositionReport | None = None
    draining: bool = False
    unfit: bool = False
    """It cannot run jobs, or fails this changefeed while others do not."""
    gone_at: float | None = None
    """When this owner first saw that the node's lease is gone, on this owner's monotonic clock. None while the node lives."""

    @property
    def takes_tables(self) -> bool:
        return self.gone_at is None and not self.draining and not self.unfit

    @property
    def reported_rev(self) -> int:
        return self.report.assignment_rev if self.report else 0


_NOBODY = NodeState()


class Floor:
    """The least possible position of each table, whatever was reported: the records in etcd imply it."""

    def __init__(
        self,
        checkpoint: Position,
        records: Iterable[DdlRecord],
        stragglers: Mapping[TableId, Straggler] = NO_STRAGGLERS,
    ) -> None:
        """`checkpoint` is the changefeed's."""
        self._checkpoint = checkpoint
        self._records = records
        self._stragglers = stragglers

    def of(self, table: TableId) -> Position:
        straggler = self._stragglers.get(table)
        least = self._checkpoint if straggler is None else min(straggler.at, self._checkpoint)
        return max(least, self._begun_at.get(table, least))

    @cached_property
    def _begun_at(self) -> dict[TableId, Position]:
        """A DDL starts when the checkpoints of its tables equal its position. A background DDL does not wait for that."""
        begun_at: dict[TableId, Position] = {}
        for record in sorted(self._records, key=lambda record: record.position.order):
            if record.state is not DdlState.PENDING and not record.background:
                begun_at.update(dict.fromkeys(record.scope.tables, record.position))
        return begun_at


@dataclass(frozen=True, slots=True)
class _Uncovered:
    """The least position of a table, until a report under the assignment revision `rev` says more."""

    rev: int
    position: Position


@dataclass(frozen=True, slots=True, kw_only=True)
class TableProgress:
    """`tables`: the tables to replicate, each with the start of its first node. The same object as long as the tables are the same."""

    tables: Mapping[TableId, AssignedTable] = field(default_factory=dict)
    nodes: Mapping[NodeId, NodeState] = field(default_factory=dict)
    home: Shards[NodeId] = field(default_factory=Shards)
    unassigned: frozenset[TableId] = frozenset()
    ended: frozenset[TableId] = frozenset()
    """Assigned, but no longer to be replicated."""
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
        touched = differing(self.tables, tables)
        home = self._homes(nodes, touched)
        unassigned = _updated(self.unassigned, touched, lambda table: table in tables and table not in home)
        ended = _updated(self.ended, touched, lambda table: table in home and table not in tables)
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
        """A table's checkpoint. None while no node has the table."""
        node = self.home.get(table)
        if node is None:
            return None
        uncovered = self._uncovered[node].get(table)
        report = self.nodes[node].report
        if uncovered is not None or report is None:
            return uncovered.position if uncovered else self.nodes[node].assignment.tables[table].start
        return report.released.get(table, report.of(table))

    def elsewhere(self, place: Position, most: int) -> AbstractSet[TableId] | None:
        """The tables that are not known to be at the place. None: more than so many. Visits those that are named."""
        found = set(self.unassigned)
        for node, state in self.nodes.items():
            report = state.report
            named = set(self._uncovered[node])
            if report is not None:
                named |= report.exceptions.keys() | report.released.keys()
            if report is None or report.checkpoint != place:
                if len(state.assignment.tables) > most + len(named):
                    return None
                named |= state.assignment.tables.keys()
            found |= {table for table in named if self.home.get(table) == node and self.of(table) != place}
            if len(found) > most + len(self.ended):
                return None
        return found & self.tables.keys()

    def released(self, table: TableId) -> bool:
        """Whether the table's node was asked to give it up, and reports that it has."""
        node = self.home[table]
        report = self.nodes[node].report
        return report is not None and table in report.released and table not in self._uncovered[node]

    def obeys(self, table: TableId, stop_rev: int) -> bool:
        """Whether nothing of the table is being written, since its node obeys the stop of that revision, or no node has it."""
        node = self.home.get(table)
        if node is None:
            return True
        report = self.nodes[node].report
        covered = report is not None and table not in self._uncovered[node]
        return covered and report is not None and report.stops.get(table, 0) >= stop_rev

    def failed(self, run: int) -> Iterator[tuple[TableId, NodeId, ErrorReport]]:
        """The tables that cannot go on in this run, as the nodes that have them say."""
        return self._told(run, lambda report: report.failed)

    def retried(self, run: int) -> Iterator[tuple[TableId, NodeId, ErrorReport]]:
        """The tables that fail again and again while others of their nodes go on."""
        return self._told(run, lambda report: report.retried)

    def _told(
        self, run: int, errors: Callable[[PositionReport], Mapping[TableId, ErrorReport]]
    ) -> Iterator[tuple[TableId, NodeId, ErrorReport]]:
        for node, state in self.nodes.items():
            if state.report is not None and state.report.run == run:
                for table, error in errors(state.report).items():
                    if self.home.get(table) == node and table in self.tables and table not in self._uncovered[node]:
                        yield table, node, error

    def _homes(self, nodes: Mapping[NodeId, NodeState], touched: set[TableId]) -> Shards[NodeId]:
        """Adds the tables whose home may have changed to `touched`."""
        moved = dict[TableId, NodeId]()
        left = set[TableId]()
        for node in sorted(self.nodes.keys() | nodes.keys()):
            before, now = (state.assignment for state in (self.nodes.get(node, _NOBODY), nodes.get(node, _NOBODY)))
            changed = differing(before.tables, now.tables)
            touched |= changed
            left |= {table for table in changed if table not in now.tables and self.home.get(table) == node}
            for table in changed & now.tables.keys():
                if (other := moved.setdefault(table, node)) != node:
                    raise _two_homes(table, other, node)
            _check_leaving(node, now)
        for table, node in moved.items():
            other = self.home.get(table, node)
            if other != node and table not in left:
                raise _two_homes(table, other, node)
        return self.home.but(moved, left - moved.keys())

    def least(self, but: AbstractSet[TableId] = frozenset()) -> Position | None:
        """The least checkpoint of all tables, including those without a node, except some. None if no tables are left."""
        waiting = self._waiting_at
        if but and not but.isdisjoint(self.unassigned):
            waiting = min((self.tables[table].start for table in self.unassigned if table not in but), default=None)
        apart: dict[NodeId, set[TableId]] = {}
        for table in but:
            if table in self.tables and (home := self.home.get(table)) is not None:
                apart.setdefault(home, set()).add(table)
        places = [place for node in self.nodes for place in self._least_of(node, apart.get(node, frozenset()))]
        return min([*places, *([waiting] if waiting else [])], default=None)

    def _least_of(self, node: NodeId, but: AbstractSet[TableId]) -> Iterator[Position]:
        """Visits only the tables that differ from the rest. `but` are tables of the node."""
        state, uncovered = self.nodes[node], self._uncovered[node]
        apart = self._ended_at.get(node, 0) + len(but)
        for table, pending in uncovered.items():
            if table in self.tables and table not in but:
                apart += 1
                yield pending.position
        if state.report is None:
            return
        differing = state.report.exceptions.keys() | state.report.released.keys()
        for table in differing - uncovered.keys() - but:
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
        for table in differing(before.tables, now.tables):
            if (assigned := now.tables.get(table)) is not None:
                result[table] = _Uncovered(state.assignment_rev, max(assigned.start, floor.of(table)))
        for table in sorted(now.leaving - before.leaving):
            known = self.of(table) if table in before.tables else None
            result[table] = _Uncovered(state.assignment_rev, known or max(now.tables[table].start, floor.of(table)))
        return result


def _revisions(nodes: Mapping[NodeId, NodeState]) -> dict[NodeId, int]:
    return {node: state.assignment_rev for node, state in nodes.items()}


def _updated(
    before: frozenset[TableId], touched: AbstractSet[TableId], holds: Callable[[TableId], bool]
) -> frozenset[TableId]:
    return (before - touched) | {table for table in touched if holds(table)}


def _two_homes(table: TableId, one: NodeId, other: NodeId) -> InvariantError:
    one, other = sorted((one, other))
    return InvariantError(f"table {table}: expected one node at most, found it assigned to {one} and to {other}")


def _check_leaving(node: NodeId, assignment: Assignment) -> None:
    if unassigned := sorted(table for table in assignment.leaving if table not in assignment.tables):
        raise InvariantError(f"tables {unassigned} are leaving node {node}, which does not have them")
