"""Tables that cannot keep up do not set the pace of the others."""

from __future__ import annotations

from datetime import timedelta

import pytest

from changefeed.position import Window
from changefeed.table import TableId
from processor import job_ends
from processor.lanes.apart_lane import FIRST, STILL_SECONDS, SlowLane
from processor.lanes.lanes import LaneJob
from processor.task.job import JobOutcome
from sink.row import WriteResult
from tests.unit.processor.deciding_node import WINDOWS, A, B, Node, assignment, at, orders


def share_of(node: Node, job: LaneJob) -> float:
    lane = node.following.lanes.lane_of(job)
    assert isinstance(lane, SlowLane)
    return lane.sink.share


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
    node.now += STILL_SECONDS
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
    outcome = JobOutcome(took=timedelta(seconds=0.1), rows=WriteResult(writing={A: 0.1}), ended=at(103))
    node.following = job_ends.succeeded(node.following, slow.number, outcome, WINDOWS, now=node.now, slow_seconds=0.4)
    assert node.apart() == [{"a"}]
    node.now += STILL_SECONDS
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
            assert slow is None or share_of(node, slow) < 1
            node.now += 0.1
            for job in [job for job in node.following.lanes.running if job is not slow]:
                node.succeed(job, took=0.1, waits=1, waited=waited if slow else 0.002, b=0.05)
        assert slow is not None
        share = share_of(node, slow)
        node.succeed(slow, took=3.0, a=3.0)
        return share, began_at

    assert window(waited=0.010)[0] == FIRST, "it has not stood still yet"
    ended_at = node.now
    share, began_at = window(waited=0.002)
    assert (share, began_at >= ended_at + STILL_SECONDS) == (FIRST, True), "it stands still, so that it can be compared"
    for _ in range(6):
        last = share
        share, _ = window(waited=0.002)
        assert share == pytest.approx(last * 1.1)
    assert window(waited=0.010)[0] == pytest.approx(share * 1.1)
    assert window(waited=0.002)[0] == pytest.approx(share * 1.1 * 0.6)


def test_a_slow_lane_that_has_stood_still_is_due_once() -> None:
    node, given = Node(), assignment(a=100, b=100)
    [job] = node.tick(orders(101, given))
    node.succeed(job, took=3.0, a=2.8, b=0.1)
    for job in node.tick(orders(102, given)):
        node.succeed(job, took=3.0, a=3.0 if job.of(A) else 0.0)
    due_at = node.following.retry_at
    assert due_at == node.now + STILL_SECONDS
    assert node.following.rested(node.now) is node.following
    node.following = node.following.rested(due_at)
    assert node.following.retry_at is None, "the source may have nothing more for it"


def test_of_tables_that_are_written_side_by_side_none_is_slow_for_its_share_alone() -> None:
    node, given = Node(), orders(101, assignment(a=100, b=100, c=100))
    [job] = node.tick(given)
    node.succeed(job, took=3.0, a=1.9, b=1.8, c=1.9)
    assert node.apart() == []


def test_a_window_faster_than_its_time_shows_no_slow_table() -> None:
    node, given = Node(), orders(160, assignment(a=100, b=100))
    [job] = node.tick(given)
    node.succeed(job, took=20.0, a=19.0, b=0.1)
    assert node.apart() == [], "60 seconds in 20"


def test_a_table_that_writes_alone_holds_up_the_tables_that_will_write() -> None:
    node, given = Node(), orders(101, assignment(a=100, b=100))
    [job] = node.tick(given)
    node.succeed(job, took=3.0, a=2.9)
    assert node.apart() == [{"a"}]
    rest, slow = node.tick(orders(103, given.assignment))
    assert (rest.of(A), share_of(node, slow)) == (None, 1.0), "nobody has waited so far"


def test_a_slow_table_that_is_behind_the_others_holds_them_up_though_their_rows_are_not_reached() -> None:
    """A DDL has held it, so it takes part in the default lane's job from further back."""
    node, given = Node(), assignment(a=100, b=105, c=105)
    [job] = node.tick(orders(106, given))
    assert (job.of(A), job.of(B)) == (Window(at(100), at(106)), Window(at(105), at(106)))
    outcome = JobOutcome(took=timedelta(seconds=3), rows=WriteResult(writing={A: 2.9}), ended=at(101))
    node.following = job_ends.succeeded(node.following, job.number, outcome, WINDOWS, now=node.now, slow_seconds=0.4)
    assert node.apart() == [{"a"}]
    rest, slow = node.tick(orders(107, given))
    assert (rest.of(A), rest.of(B)) == (None, Window(at(105), at(107)))
    assert share_of(node, slow) == FIRST


def test_the_only_table_of_a_job_holds_up_nobody() -> None:
    node, given = Node(), orders(101, assignment(a=100))
    [job] = node.tick(given)
    node.succeed(job, took=3.0, a=2.9)
    assert node.apart() == []


def test_a_window_for_which_the_target_was_too_slow_ends_early_and_the_rest_is_read_again() -> None:
    node, given = Node(), orders(160, assignment(a=100, b=100, c=104))
    [job] = node.tick(given)
    outcome = JobOutcome(took=timedelta(seconds=9), rows=WriteResult(writing={A: 8.5, B: 0.1}), ended=at(103))
    node.following = job_ends.succeeded(node.following, job.number, outcome, WINDOWS, now=node.now, slow_seconds=0.4)
    assert node.places(given) == {"a": 103, "b": 103, "c": 104}
    assert node.apart() == [{"a"}], "3 seconds of the source took 9"
    rest, slow = node.tick(given)
    assert [(rest.of(table), slow.of(table) is not None) for table in (A,)] == [(None, True)]
    assert rest.window.start == at(103)
