from __future__ import annotations

from changefeed.cluster_time import ClusterTime
from changefeed.position import Position
from changefeed.records.node import NodeId, PositionReport
from processor.limits.limit_share import LimitShares

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
