"""Whose fault it is when a node reports errors: its own only if another node does what it cannot."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime

from changefeed.cluster_time import ClusterTime
from changefeed.errors import DdlRefused, PipelineUnavailable, SluiceError, SourceMajorityStalled, SourceUnavailable
from changefeed.lifecycle import ErrorReport
from changefeed.position import Position
from changefeed.records.node import AssignedTable, Assignment, NodeHealth, NodeId, NodeRecord, PositionReport, Role
from changefeed.table import TableId
from owner.tables.node_standings import HOLD, PATIENCE, NodeStandings, without_nodes
from owner.tables.progress import NodeState

N1, N2 = NodeId("n1-a"), NodeId("n2-b")
A = TableId("a" * 32)
NOW = datetime(2026, 11, 21, tzinfo=UTC)
DOWN = SourceUnavailable("no answer")


def at(seconds: int) -> Position:
    return Position(ClusterTime(seconds, 1))


def node(
    place: int, error: SluiceError | None = None, *, tables: bool = True, run: int = 1, reaches: bool = False
) -> NodeState:
    report = PositionReport(
        run=run,
        barrier_rev=1,
        assignment_rev=1,
        checkpoint=at(place),
        error=ErrorReport.of(error, NOW) if error else None,
        reaches=reaches,
    )
    given = {A: AssignedTable(start=at(0))} if tables else {}
    return NodeState(assignment=Assignment(tables=given), report=report)


def record(id: NodeId, health: NodeHealth | None = None, *, draining: bool = False) -> NodeRecord:
    roles = frozenset({Role.PROCESSOR})
    return NodeRecord(
        id=id,
        name=id,
        admin_address="",
        roles=roles,
        version="1",
        started_at=NOW,
        health=health,
        draining=draining,
    )


BOTH = {N1: record(N1), N2: record(N2)}


class Watched:
    """Two nodes over time, second by second."""

    def __init__(self) -> None:
        self.standings = NodeStandings()
        self.now = 0
        self.nodes: dict[NodeId, NodeState] = {}

    def go(
        self,
        seconds: float,
        one: SluiceError | None,
        two: SluiceError | None,
        *,
        without: Iterable[NodeId] = (),
        reaching: Iterable[NodeId] = (),
    ) -> None:
        """A node without an error moves on each second."""
        for _ in range(round(seconds)):
            self.now += 1
            self.nodes = {
                id: node(0 if error else self.now, error, tables=id not in without, reaches=id in reaching)
                for id, error in ((N1, one), (N2, two))
            }
            self.standings = self.standings.next(self.nodes, 1, self.now)

    @property
    def failing(self) -> frozenset[NodeId]:
        return self.standings.failing(BOTH)


def test_a_node_that_fails_again_and_again_while_another_serves_is_to_have_no_tables() -> None:
    watched = Watched()
    watched.go(5, None, None)
    watched.go(PATIENCE.total_seconds(), DOWN, None)
    assert watched.failing == frozenset()
    watched.go(1, DOWN, None)
    assert watched.failing == {N1}


def test_what_all_nodes_report_is_nobodys_fault() -> None:
    watched = Watched()
    watched.go(5, None, None)
    watched.go(3, DOWN, None)
    watched.go(3 * PATIENCE.total_seconds(), DOWN, DOWN)
    assert watched.failing == frozenset()


def test_a_node_that_only_waits_serves_nobody() -> None:
    """It may just not have noticed yet that the source is down."""
    watched = Watched()
    watched.go(5, None, None)
    for _ in range(60):
        watched.now += 1
        watched.nodes = {N1: node(0, DOWN), N2: node(5)}
        watched.standings = watched.standings.next(watched.nodes, 1, watched.now)
    assert watched.failing == frozenset()


def test_a_node_without_tables_that_reaches_everything_serves() -> None:
    """Where one node has all the tables, nothing else would show that the fault is its own."""
    standings = NodeStandings()
    idle = node(0, tables=False)
    assert idle.report is not None
    well = replace(idle, report=replace(idle.report, reaches=True))
    for now in range(60):
        standings = standings.next({N1: node(0, DOWN), N2: idle if now < 30 else well}, 1, now)
        assert standings.failing(BOTH) == (frozenset() if now < 30 else {N1})
    drained = replace(well, draining=True)
    assert NodeStandings().next({N2: drained}, 1, 0).of[N2].reaches is False


def test_a_trouble_that_moves_with_the_tables_does_not_move_them_round() -> None:
    watched = Watched()
    watched.go(5, None, None)
    watched.go(PATIENCE.total_seconds() + 1, DOWN, None)
    assert watched.failing == {N1}
    watched.go(10, None, None, without=[N1])
    watched.go(3 * HOLD.total_seconds(), None, DOWN, reaching=[N2])
    assert watched.failing == frozenset()


def test_a_node_that_gets_tables_and_reaches_nothing_by_itself_fails_as_any() -> None:
    """A second node may be cut off soon after the first."""
    watched = Watched()
    watched.go(5, None, None)
    watched.go(PATIENCE.total_seconds() + 1, DOWN, None)
    watched.go(10, None, None, without=[N1])
    watched.go(2 * HOLD.total_seconds(), None, DOWN)
    assert watched.failing == {N2}


def test_an_error_that_comes_and_goes_is_over_once_none_was_seen_for_a_while() -> None:
    """A window that has nothing to write clears it in between, though nothing moves on."""
    watched = Watched()
    watched.go(5, None, None)
    for second in range(round(PATIENCE.total_seconds()) + 1):
        watched.now += 1
        watched.nodes = {N1: node(5, DOWN if second % 3 == 0 else None), N2: node(watched.now)}
        watched.standings = watched.standings.next(watched.nodes, 1, watched.now)
    assert watched.failing == {N1}
    again = Watched()
    again.go(5, None, None)
    again.go(1, DOWN, None)
    again.go(PATIENCE.total_seconds(), None, None)
    again.go(1, DOWN, None)
    assert again.failing == frozenset()


def test_a_stalled_majority_is_no_nodes_fault() -> None:
    watched = Watched()
    watched.go(60, SourceMajorityStalled("stands still"), None)
    assert watched.failing == frozenset()


def test_a_failure_of_an_earlier_run_says_nothing() -> None:
    standings = NodeStandings()
    for now in range(60):
        standings = standings.next({N1: node(0, DOWN, run=1), N2: node(now, run=2)}, 2, now)
    assert standings.failing(BOTH) == frozenset()


def test_a_node_that_is_well_again_gets_tables_after_a_hold_that_doubles() -> None:
    watched = Watched()
    watched.go(2, None, None)
    for hold in (HOLD, 2 * HOLD, 4 * HOLD):
        watched.go(PATIENCE.total_seconds() + 1, DOWN, None)
        assert watched.failing == {N1}
        watched.go(hold.total_seconds() - 1, None, None, without=[N1])
        assert watched.failing == {N1}
        watched.go(1, None, None, without=[N1])
        assert watched.failing == frozenset()


def test_a_node_that_does_not_get_well_gets_no_tables_again() -> None:
    watched = Watched()
    watched.go(2, None, None)
    watched.go(10 * HOLD.total_seconds(), DOWN, None)
    assert watched.failing == {N1}


def test_tables_are_never_taken_to_nowhere() -> None:
    watched = Watched()
    watched.go(60, DOWN, None)
    assert watched.failing == {N1}
    assert watched.standings.failing({N1: record(N1)}) == frozenset()
    assert watched.standings.failing({N1: record(N1), N2: record(N2, draining=True)}) == frozenset()
    assert watched.standings.failing({N1: record(N1), N2: record(N2, NodeHealth(ready=False))}) == frozenset()


def test_an_error_names_its_node_and_is_the_nodes_own_while_others_serve() -> None:
    watched = Watched()
    watched.go(5, DOWN, None)
    [error] = watched.standings.errors(watched.nodes, 1, watched.now)
    assert (error.message, error.node, error.keeps_running) == ("node n1-a: no answer", N1, True)
    watched.go(20, DOWN, DOWN)
    shared = watched.standings.errors(watched.nodes, 1, watched.now)
    assert [(error.message, error.node) for error in shared] == [
        ("node n1-a: no answer", None),
        ("node n2-b: no answer", None),
    ]
    assert not any(error.keeps_running for error in shared)


def test_a_spark_that_does_not_run_is_each_nodes_own_trouble() -> None:
    dead = PipelineUnavailable("no Java")
    watched = Watched()
    watched.go(60, dead, dead)
    assert all(error.keeps_running for error in watched.standings.errors(watched.nodes, 1, watched.now))


def test_the_error_of_a_node_without_tables_does_not_concern_the_changefeed() -> None:
    watched = Watched()
    watched.go(5, DOWN, None, without=[N1])
    assert watched.standings.errors(watched.nodes, 1, watched.now) == []


def test_a_permanent_error_is_the_changefeeds() -> None:
    standings = NodeStandings()
    nodes = {N1: node(0, DdlRefused("no")), N2: node(0)}
    for now in range(60):
        nodes[N2] = node(now)
        standings = standings.next(nodes, 1, now)
    assert standings.failing(BOTH) == frozenset()
    [error] = standings.errors(nodes, 1, 60)
    assert not error.retryable


def test_a_changefeed_without_a_node_that_can_run_it_says_why() -> None:
    failed = NodeHealth(ready=False, error=ErrorReport.of(PipelineUnavailable("no Java"), NOW))
    lame = record(N1, failed)
    assert without_nodes({N1: lame, N2: record(N2)}) is None
    assert without_nodes({N1: record(N1, NodeHealth(ready=False))}) is None, "it is just starting"
    found = without_nodes({N1: lame, N2: replace(record(N2), draining=True)})
    assert found is not None
    assert str(found) == "no node can run its tables, which stay where they are; n1-a: no Java"
