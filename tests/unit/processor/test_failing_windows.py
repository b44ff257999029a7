"""Windows that fail: when they are tried again, how the tables that are the cause are found, and what the node says."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

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
    TableUnknown,
)
from changefeed.lifecycle import ErrorReport
from changefeed.records.ddl import Barrier
from changefeed.records.node import AssignedTable, Assignment
from changefeed.table import TableId, TableName, view_id
from processor import job_ends
from processor.following import LOOK_EVERY
from processor.lanes.lane_plan import Paces
from processor.lanes.windows import Pace
from tests.unit.processor.deciding_node import A, Node, assignment, at, orders, reported


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


def test_a_row_of_a_table_that_nobody_knows_divides_nothing_and_is_told_with_the_name_until_it_is_passed_over() -> None:
    node, given = Node(), orders(110, assignment(a=100, b=100))
    for _ in range(6):
        [job] = node.tick(given)
        node.fail(job, TableUnknown("a DDL was missed").about(view_id(TableName("shop", "stray"))))
        told = reported(node.following, given)
        assert told.error is not None
        assert (told.error.table, told.failed) == ("view:shop.stray", {})
        node.now += 20
    [job] = node.tick(given)
    node.succeed(job)
    assert reported(node.following, given).error is None


def test_a_fence_is_no_error_of_the_changefeed() -> None:
    node, given = Node(), orders(110, assignment(a=100))
    [job] = node.tick(given)
    node.fail(job, FencedError("not confirmed"))
    assert reported(node.following, given).error is None


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
    node.following = job_ends.failed(node.following, job.number, report, now=node.now, of_a_task=of_a_task)
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
    places, report = node.places(given), node.following.report(given, now=node.now)
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
    report = node.following.report(given, now=node.now)
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
    report = node.following.report(given, now=node.now)
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
    assert node.following.may_look(none, now=node.now)


def test_a_node_whose_tables_wait_looks_while_the_changefeed_is_troubled() -> None:
    """They may wait for tables of the node that fails, which needs a witness."""
    node, given = Node(), orders(110, assignment(a=100))
    [job] = node.tick(given)
    troubled = replace(given, troubled=True)
    assert not node.following.may_look(troubled, now=node.now), "its job shows it"
    node.succeed(job)
    assert not node.following.may_look(troubled, now=node.now), "its job has just shown it"
    node.now += LOOK_EVERY.total_seconds()
    assert not node.following.may_look(given, now=node.now)
    assert node.following.may_look(troubled, now=node.now)
    node.following = node.following.looked(troubled, None, now=node.now)
    node.tick(troubled)
    assert reported(node.following, troubled).reaches
    assert not node.following.may_look(troubled, now=node.now)
    node.tick(replace(troubled, barrier=Barrier(epoch=1, position=at(120)), barrier_rev=120))
    assert not reported(node.following, troubled).reaches, "its next job shows it"


def test_a_look_shows_whether_failing_windows_are_the_nodes_own_trouble() -> None:
    node, given = Node(), replace(orders(110, assignment(a=100)), troubled=True)
    for _ in range(3):
        [job] = node.tick(given)
        node.fail(job, SinkUnavailable("away"))
        if node.following.may_look(given, now=node.now):
            node.following = node.following.looked(given, None, now=node.now)
        assert not node.following.may_look(given, now=node.now)
        report = reported(node.following, given)
        assert (report.error is not None, report.reaches) == (True, True)
        node.now += 1 + LOOK_EVERY.total_seconds()
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
    node.following = node.following.looked(given, met, now=node.now)
    report = reported(node.following, given)
    assert (report.error, report.reaches) == (None, False)


def test_a_node_whose_tables_all_stand_still_learns_from_a_look_that_its_error_is_over() -> None:
    """No window will show it, and while it errs no other node that fails is known for one."""
    node, given = Node(), replace(orders(110, assignment(a=100)), troubled=True)
    [job] = node.tick(given)
    node.fail(job, SinkUnavailable("away"))
    stopped = replace(given, stops={A: 7})
    node.tick(stopped)
    assert reported(node.following, stopped).error is not None
    assert node.following.may_look(stopped, now=node.now)
    node.following = node.following.looked(stopped, None, now=node.now)
    report = reported(node.following, stopped)
    assert (report.error, report.reaches) == (None, True)
    lasting = ErrorReport.of(InvariantError("a bug"), datetime.now(UTC))
    node.following = node.following.with_error(lasting, now=node.now)
    node.following = node.following.looked(stopped, None, now=node.now)
    assert reported(node.following, stopped).error is not None, "it waits for the next run"


def test_a_passing_error_that_a_copy_meets_with_one_table_is_the_nodes() -> None:
    """A node that does not reach the target says so of whichever table it copies: its tables have to move."""
    node, given = Node(), orders(110, assignment(a=100, b=100))
    node.tick(given)
    met = ErrorReport.of(SinkUnavailable("away").about(A), datetime.now(UTC))
    node.following = node.following.with_error(met, now=node.now)
    error = reported(node.following, given).error
    assert error is not None
    assert (error.table, error.keeps_running) == (None, False)
