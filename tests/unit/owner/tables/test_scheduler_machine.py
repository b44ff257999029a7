"""Owners and nodes die, reports are late, tables come and go: a table is never on two nodes, and never lost."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from changefeed.cluster_time import ClusterTime
from changefeed.position import Position
from changefeed.records.node import AssignedTable, Assignment, NodeId, PositionReport
from changefeed.table import TableId
from owner.tables.progress import Floor, NodeState, TableProgress
from owner.tables.scheduler import Assign, ForgetMove, ForgetNode, SchedulerAction, assignments_after, decide

MARGIN = 10


def at(increment: int) -> Position:
    return Position(ClusterTime(1, increment))


@dataclass
class Node:
    """A node process: its own, possibly old, view of its assignment, and the tables that it runs."""

    assignment: Assignment = field(default_factory=Assignment)
    rev: int = 0
    running: dict[TableId, int] = field(default_factory=dict)
    released: dict[TableId, int] = field(default_factory=dict)
    gone_at: int | None = None

    def see(self, assignment: Assignment, rev: int) -> None:
        for table in [table for table in self.running if table not in assignment.tables]:
            del self.running[table]
        for table, assigned in assignment.tables.items():
            had = table in self.assignment.tables and table not in self.assignment.leaving
            if table not in assignment.leaving and not had:
                self.running[table] = assigned.start.ts.increment
        self.assignment, self.rev = assignment, rev
        begun = {table: place for table, place in self.released.items() if table in assignment.leaving}
        never = assignment.leaving - self.running.keys() - begun.keys()
        self.released = begun | {table: assignment.tables[table].start.ts.increment for table in never}

    def stop(self, table: TableId) -> None:
        self.released[table] = self.running.pop(table)

    def report(self) -> PositionReport:
        places = {**self.released, **self.running}
        rest = max(places.values(), default=0)
        return PositionReport(
            run=1,
            barrier_rev=1,
            assignment_rev=self.rev,
            checkpoint=at(rest),
            exceptions={table: at(place) for table, place in self.running.items() if place != rest},
            released={table: at(place) for table, place in self.released.items()},
        )


class World(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.rev = self.clock = self.born = 0
        self.wanted: dict[TableId, AssignedTable] = {}
        self.applied: dict[TableId, int] = {}
        self.nodes: dict[NodeId, Node] = {}
        self.assignments: dict[NodeId, tuple[Assignment, int]] = {}
        self.reports: dict[NodeId, PositionReport] = {}
        self.draining: set[NodeId] = set()
        self.unfit: set[NodeId] = set()
        self.moves: dict[TableId, NodeId] = {}
        self.elect()
        self.node_joins()
        self.node_joins()

    def elect(self) -> None:
        """A new owner knows only what etcd contains. It counts the time since a lease ended from its own first look."""
        self.progress = TableProgress()
        self.known: dict[TableId, Position] = {}
        self.known_gone: dict[NodeId, int] = {}

    @property
    def living(self) -> list[NodeId]:
        return sorted(id for id, node in self.nodes.items() if node.gone_at is None)

    # nodes and tables come and go

    @precondition(lambda self: len(self.living) < 4)
    @rule()
    def node_joins(self) -> None:
        self.born += 1
        self.nodes[NodeId(f"n{self.born}")] = Node()

    @precondition(lambda self: self.living)
    @rule(data=st.data())
    def node_loses_its_lease(self, data: st.DataObject) -> None:
        node = data.draw(st.sampled_from(self.living))
        self.nodes[node].gone_at = self.clock
        self.draining.discard(node)

    @precondition(lambda self: self.living)
    @rule(data=st.data())
    def node_drains_or_not(self, data: st.DataObject) -> None:
        self.draining ^= {data.draw(st.sampled_from(self.living))}

    @precondition(lambda self: self.living)
    @rule(data=st.data())
    def node_is_unfit_or_well_again(self, data: st.DataObject) -> None:
        self.unfit ^= {data.draw(st.sampled_from(self.living))}

    @rule(count=st.integers(1, 5))
    def tables_are_created(self, count: int) -> None:
        for _ in range(count):
            self.born += 1
            table = TableId(f"t{self.born:03}")
            self.wanted = {**self.wanted, table: AssignedTable(start=at(self.born))}
            self.applied[table] = self.born

    @precondition(lambda self: self.wanted)
    @rule(data=st.data())
    def table_is_dropped(self, data: st.DataObject) -> None:
        gone = data.draw(st.sampled_from(sorted(self.wanted)))
        self.wanted = {table: assigned for table, assigned in self.wanted.items() if table != gone}
        self.known.pop(gone, None)

    @precondition(lambda self: self.wanted and self.living)
    @rule(data=st.data())
    def table_move_is_asked_for(self, data: st.DataObject) -> None:
        self.moves[data.draw(st.sampled_from(sorted(self.wanted)))] = data.draw(st.sampled_from(self.living))

    # steps of nodes

    def _any(self, data: st.DataObject) -> NodeId:
        return data.draw(st.sampled_from(sorted(self.nodes)))

    @precondition(lambda self: self.living)
    @rule(data=st.data())
    def node_sees_its_assignment(self, data: st.DataObject) -> None:
        node = data.draw(st.sampled_from(self.living))
        self.nodes[node].see(*self.assignments.get(node, (Assignment(), 0)))

    @precondition(lambda self: self.nodes)
    @rule(data=st.data(), steps=st.integers(1, 9))
    def node_applies_rows_even_past_its_lease(self, data: st.DataObject, steps: int) -> None:
        node = self.nodes[self._any(data)]
        if node.gone_at is None or self.clock < node.gone_at + MARGIN:
            for table in sorted(node.running):
                self.apply(node, table, steps)

    def apply(self, node: Node, table: TableId, steps: int) -> None:
        assert node.running[table] <= self.applied[table], f"rows of {table} were skipped"
        node.running[table] += steps
        self.applied[table] = max(self.applied[table], node.running[table])

    @precondition(lambda self: self.nodes)
    @rule(data=st.data())
    def node_releases_what_it_was_asked_for(self, data: st.DataObject) -> None:
        node = self.nodes[self._any(data)]
        for table in sorted(node.assignment.leaving & node.running.keys()):
            if data.draw(st.booleans()):
                node.stop(table)

    @precondition(lambda self: self.living)
    @rule(data=st.data())
    def node_reports(self, data: st.DataObject) -> None:
        node = data.draw(st.sampled_from(self.living))
        self.reports[node] = self.nodes[node].report()

    # decisions of the owner

    @rule(seconds=st.integers(1, MARGIN))
    def time_passes(self, seconds: int) -> None:
        self.clock += seconds

    @rule()
    def owner_ticks(self) -> None:
        for action in self.decided():
            self.carry_out(action)

    @rule(prefix=st.integers(0, 4))
    def owner_dies_in_a_tick(self, prefix: int) -> None:
        for action in self.decided()[:prefix]:
            self.carry_out(action)
        self.elect()

    def decided(self) -> tuple[SchedulerAction, ...]:
        self.look()
        return decide(self.progress, self.moves, now=self.clock, margin=timedelta(seconds=MARGIN))

    def look(self) -> None:
        states = {}
        for id in sorted(self.living + [node for node in self.assignments if self.nodes[node].gone_at is not None]):
            if self.nodes[id].gone_at is not None:
                self.known_gone.setdefault(id, self.clock)
            assignment, rev = self.assignments.get(id, (Assignment(), 0))
            states[id] = NodeState(
                assignment=assignment,
                assignment_rev=rev,
                report=self.reports.get(id),
                draining=id in self.draining,
                unfit=id in self.unfit,
                gone_at=self.known_gone.get(id),
            )
        self.progress = self.progress.next(self.wanted, states, Floor(at(0), ()))

    def carry_out(self, action: SchedulerAction) -> None:
        """One transaction for each action, the hardest case."""
        self.rev += 1
        if isinstance(action, Assign):
            assert self.progress.nodes[action.node].takes_tables, f"{action.node} gets a table"
        if isinstance(action, ForgetMove):
            del self.moves[action.table]
        elif isinstance(action, ForgetNode):
            self.assignments.pop(action.node, None)
            self.reports.pop(action.node, None)
        before = {node: assignment for node, (assignment, _) in self.assignments.items()}
        for node, assignment in assignments_after(before, [action]).items():
            self.assignments[node] = (assignment, self.rev)

    @rule(data=st.data())
    def most_work_as_they_should(self, data: st.DataObject) -> None:
        """Single steps alone seldom reach a second hand-over of one table."""
        silent = data.draw(st.sets(st.sampled_from(self.living))) if self.living else set()
        self.owner_ticks()
        for node in self.living:
            self.work(node)
            if node not in silent:
                self.reports[node] = self.nodes[node].report()
        self.owner_ticks()

    def work(self, node: NodeId) -> None:
        process = self.nodes[node]
        process.see(*self.assignments.get(node, (Assignment(), 0)))
        for table in sorted(process.assignment.leaving & process.running.keys()):
            process.stop(table)
        for table in sorted(process.running):
            self.apply(process, table, 1)

    # invariants

    @invariant()
    def no_two_nodes_replicate_one_table(self) -> None:
        running: dict[TableId, NodeId] = {}
        for id, node in self.nodes.items():
            if node.gone_at is None or self.clock < node.gone_at + MARGIN:
                for table in node.running:
                    assert running.setdefault(table, id) == id, f"I4: {table} is with {running[table]} and {id}"

    @invariant()
    def no_checkpoint_passes_what_is_applied(self) -> None:
        self.look()
        for table in self.wanted:
            place = self.progress.of(table)
            if place is not None:
                assert place <= at(self.applied[table]), f"{table} counts as {place}, applied {self.applied[table]}"
                assert place >= self.known.get(table, place), f"{table} went back to {place}"
                self.known[table] = place

    @invariant()
    def the_least_is_the_least(self) -> None:
        places = [self.progress.of(table) or self.wanted[table].start for table in self.wanted]
        assert self.progress.least() == min(places, default=None)

    def teardown(self) -> None:
        """I7: if one live node is left undisturbed, every table is replicated, and the owner has no more actions. Nodes stay unfit."""
        if not hasattr(self, "nodes"):
            return
        self.draining.clear()
        self.node_joins()
        quiet = 0
        while quiet < 3:
            self.clock += MARGIN
            assert self.clock < 100_000, "the owner never rests"
            actions = self.decided()
            for action in actions:
                self.carry_out(action)
            for node in self.living:
                self.work(node)
                self.reports[node] = self.nodes[node].report()
            self.no_two_nodes_replicate_one_table()
            self.no_checkpoint_passes_what_is_applied()
            quiet = 0 if actions else quiet + 1
        running = [table for node in self.living for table in self.nodes[node].running]
        assert sorted(running) == sorted(self.wanted), "a table is lost"
        assert not any(self.nodes[node].running for node in self.unfit.intersection(self.living)), (
            "an unfit node has tables"
        )
        loads = [len(self.nodes[node].running) for node in self.living if node not in self.unfit]
        assert max(loads) - min(loads) <= max(1, sum(loads) // len(loads) // 5)
        assert not self.moves
        assert set(self.assignments) <= set(self.living)


World.TestCase.settings = settings(max_examples=100, stateful_step_count=50)
TestWorld = World.TestCase
