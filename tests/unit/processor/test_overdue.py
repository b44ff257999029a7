from __future__ import annotations

from datetime import UTC, datetime

from changefeed.table import TableId, TableName
from processor.overdue import Overdue, RunningJob, late_reports


def job(attempt: str = "a", *, begun_at: float = 0.0, wanted: bool = True, in_the_way: bool = False) -> RunningJob:
    return RunningJob(attempt=attempt, begun_at=begun_at, patience=60.0, wanted=wanted, in_the_way=in_the_way)


def test_a_job_is_late_once_its_patience_is_over_and_no_longer_when_it_has_ended() -> None:
    overdue = Overdue().next([job("a"), job("b", begun_at=50.0)], 59.0)
    assert (overdue.late, overdue.next_at) == (frozenset(), 60.0)
    overdue = overdue.next([job("a"), job("b", begun_at=50.0)], 60.0)
    assert (overdue.late, overdue.next_at, overdue.to_cancel) == (frozenset({"a"}), 110.0, frozenset())
    assert overdue.next([], 61.0) == Overdue()


def test_a_job_that_is_not_wanted_is_cancelled_after_the_grace_and_again_until_it_ends() -> None:
    overdue = Overdue().next([job("a", wanted=False), job("b")], 100.0)
    cancelled = []
    for now in (100.0, 129.9, 130.0, 140.0, 160.0):
        overdue = overdue.next([job("a", wanted=False), job("b")], now)
        cancelled += [(now, attempt) for attempt in overdue.to_cancel]
        assert now < overdue.next_at <= now + 30.0
    assert cancelled == [(130.0, "a"), (160.0, "a")]


def test_a_job_that_is_wanted_again_has_its_whole_grace_the_next_time() -> None:
    overdue = Overdue().next([job(wanted=False)], 0.0).next([job()], 29.0).next([job(wanted=False)], 31.0)
    assert not overdue.next([job(wanted=False)], 60.0).to_cancel
    assert overdue.next([job(wanted=False)], 61.0).to_cancel


def test_tables_that_leave_wait_for_a_job_as_long_as_it_is_not_late() -> None:
    overdue = Overdue().next([job(in_the_way=True)], 0.0).next([job(in_the_way=True)], 59.0)
    assert not overdue.unwanted_since
    overdue = overdue.next([job(in_the_way=True)], 60.0)
    assert not overdue.to_cancel
    assert overdue.next([job(in_the_way=True)], 90.0).to_cancel == {"a"}


def test_a_late_job_is_told_for_each_of_its_tables_and_names_a_few() -> None:
    names = {TableId(f"{number:032x}"): TableName("shop", f"t{number}") for number in range(70)}
    told = late_reports("a window", 60.0, names, datetime.now(UTC))
    assert len(told) == 64
    assert {error.table for error in told.values()} == told.keys()
    [message] = {error.message for error in told.values()}
    assert message.startswith(
        "a window of shop.t0, shop.t1, shop.t2, shop.t3, shop.t4 and 65 more has had no answer for 60 s"
    )
    assert all(error.keeps_running for error in told.values())
