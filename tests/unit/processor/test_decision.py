"""A node's decisions for one changefeed, tick by tick."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from changefeed.cluster_time import ClusterTime
from changefeed.errors import (
    EventTooLarge,
    FencedError,
    HistoryLost,
    InvariantError,
    PermanentError,
    RowRejected,
    SinkMajorityStalled,
    SinkUnavailable,
    SluiceError,
)
from changefeed.event import RowType
from changefeed.lifecycle import ErrorReport
from changefeed.position import Position
from changefeed.records import AssignedTable, Assignment, Barrier, PositionReport
from changefeed.row_tally import RowTally
from changefeed.table import TableId
from processor import decision
from processor.decision import Following, Orders
from processor.lanes.lane_plan import LaneLimits, Paces
from processor.lanes.lanes import LaneJob, Lanes
from processor.lanes.sink_share import STILL_EVERY, STILL_SECONDS
from processor.lanes.windows import Pace, WindowLimits
from processor.task.job import JobOutcome

A, B, C = (TableId(letter) for letter in "abc")
LIMITS, WINDOWS = LaneLimits(), WindowLimits()


def at(seconds: int) -> Position:
    return Position(ClusterTime(seconds, 0))


def assignment(leaving: str = "", **starts: int) -> Assignment:
    tables = {TableId(name): AssignedTable(start=at(start)) for name, start in starts.items()}
    return Assignment(tables=tables, leaving=frozenset(TableId(name) for name in leaving))


def orders(barrier: int, given: Assignment, *, run: int = 1, running: bool = True, rev: int = 10) -> Orders:
    return Orders(
        life=1,
        running=running,
        run=run,
        barrier=Barrier(epoch=1, position=at(barrier)),
        barrier_rev=barrier,
        assignment=given,
        assignment_rev=rev,
    )


def reported(following: Following, given: Orders, copying: frozenset[TableId] = frozenset()) -> PositionReport:
    return decision.report(following, given, copying=copying, now=2000.0)


class Node:
    def __init__(self) -> None:
        self.following = Following(lanes=Lanes.empty(at(100)))
        self.now = 1000.0

    def tick(self, given: Orders, *, copying: dict[TableId, Position] | None = None) -> list[LaneJob]:
        self.following = decision.follow_orders(self.following, given)
        jobs = decision.begin(self.following, given, LIMITS, now=self.now, copying=copying or {})
        for job in jobs:
            self.following = decision.begun(self.following, job, now=self.now)
        self.following.lanes.check()
        return jobs

    def succeed(self, job: LaneJob, took: float = 1.0, waits: int = 0, waited: float = 0.0, **writing: float) -> None:
        outcome = JobOutcome(
            waits=waits,
            waited=waited,
            tally=RowTally(applied=Counter({RowType.INSERT: 1}), bytes=10),
            took=timedelta(seconds=took),
            writing={TableId(table): seconds for table, seconds in writing.items()},
        )
        self.following = decision.succeeded(
            self.following, job.number, outcome, WINDOWS, now=self.now, slow_seconds=LIMITS.slow_seconds
        )

    def fail(self, job: LaneJob, error: SluiceError) -> None:
        report = ErrorReport.of(error, datetime.now(UTC))
        self.following = decision.failed(self.following, job.number, report, now=self.now)

    def apart(self) -> list[set[str]]:
        return [set(lane.tables) for lane in self.following.lanes.apart]

    def places(self, given: Orders) -> dict[str, int]:
        report = reported(self.following, given)
        return {table: report.of(table).ts.seconds for table in self.following.lanes.tables}


def test_tables_follow_the_barrier_job_by_job() -> None:
    node, given = Node(), orders(110, assignment(a=100, b=104))
    [job] = node.tick(given)
    assert node.tick(given) == []
    node.succeed(job)
    assert node.places(given) == {"a": 110, "b": 110}
    assert node.tick(given) == []


def test_a_checkpoint_is_reported_only_after_its_job() -> None:
    node, given = Node(), orders(110, assignment(a=100))
    node.tick(given)
    assert node.places(given) == {"a": 100}


def test_a_pause_begins_nothing_and_says_that_all_stands_only_when_it_does() -> None:
    node, given = Node(), orders(110, assignment(a=100))
    [job] = node.tick(given)
    paused = replace(given, running=False)
    assert node.tick(paused) == []
    assert reported(node.following, paused).run == 1
    node.fail(job, FencedError("the run is over"))
    assert reported(node.following, paused).run == 0
    [again] = node.tick(orders(110, assignment(a=100), run=2))
    assert again.replay_of(A) == at(110)
    assert reported(node.following, orders(110, assignment(a=100), run=2)).run == 2


def test_a_new_run_begins_only_when_no_job_of_the_last_is_left() -> None:
    node = Node()
    [job] = node.tick(orders(110, assignment(a=100)))
    following_run = orders(120, assignment(a=100), run=2)
    assert node.tick(following_run) == []
    assert reported(node.following, following_run).run == 1
    node.succeed(job)
    [_] = node.tick(following_run)
    assert reported(node.following, following_run).run == 2


def test_what_may_pass_is_tried_again_after_a_pause_that_grows() -> None:
    node, given = Node(), orders(110, assignment(a=100))
    pauses = []
    for _ in range(3):
        [job] = node.tick(given)
        node.fail(job, SinkUnavailable("away"))
        began = node.now
        while not node.tick(replace(given, running=False)) and node.now < _retry_at(node):
            node.now = _retry_at(node)
        pauses.append(node.now - began)
    assert pauses == [0.5, 1.0, 2.0]


def test_pauses_do_not_grow_while_the_target_answers_and_only_its_majority_stands_still() -> None:
    node, given = Node(), orders(110, assignment(a=100))
    pauses = []
    for _ in range(4):
        [job] = node.tick(given)
        node.fail(job, SinkMajorityStalled("it stands still"))
        pauses.append(_retry_at(node) - node.now)
        node.now = _retry_at(node)
    assert pauses == [0.5] * 4


def _retry_at(node: Node) -> float:
    trouble = node.following.trouble
    assert trouble is not None
    assert trouble.retry_at is not None
    return trouble.retry_at


def test_nothing_is_begun_during_a_pause_and_success_ends_the_trouble() -> None:
    node, given = Node(), orders(110, assignment(a=100))
    [job] = node.tick(given)
    node.fail(job, SinkUnavailable("away"))
    assert node.tick(given) == []
    error = reported(node.following, given).error
    assert error is not None
    assert error.code == "sink_unavailable"
    node.now += 1
    [job] = node.tick(given)
    node.succeed(job)
    assert reported(node.following, given).error is None


def test_what_waiting_cannot_mend_waits_for_the_next_run() -> None:
    node, given = Node(), orders(110, assignment(a=100))
    [job] = node.tick(given)
    node.fail(job, PermanentError("no"))
    node.now += 3600
    assert node.tick(given) == []
    [_] = node.tick(replace(given, run=2))
    assert reported(node.following, replace(given, run=2)).error is None


def test_a_fence_is_no_error_of_the_changefeed() -> None:
    node, given = Node(), orders(110, assignment(a=100))
    [job] = node.tick(given)
    node.fail(job, FencedError("not confirmed"))
    assert reported(node.following, given).error is None


def test_a_table_that_leaves_is_released_once_its_job_is_over() -> None:
    node = Node()
    [job] = node.tick(orders(110, assignment(a=100, b=100)))
    leaving = orders(120, assignment(a=100, b=100, leaving="b"), rev=11)
    assert node.tick(leaving) == []
    assert reported(node.following, leaving).released == {}
    node.succeed(job)
    node.tick(leaving)
    report = reported(node.following, leaving)
    assert report.released == {B: at(110)}
    assert report.assignment_rev == 11


def test_a_table_that_was_never_begun_is_released_at_its_start() -> None:
    node, leaving = Node(), orders(110, assignment(a=100, b=103, leaving="b"))
    node.tick(leaving)
    assert reported(node.following, leaving).released == {B: at(103)}


def test_a_table_given_again_begins_at_its_new_start() -> None:
    node = Node()
    node.tick(orders(100, assignment(a=100, b=100)))
    node.tick(orders(100, assignment(a=100, b=100, leaving="b"), rev=11))
    node.tick(orders(100, assignment(a=100), rev=12))
    given = orders(130, assignment(a=100, b=120), rev=13)
    jobs = node.tick(given)
    assert node.places(given) == {"a": 100, "b": 120}
    assert [job.of(B).start for job in jobs if job.of(B)] == [at(120)]  # type: ignore[union-attr]  # filtered


def test_an_assignment_is_obeyed_when_no_table_waits_for_a_job() -> None:
    node = Node()
    [job] = node.tick(orders(110, assignment(a=100, b=100)))
    given = orders(120, assignment(a=100), rev=11)
    node.tick(given)
    assert reported(node.following, given).assignment_rev == 10
    node.succeed(job)
    node.tick(given)
    assert reported(node.following, given).assignment_rev == 11
    assert node.following.lanes.tables == {A}


def test_a_table_in_copy_stays_at_its_start_and_holds_no_other() -> None:
    node, given = Node(), orders(110, assignment(a=100, c=100))
    [job] = node.tick(given, copying={C: at(100)})
    node.succeed(job)
    assert node.places(given) == {"a": 110, "c": 100}


def test_a_table_that_leaves_while_its_copy_moves_it_is_released_where_it_came_to() -> None:
    node = Node()
    begun = orders(300, assignment(a=100))
    node.tick(begun, copying={A: at(100)})
    leaving = orders(300, assignment(leaving="a", a=100), rev=11)
    node.following = decision.follow_orders(node.following, leaving, frozenset({A}))
    assert reported(node.following, leaving, copying=frozenset({A})).released == {}
    node.following = decision.moved(node.following, {A: at(120)}, leaving)
    assert node.tick(leaving, copying={A: at(120)}) == []
    assert reported(node.following, leaving).released == {A: at(120)}


def test_rows_in_scope_are_told_to_flow_for_a_second() -> None:
    node, given = Node(), orders(110, assignment(a=100))
    assert not decision.report(node.following, given, now=node.now).flowing
    [job] = node.tick(given)
    node.succeed(job)
    assert decision.report(node.following, given, now=node.now + 0.9).flowing
    assert not decision.report(node.following, given, now=node.now + 1.0).flowing


def test_a_row_that_the_target_refuses_keeps_its_table_where_it_is_and_the_others_go_on_at_once() -> None:
    node, given = Node(), orders(110, assignment(a=100, b=100, c=100))
    [job] = node.tick(given)
    node.fail(job, RowRejected("no").about(TableId("b")))
    [job] = node.tick(given)
    node.succeed(job)
    told = reported(node.following, given)
    assert node.places(given) == {"a": 110, "b": 100, "c": 110}
    assert told.failed.keys() == {"b"}
    assert told.error is None
    assert node.tick(given) == []


def test_a_failed_table_waits_for_its_stop_and_then_for_a_user() -> None:
    node, given = Node(), orders(110, assignment(a=100, b=100))
    [job] = node.tick(given)
    node.fail(job, RowRejected("no").about(TableId("b")))
    stopped = replace(given, stops={TableId("b"): 7})
    [job] = node.tick(stopped)
    node.succeed(job)
    told = reported(node.following, stopped)
    assert (told.failed, told.stops) == ({}, {"b": 7})
    [again] = node.tick(given)
    assert again.of(TableId("b")) is not None, "resumed"


def test_a_stop_is_obeyed_once_no_job_has_the_table() -> None:
    node, given = Node(), orders(110, assignment(a=100, b=100))
    [job] = node.tick(given)
    stopped = replace(given, stops={TableId("b"): 7})
    node.tick(stopped)
    assert reported(node.following, stopped).stops == {}
    node.succeed(job)
    assert reported(node.following, stopped).stops == {"b": 7}
    assert node.places(stopped) == {"a": 110, "b": 110}


@pytest.mark.parametrize("count", [2, 7, 16])
@pytest.mark.parametrize("bad", [["t1"], ["t0", "t1"]])
def test_the_tables_of_a_window_that_fails_are_separated_until_the_cause_is_alone(count: int, bad: list[str]) -> None:
    tables = [f"t{number}" for number in range(count)]
    given = orders(200, Assignment(tables={TableId(table): AssignedTable(start=at(100)) for table in tables}))
    node = Node()
    jobs = node.tick(given)
    for _ in range(20):
        for job in jobs:
            if any(job.of(TableId(table)) for table in bad):
                node.fail(job, InvariantError("a bug"))
            else:
                node.succeed(job)
        jobs = node.tick(given)
    told = reported(node.following, given)
    assert told.failed.keys() == set(bad)
    assert told.error is None
    assert node.places(given) == {table: 100 if table in bad else 200 for table in tables}
    assert node.apart() == []


@pytest.mark.parametrize(
    ("error", "of_a_task"), [(InvariantError("a bug of the driver"), False), (EventTooLarge("one of any table"), True)]
)
def test_an_error_that_separating_tables_does_not_explain_concerns_them_all(
    error: SluiceError, of_a_task: bool
) -> None:
    node, given = Node(), orders(110, assignment(a=100, b=100))
    [job] = node.tick(given)
    report = ErrorReport.of(error, datetime.now(UTC))
    node.following = decision.failed(node.following, job.number, report, now=node.now, of_a_task=of_a_task)
    told = reported(node.following, given)
    assert told.error is not None
    assert (told.failed, node.apart()) == ({}, [])


def test_lost_history_of_tables_that_are_behind_is_theirs() -> None:
    node, given = Node(), orders(1000, assignment(a=100, b=900, c=900))
    jobs = node.tick(given)
    [behind] = [job for job in jobs if job.of(TableId("a"))]
    assert not behind.of(TableId("b"))
    node.fail(behind, HistoryLost("gone"))
    assert reported(node.following, given).failed.keys() == {"a"}


@pytest.mark.parametrize(("barrier", "again"), [(160, 160), (700, 250), (10_000, 1_000)])
def test_a_wide_window_that_failed_is_narrower(barrier: int, again: int) -> None:
    node, given = Node(), orders(barrier, assignment(a=100, b=100))
    node.following = replace(node.following, paces=Paces(default=Pace(seconds=3_600)))
    [job] = node.tick(given)
    node.fail(job, SinkUnavailable("too much"))
    node.now += 1
    [job] = node.tick(given)
    assert job.window.end == at(again)


def test_a_table_that_cannot_keep_up_does_not_set_the_pace_of_the_others() -> None:
    node, given = Node(), orders(101, assignment(a=100, b=100, c=100))
    [job] = node.tick(given)
    node.succeed(job, took=3.0, a=2.8, b=0.1)
    assert node.apart() == [{"a"}]
    jobs = node.tick(orders(104, given.assignment))
    assert [{table for table in "abc" if job.of(TableId(table))} for job in jobs] == [{"b", "c"}, {"a"}]
    rest, slow = jobs
    node.succeed(rest, took=0.1, b=0.05)
    [rest] = node.tick(orders(105, given.assignment))
    node.succeed(rest, took=0.1, b=0.05)
    node.succeed(slow, took=9.0, a=8.9)
    assert node.apart() == [{"a"}]
    [slow] = node.tick(orders(105, given.assignment))
    node.succeed(slow, took=0.1, a=0.05)
    assert node.apart() == [], "it keeps up again"


def test_a_slow_table_is_not_back_before_it_has_caught_up() -> None:
    """A short window ends quickly, however far behind it is."""
    node, given = Node(), orders(101, assignment(a=100, b=100))
    [job] = node.tick(given)
    node.succeed(job, took=3.0, a=2.8, b=0.1)
    rest, slow = node.tick(orders(140, given.assignment))
    node.succeed(rest, took=0.1, b=0.1)
    outcome = JobOutcome(took=timedelta(seconds=0.1), writing={A: 0.1}, ended=at(103))
    node.following = decision.succeeded(node.following, slow.number, outcome, WINDOWS, now=node.now, slow_seconds=0.4)
    assert node.apart() == [{"a"}]
    [slow] = node.tick(orders(140, given.assignment))
    node.succeed(slow, took=0.1, a=0.1)
    assert node.apart() == []


def test_a_slow_table_leaves_the_sink_to_the_others_as_far_as_they_wait_for_it() -> None:
    node, given, second = Node(), assignment(a=100, b=100), 101
    [job] = node.tick(orders(second, given))
    node.succeed(job, took=3.0, a=2.8, b=0.1)

    def window(*, waited: float) -> tuple[float, float]:
        """A window of the slow table, with windows of the other one beside it. Returns its share, and when it began."""
        nonlocal second
        began_at, slow = 0.0, None
        for _ in range(40):
            second += 1
            for job in node.tick(orders(second, given)):
                if job.of(A):
                    slow, began_at = job, node.now
            assert slow is None or decision.sink_share(node.following, slow) < 1
            node.now += 0.1
            for job in [job for job in node.following.lanes.running if job is not slow]:
                node.succeed(job, took=0.1, waits=1, waited=waited if slow else 0.002, b=0.05)
        assert slow is not None
        share = decision.sink_share(node.following, slow)
        node.succeed(slow, took=3.0, a=3.0)
        return share, began_at

    assert [window(waited=0.010)[0] for _ in range(4)] == [0.25] * 4, "it has not stood still yet"
    ended_at = node.now
    share, began_at = window(waited=0.010)
    assert (share, began_at >= ended_at + 0.5) == (0.25, True), "it stands still, so that it can be compared"
    assert window(waited=0.010)[0] == pytest.approx(0.25 * 0.7)
    assert window(waited=0.002)[0] == pytest.approx(0.25 * 0.7 * 0.7)
    assert window(waited=0.002)[0] == pytest.approx(0.25 * 0.7 * 0.7 * 1.25)


def test_a_slow_lane_that_has_stood_still_is_due_once() -> None:
    node, given = Node(), assignment(a=100, b=100)
    [job] = node.tick(orders(101, given))
    node.succeed(job, took=3.0, a=2.8, b=0.1)
    for second in range(102, 102 + STILL_EVERY):
        for job in node.tick(orders(second, given)):
            node.succeed(job, took=3.0, a=3.0 if job.of(A) else 0.0)
    due_at = decision.retry_at(node.following)
    assert due_at == node.now + STILL_SECONDS
    assert decision.rested(node.following, node.now) is node.following
    node.following = decision.rested(node.following, due_at)
    assert decision.retry_at(node.following) is None, "the source may have nothing more for it"


def test_of_tables_that_are_written_side_by_side_none_is_slow_for_its_share_alone() -> None:
    node, given = Node(), orders(101, assignment(a=100, b=100, c=100))
    [job] = node.tick(given)
    node.succeed(job, took=3.0, a=1.9, b=1.8, c=1.9)
    assert node.apart() == []


def test_the_only_busy_table_and_a_window_faster_than_its_time_are_not_slow() -> None:
    node, given = Node(), orders(160, assignment(a=100, b=100))
    [job] = node.tick(given)
    node.succeed(job, took=20.0, a=19.0, b=0.1)
    assert node.apart() == [], "60 seconds in 20"
    [job] = node.tick(orders(161, given.assignment))
    node.succeed(job, took=3.0, a=2.9)
    assert node.apart() == []


def test_a_window_for_which_the_target_was_too_slow_ends_early_and_the_rest_is_read_again() -> None:
    node, given = Node(), orders(160, assignment(a=100, b=100, c=104))
    [job] = node.tick(given)
    outcome = JobOutcome(took=timedelta(seconds=9), writing={A: 8.5, B: 0.1}, ended=at(103))
    node.following = decision.succeeded(node.following, job.number, outcome, WINDOWS, now=node.now, slow_seconds=0.4)
    assert node.places(given) == {"a": 103, "b": 103, "c": 104}
    assert node.apart() == [{"a"}], "3 seconds of the source took 9"
    rest, slow = node.tick(given)
    assert [(rest.of(table), slow.of(table) is not None) for table in (A,)] == [(None, True)]
    assert rest.window.start == at(103)


def test_one_table_that_fails_again_and_again_does_not_stop_the_others() -> None:
    """Until it is found, the window is divided; then it is tried again alone, with pauses of its own."""
    node, tables = Node(), dict.fromkeys("abcdefgh", 100)
    away = SinkUnavailable("its shard is away")
    for second in range(60):
        given = orders(110 + second, assignment("", **tables))
        for job in node.tick(given):
            if job.of(TableId("d")):
                node.fail(job, away)
            else:
                node.succeed(job)
        node.now += 1
    places, report = node.places(given), decision.report(node.following, given, now=node.now)
    assert {table for table, at in places.items() if at < 165} == {"d"}
    assert node.apart() == [{"d"}]
    assert report.retried.keys() == {"d"}
    assert report.error is not None
    assert (report.error.message, report.error.table, report.error.keeps_running) == (str(away), "d", True)
    for second in range(60, 80):
        given = orders(110 + second, assignment("", **tables))
        for job in node.tick(given):
            node.succeed(job)
        node.now += 1
    report = decision.report(node.following, given, now=node.now)
    assert (node.apart(), report.error, report.retried) == ([], None, {})
    assert set(node.places(given).values()) == {189}


def test_where_everything_is_away_a_window_is_divided_into_few_parts_and_no_table_is_named() -> None:
    node, tables = Node(), {f"t{number:03}": 100 for number in range(200)}
    given = orders(110, assignment("", **tables))
    begun = 0
    for _ in range(300):
        for job in node.tick(given):
            begun += 1
            node.fail(job, SinkUnavailable("away"))
        node.now += 1
    report = decision.report(node.following, given, now=node.now)
    assert len(node.apart()) <= 8
    assert begun < 300 * 8 / 9, "each part has pauses of up to ten seconds"
    assert report.error is not None
    assert (report.error.table, report.error.keeps_running, report.retried) == (None, False, {})
    for _ in range(30):
        for job in node.tick(given):
            node.succeed(job)
        node.now += 1
    assert node.apart() == []
    assert set(node.places(given).values()) == {110}


def test_what_failed_is_tried_again_at_once_in_a_new_run() -> None:
    node = Node()
    given = orders(110, assignment(a=100, b=100))
    for _ in range(30):
        for job in node.tick(given):
            node.fail(job, SinkUnavailable("away"))
        node.now += 1
    assert node.apart() == [{"a"}, {"b"}]
    again = orders(110, assignment(a=100, b=100), run=2)
    assert {table for job in node.tick(again) for table in job.own_windows} == {"a", "b"}
    assert reported(node.following, again).error is None


def test_a_node_that_loses_its_failing_tables_still_says_why() -> None:
    """So that it looks whether that is over, before it gets tables again."""
    node = Node()
    given = orders(110, assignment(a=100, b=100))
    for _ in range(30):
        for job in node.tick(given):
            node.fail(job, SinkUnavailable("away"))
        node.now += 1
    none = orders(110, assignment(), rev=11)
    node.tick(none)
    error = reported(node.following, none).error
    assert error is not None
    assert (error.code, error.table) == ("sink_unavailable", None)
    assert decision.may_look(node.following, none, now=node.now)


def test_a_node_whose_tables_wait_looks_while_the_changefeed_is_troubled() -> None:
    """They may wait for tables of the node that fails, which needs a witness."""
    node, given = Node(), orders(110, assignment(a=100))
    [job] = node.tick(given)
    troubled = replace(given, troubled=True)
    assert not decision.may_look(node.following, troubled, now=node.now), "its job shows it"
    node.succeed(job)
    assert not decision.may_look(node.following, troubled, now=node.now), "its job has just shown it"
    node.now += decision.LOOK_EVERY.total_seconds()
    assert not decision.may_look(node.following, given, now=node.now)
    assert decision.may_look(node.following, troubled, now=node.now)
    node.following = decision.looked(node.following, None, now=node.now)
    node.tick(troubled)
    assert reported(node.following, troubled).reaches
    assert not decision.may_look(node.following, troubled, now=node.now)
    node.tick(replace(troubled, barrier=Barrier(epoch=1, position=at(120)), barrier_rev=120))
    assert not reported(node.following, troubled).reaches, "its next job shows it"


def test_a_look_shows_whether_failing_windows_are_the_nodes_own_trouble() -> None:
    node, given = Node(), replace(orders(110, assignment(a=100)), troubled=True)
    for _ in range(3):
        [job] = node.tick(given)
        node.fail(job, SinkUnavailable("away"))
        if decision.may_look(node.following, given, now=node.now):
            node.following = decision.looked(node.following, None, now=node.now)
        assert not decision.may_look(node.following, given, now=node.now)
        report = reported(node.following, given)
        assert (report.error is not None, report.reaches) == (True, True)
        node.now += 1 + decision.LOOK_EVERY.total_seconds()
    [job] = node.tick(given)
    assert reported(node.following, given).reaches, "it only tries again what failed"
    node.succeed(job)
    node.tick(replace(given, barrier=Barrier(epoch=1, position=at(120)), barrier_rev=120))
    assert not reported(node.following, given).reaches


def test_a_node_with_tables_learns_its_errors_from_their_windows() -> None:
    node, given = Node(), replace(orders(110, assignment(a=100)), troubled=True)
    [job] = node.tick(given)
    node.succeed(job)
    met = ErrorReport.of(SinkUnavailable("away"), datetime.now(UTC))
    node.following = decision.looked(node.following, met, now=node.now)
    report = reported(node.following, given)
    assert (report.error, report.reaches) == (None, False)


def test_a_passing_error_that_a_copy_meets_with_one_table_is_the_nodes() -> None:
    """A node that does not reach the target says so of whichever table it copies: its tables have to move."""
    node, given = Node(), orders(110, assignment(a=100, b=100))
    node.tick(given)
    met = ErrorReport.of(SinkUnavailable("away").about(A), datetime.now(UTC))
    node.following = decision.with_error(node.following, met, now=node.now)
    error = reported(node.following, given).error
    assert error is not None
    assert (error.table, error.keeps_running) == (None, False)
