from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from changefeed.cluster_time import ClusterTime
from changefeed.position import Position
from changefeed.records.node import NodeId, PositionReport
from processor.rate import SAVED_SECONDS, Amount, LimitShares, Rate, TokenBucket

FAST = Rate(documents=1_000, bytes=10_000_000)


def test_a_write_costs_by_what_is_scarcer() -> None:
    assert FAST.seconds(Amount(documents=10, bytes=1_000_000)) == 0.1
    assert FAST.seconds(Amount(documents=500, bytes=1_000_000)) == 0.5
    assert Rate().seconds(Amount(documents=500, bytes=1_000_000)) == 0


def test_a_part_costs_about_what_was_asked_and_has_at_least_one_document() -> None:
    assert FAST.part(0.25) == Amount(documents=250, bytes=2_500_000)
    assert Rate(documents=0.1).part(0.25).documents == 1


def test_a_write_begins_when_everything_before_it_is_paid_for() -> None:
    bucket = TokenBucket()
    waits = []
    for now, cost in ((100.0, 0.1), (100.0, 0.5), (100.0, 0.1), (105.0, 0.3), (105.0, 0.1)):
        bucket, wait = bucket.take(cost, now)
        waits.append(round(wait, 3))
    assert waits == [0, 0, 0.35, 0, 0.05]


def test_a_moment_of_another_clock_blocks_nothing() -> None:
    assert TokenBucket(1e9).take(0.1, 5.0) == (TokenBucket(5.1), 0.0)
    later = TokenBucket(0.0, 1e9, 0.1)
    assert later.told(1.0, 4.0, 5.0) == TokenBucket(0.0, 4.0, 1.0)


@given(st.lists(st.tuples(st.floats(0, 2), st.floats(0.01, 1)), min_size=1, max_size=50))
def test_no_more_is_written_than_the_rate_allows(writes: list[tuple[float, float]]) -> None:
    """One task after the other: idle for a while, then a write, which begins when the bucket says. Its cost is its size at a rate of one."""
    bucket, now, begun = TokenBucket(), 1_000.0, []
    for idle, cost in writes:
        now += idle
        bucket, wait = bucket.take(cost, now)
        now += wait
        begun.append((now, cost))
    for first, (start, _) in enumerate(begun):
        written = 0.0
        for at, cost in begun[first:]:
            assert written <= at - start + SAVED_SECONDS + 1e-6
            written += cost


RUN = 3


def report(*, run: int = RUN, copying: bool = False, flowing: bool = False) -> PositionReport:
    at = Position(ClusterTime(100, 1))
    return PositionReport(run=run, barrier_rev=1, assignment_rev=1, checkpoint=at, copying=copying, flowing=flowing)


def shares(*others: PositionReport | None) -> tuple[float, float]:
    found = LimitShares.among({NodeId(f"n{number}"): each for number, each in enumerate(others)}, RUN)
    return found.copy, found.apply


def test_a_node_alone_has_the_whole_limit() -> None:
    assert shares() == (1, 1)


def test_nodes_without_work_leave_their_part_to_the_others() -> None:
    assert shares(report()) == (1, 1)
    assert shares(report(copying=True), report()) == (0.5, 1)
    assert shares(report(flowing=True), report(flowing=True)) == (1, 1 / 3)


def test_a_node_that_has_not_reported_in_this_run_may_be_about_to_copy() -> None:
    assert shares(None, report(run=RUN - 1, flowing=True)) == (1 / 3, 1)
