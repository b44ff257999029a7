"""The scheduler's policies, and accidents known from other systems, each with its own test."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from changefeed.cluster_time import ClusterTime
from changefeed.errors import InvariantError
from changefeed.event import DdlEvent, DdlType
from changefeed.position import Position
from changefeed.records.ddl import DdlRecord, DdlState, Scope
from changefeed.records.node import AssignedTable, Assignment, NodeId, PositionReport
from changefeed.table import TableId, TableName
from owner.tables.progress import Floor, NodeState, TableProgress
from owner.tables.scheduler import (
    MOST_REBALANCING,
    Assign,
    ForgetMove,
    ForgetNode,
    Remove,
    SchedulerAction,
    Withdraw,
    assignments_after,
    decide,
)
from tests.work import lines_run

A, B, C, D = (TableId(name * 32) for name in "abcd")
N1, N2, N3 = NodeId("n1"), NodeId("n2"), NodeId("n3")
MARGIN = timedelta(seconds=10)


def at(increment: int) -> Position:
    return Position(ClusterTime(100, increment))


NOWHERE = Floor(at(0), ())


def ddl(increment: int, state: DdlState, *tables: TableId, background: bool = False) -> DdlRecord:
    event = DdlEvent(type=DdlType.CREATE_INDEXES, db="shop", table=TableName("shop", "a"), id=A, position=at(increment))
    scope = Scope(tables=frozenset(tables))
    return DdlRecord(event=event, scope=scope, state=state, background=background, seen_at=datetime.now(UTC))


def tables(*ids: TableId, start: int = 1) -> dict[TableId, AssignedTable]:
    return {table: AssignedTable(start=at(start)) for table in ids}


def numbered(count: int) -> dict[TableId, AssignedTable]:
    return tables(*(TableId(f"{n:032x}") for n in range(count)))


def node(
    *ids: TableId,
    rev: int = 1,
    start: int = 1,
    leaving: Iterable[TableId] = (),
    report: PositionReport | None = None,
    draining: bool = False,
    gone_at: float | None = None,
) -> NodeState:
    return NodeState(
        assignment=Assignment(tables=tables(*ids, start=start), leaving=frozenset(leaving)),
        assignment_rev=rev,
        report=report,
        draining=draining,
        gone_at=gone_at,
    )


def report(
    rev: int,
    checkpoint: int,
    exceptions: Mapping[TableId, int] | None = None,
    released: Mapping[TableId, int] | None = None,
) -> PositionReport:
    return PositionReport(
        run=1,
        barrier_rev=1,
        assignment_rev=rev,
        checkpoint=at(checkpoint),
        exceptions={table: at(place) for table, place in (exceptions or {}).items()},
        released={table: at(place) for table, place in (released or {}).items()},
    )


def seen(wanted: Mapping[TableId, AssignedTable], floor: Floor | None = None, **nodes: NodeState) -> TableProgress:
    return TableProgress().next(wanted, {NodeId(name): state for name, state in nodes.items()}, floor or NOWHERE)


def decided(
    progress: TableProgress, moves: Mapping[TableId, NodeId] | None = None, now: float = 0.0
) -> tuple[SchedulerAction, ...]:
    return decide(progress, moves or {}, now=now, margin=MARGIN)


class Cluster:
    """Nodes that carry out each assignment at once."""

    def __init__(self, wanted: Mapping[TableId, AssignedTable], **nodes: NodeState) -> None:
        self.wanted = wanted
        self.nodes = {NodeId(name): state for name, state in nodes.items()}
        self.progress = TableProgress()
        self.rev = 100

    def tick(self) -> tuple[SchedulerAction, ...]:
        self.progress = self.progress.next(self.wanted, self.nodes, NOWHERE)
        actions = decided(self.progress)
        self.rev += 1
        assignments = {name: state.assignment for name, state in self.nodes.items()}
        for name, assignment in assignments_after(assignments, actions).items():
            released = {table: assignment.tables[table].start for table in assignment.leaving}
            told = PositionReport(run=1, barrier_rev=1, assignment_rev=self.rev, checkpoint=at(50), released=released)
            state = replace(self.nodes[name], assignment=assignment, assignment_rev=self.rev, report=told)
            self.nodes[name] = state
        return actions

    def settle(self) -> list[tuple[SchedulerAction, ...]]:
        """Ticks until no action remains; returns the actions of each tick."""
        ticks: list[tuple[SchedulerAction, ...]] = []
        while actions := self.tick():
            ticks.append(actions)
            assert len(ticks) < 200, "the scheduler never rests"
        return ticks

    def loads(self) -> list[int]:
        return [len(state.assignment.tables) for _, state in sorted(self.nodes.items())]


# the owner's knowledge


def test_a_table_with_no_node_has_no_checkpoint_and_holds_that_of_the_changefeed_at_its_start() -> None:
    progress = seen(tables(A, start=5), n1=node())
    assert progress.of(A) is None
    assert progress.least() == at(5)


def test_without_tables_there_is_no_least_checkpoint() -> None:
    assert seen({}, n1=node(report=report(1, 9))).least() is None


def test_checkpoint_does_not_pass_a_table_that_is_just_being_added() -> None:
    before = seen(tables(A), n1=node(A, rev=10, report=report(10, 9)))
    assert before.least() == at(9)
    wanted = {**tables(A), **tables(B, start=7)}
    given = Assignment(tables=wanted)
    state = NodeState(assignment=given, assignment_rev=20, report=report(10, 12))
    added = before.next(wanted, {N1: state}, NOWHERE)
    assert (added.of(A), added.of(B), added.least()) == (at(12), at(7), at(7))
    reported = added.next(wanted, {N1: replace(state, report=report(20, 12))}, NOWHERE)
    assert (reported.of(B), reported.least()) == (at(12), at(12))


def test_stale_position_reports_of_an_expired_node_are_not_counted() -> None:
    expired = node(A, rev=10, report=report(10, 9, {A: 5}), gone_at=0.0)
    progress = seen(tables(A), n1=expired, n2=node(rev=3, report=report(3, 20)))
    (taken, *_) = decided(progress, now=10.0)
    assert taken == Assign(A, N2, AssignedTable(start=at(5)), taken_from=N1)
    after = progress.next(
        tables(A),
        {
            N1: replace(expired, assignment=Assignment(), assignment_rev=30, report=report(99, 40)),
            N2: node(A, rev=30, start=5, report=report(3, 20)),
        },
        NOWHERE,
    )
    assert (after.of(A), after.least()) == (at(5), at(5))


def test_reports_go_on_counting_for_a_nodes_other_tables_while_its_assignment_changes() -> None:
    progress = seen(tables(A), n1=node(A, rev=10, report=report(10, 9)))
    wanted = tables(A)
    for rev, table in ((11, B), (12, C), (13, D)):
        wanted = {**wanted, **tables(table, start=9)}
        state = NodeState(assignment=Assignment(tables=wanted), assignment_rev=rev, report=report(rev - 1, rev))
        progress = progress.next(wanted, {N1: state}, NOWHERE)
        assert progress.of(A) == at(rev)
    assert progress.of(B) == at(13)
    assert progress.of(D) == at(9)


def test_an_owner_that_takes_over_counts_an_uncovered_table_from_its_start() -> None:
    assert seen(tables(A, B), n1=node(A, B, rev=20, start=3, report=report(10, 9))).least() == at(3)


def test_an_owner_that_takes_over_counts_an_uncovered_table_from_the_last_ddl_that_its_checkpoint_allowed() -> None:
    """From an earlier position, rows would be written again to a name that the table no longer has."""
    records = [
        ddl(4, DdlState.DONE, A),
        ddl(6, DdlState.EXECUTING, A),
        ddl(8, DdlState.PENDING, A),
        ddl(4, DdlState.DONE, B, background=True),
    ]
    floor = Floor(at(2), records)
    gone = node(A, B, C, rev=20, start=1, report=report(10, 9), gone_at=0.0)
    progress = seen(tables(A, B, C), floor, n1=gone, n2=node())
    assert [progress.of(table) for table in (A, B, C)] == [at(6), at(2), at(2)]
    starts = {
        action.table: action.assigned.start for action in decided(progress, now=10.0) if isinstance(action, Assign)
    }
    assert starts == {A: at(6), B: at(2), C: at(2)}


def test_tables_that_differ_are_counted_for_what_they_are() -> None:
    progress = seen(tables(A, B, C), n1=node(A, B, C, rev=1, report=report(1, 9, {B: 4, D: 2})))
    assert [progress.of(table) for table in (A, B, C)] == [at(9), at(4), at(9)]
    assert progress.least() == at(4), "D is not this node's any more"
    both_apart = seen(tables(A, B), n1=node(A, B, rev=1, report=report(1, 3, {A: 8, B: 7})))
    assert both_apart.least() == at(7), "no table is left that stands with the rest"


def test_a_table_that_has_ended_holds_nothing_while_it_is_still_assigned() -> None:
    progress = seen(tables(A), n1=node(A, B, rev=1, report=report(1, 9, {B: 4})))
    assert progress.least() == at(9)
    assert progress.ended == {B}


def test_a_table_with_two_nodes_is_refused() -> None:
    with pytest.raises(InvariantError, match="expected one node at most"):
        seen(tables(A), n1=node(A), n2=node(A))


# the distribution of tables over nodes


def test_new_tables_are_spread_evenly_and_the_same_way_by_every_owner() -> None:
    cluster = Cluster(numbered(10), n1=node(), n2=node(), n3=node())
    actions = cluster.tick()
    assert cluster.loads() == [4, 3, 3]
    assert actions == Cluster(numbered(10), n1=node(), n2=node(), n3=node()).tick()
    assert cluster.settle() == []


def test_a_new_table_begins_at_its_start_with_its_copy() -> None:
    wanted = {A: AssignedTable(start=at(7), copy=True)}
    assert decided(seen(wanted, n1=node())) == (Assign(A, N1, wanted[A]),)


def test_a_table_that_has_ended_is_removed_even_while_it_is_leaving() -> None:
    assert decided(seen({}, n1=node(A, B, leaving=[A]))) == (Remove(A, N1), Remove(B, N1))


def test_without_nodes_nothing_is_decided() -> None:
    assert decided(seen(tables(A))) == ()
    assert decided(seen(tables(A), n1=node(draining=True))) == ()


def test_a_table_is_given_on_only_when_its_node_has_released_it_under_this_assignment() -> None:
    wanted = tables(A)
    moves = {A: N2}
    here = node(A, rev=10, report=report(10, 9))
    progress = seen(wanted, n1=here, n2=node(rev=2, report=report(2, 9)))
    assert decided(progress, moves) == (Withdraw(A, N1),)
    leaving = replace(here, assignment=Assignment(tables=wanted, leaving=frozenset({A})), assignment_rev=11)
    for stale in (report(10, 9), report(10, 9, released={A: 9}), report(11, 9)):
        waiting = progress.next(wanted, {N1: replace(leaving, report=stale), N2: node(rev=2)}, NOWHERE)
        assert decided(waiting, moves) == ()
    told = replace(leaving, report=report(11, 30, released={A: 12}))
    released = progress.next(wanted, {N1: told, N2: node(rev=2)}, NOWHERE)
    assert decided(released, moves) == (Assign(A, N2, AssignedTable(start=at(12)), taken_from=N1),)


def test_an_owner_that_takes_over_in_the_middle_of_a_hand_over_goes_on_with_it() -> None:
    leaving = node(A, rev=11, leaving=[A], report=report(11, 30, released={A: 12}))
    assert decided(seen(tables(A), n1=leaving, n2=node())) == (
        Assign(A, N1, AssignedTable(start=at(12)), taken_from=N1),
    ), "nobody asked for another node, and ties go by id"
    assert decided(seen(tables(A), n1=leaving, n2=node()), {A: N2}) == (
        Assign(A, N2, AssignedTable(start=at(12)), taken_from=N1),
    )


def test_tables_of_a_lost_node_wait_for_the_margin_and_begin_at_what_it_last_reported() -> None:
    lost = node(A, B, rev=10, report=report(10, 9, {B: 4}), gone_at=50.0)
    progress = seen(tables(A, B), n1=lost, n2=node())
    assert decided(progress, now=59.9) == ()
    assert decided(progress, now=60.0) == (
        Assign(A, N2, AssignedTable(start=at(9)), taken_from=N1),
        Assign(B, N2, AssignedTable(start=at(4)), taken_from=N1),
    )


def test_tables_of_a_lost_node_that_never_reported_begin_at_their_start() -> None:
    progress = seen(tables(A), n1=node(A, rev=10, start=6, gone_at=0.0), n2=node())
    assert decided(progress, now=10.0) == (Assign(A, N2, AssignedTable(start=at(6)), taken_from=N1),)


def test_what_a_lost_node_left_behind_is_deleted_once_nothing_depends_on_it() -> None:
    assert decided(seen(tables(A), n1=node(gone_at=0.0), n2=node(A))) == (ForgetNode(N1),)


def test_a_drained_node_ends_empty() -> None:
    spread = Cluster(numbered(9), n1=node(), n2=node(), n3=node())
    spread.settle()
    spread.nodes[N2] = replace(spread.nodes[N2], draining=True)
    ticks = spread.settle()
    assert spread.loads() == [5, 0, 4]
    assert len(ticks) == 2, "all give up, all are given"


def test_the_last_node_keeps_its_tables_when_it_is_drained() -> None:
    cluster = Cluster(numbered(4), n1=node())
    cluster.settle()
    cluster.nodes[N1] = replace(cluster.nodes[N1], draining=True)
    assert cluster.settle() == []
    cluster.nodes[N2] = node()
    cluster.settle()
    assert cluster.loads() == [0, 4]


def test_rebalancing_is_gentle() -> None:
    cluster = Cluster(numbered(200), n1=node(), n2=node())
    cluster.settle()
    cluster.nodes[N3] = node()
    ticks = cluster.settle()
    assert cluster.loads() == [67, 67, 66]
    withdrawn = [action for tick in ticks for action in tick if isinstance(action, Withdraw)]
    assert len(withdrawn) == 66, "no table moves that need not"
    assert max(Counter(type(action) for action in tick)[Withdraw] for tick in ticks) <= MOST_REBALANCING


def test_small_differences_move_nothing() -> None:
    wanted = list(numbered(100))
    uneven = [node(*wanted[:55], report=report(1, 9)), node(*wanted[55:], report=report(1, 9))]
    assert decided(seen(numbered(100), n1=uneven[0], n2=uneven[1])) == ()


def test_tables_in_copy_move_last() -> None:
    wanted = {table: AssignedTable(start=at(1), copy=table < C) for table in (A, B, C, D)}
    crowded = NodeState(assignment=Assignment(tables=wanted), assignment_rev=1, report=report(1, 9))
    assert decided(seen(wanted, n1=crowded, n2=node())) == (Withdraw(C, N1), Withdraw(D, N1))


@pytest.mark.parametrize(
    ("moves", "expected"),
    [
        ({A: N1}, ForgetMove(A)),
        ({D: N2}, ForgetMove(D)),
        ({A: NodeId("unknown")}, ForgetMove(A)),
    ],
    ids=["made", "of a table that has ended", "to a node that is gone"],
)
def test_a_request_to_move_is_forgotten_when_it_is_made_or_cannot_be(
    moves: Mapping[TableId, NodeId], expected: ForgetMove
) -> None:
    progress = seen(tables(A, B), n1=node(A, report=report(1, 9)), n2=node(B, report=report(1, 9)))
    assert decided(progress, moves) == (expected,)


def test_spreading_many_tables_is_no_more_work_for_each_of_them_and_none_afterwards() -> None:
    few, many = (_unspread(count) for count in (1_000, 4_000))
    assert lines_run(many.settle) < 6 * lines_run(few.settle)
    assert (set(few.loads()), set(many.loads())) == ({50}, {200})
    assert lines_run(partial(_tick, many)) == lines_run(partial(_tick, few)), "a tick looks at nodes, not at tables"


def _unspread(count: int) -> Cluster:
    return Cluster(numbered(count), **{f"n{n:02}": node() for n in range(20)})


def _tick(cluster: Cluster) -> None:
    progress = cluster.progress.next(cluster.wanted, dict(cluster.nodes), NOWHERE)
    assert progress.least() == at(50)
    assert decided(progress) == ()


def test_more_tables_than_one_decision_holds_are_assigned_by_the_next_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("owner.tables.scheduler.MOST_ASSIGNED", 2)
    gone = node(B, C, D, rev=1, gone_at=0.0)
    actions = decided(seen(tables(A, B, C, D), n1=node(), n2=gone), now=1_000.0)
    assert [action.table for action in actions if isinstance(action, Assign)] == [A, B]


def test_an_unfit_node_gets_no_tables_and_gives_up_those_that_it_has() -> None:
    cluster = Cluster(numbered(6), n1=node(), n2=replace(node(), unfit=True))
    cluster.settle()
    assert cluster.loads() == [6, 0]
    cluster.nodes[N2] = replace(cluster.nodes[N2], unfit=False)
    cluster.settle()
    assert cluster.loads() == [3, 3]
    cluster.nodes[N1] = replace(cluster.nodes[N1], unfit=True)
    cluster.settle()
    assert cluster.loads() == [0, 6]


def test_tables_stay_where_they_are_while_every_node_is_unfit() -> None:
    cluster = Cluster(numbered(4), n1=node(), n2=node())
    cluster.settle()
    cluster.nodes = {name: replace(state, unfit=True) for name, state in cluster.nodes.items()}
    assert cluster.settle() == []
    assert cluster.loads() == [2, 2]


def test_a_move_to_an_unfit_node_is_forgotten() -> None:
    progress = seen(tables(A), n1=node(A), n2=replace(node(), unfit=True))
    assert decided(progress, {A: N2}) == (ForgetMove(A),)
