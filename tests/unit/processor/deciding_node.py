"""`Node`: a node's decisions for one changefeed, whose jobs a test ends."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

from changefeed.cluster_time import ClusterTime
from changefeed.errors import SluiceError
from changefeed.event import RowTally, RowType
from changefeed.lifecycle import ErrorReport
from changefeed.position import Position
from changefeed.records.ddl import Barrier
from changefeed.records.node import AssignedTable, Assignment, PositionReport
from changefeed.table import TableId
from processor import job_ends
from processor.following import Following, Orders
from processor.lanes.lane_plan import LaneLimits
from processor.lanes.lanes import LaneJob, Lanes
from processor.lanes.windows import WindowLimits
from processor.task.job import JobOutcome
from sink.row import WriteResult
from tests.invariants import check_lanes

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
    return following.report(given, copying=copying, now=2000.0)


class Node:
    def __init__(self) -> None:
        self.following = Following(lanes=Lanes.empty(at(100)))
        self.now = 1000.0

    def tick(self, given: Orders, *, copying: dict[TableId, Position] | None = None) -> list[LaneJob]:
        self.following = self.following.follow(given)
        jobs = self.following.next_jobs(given, LIMITS, now=self.now, copying=copying or {})
        for job in jobs:
            self.following = self.following.begun(job, now=self.now)
        check_lanes(self.following.lanes)
        return jobs

    def succeed(self, job: LaneJob, took: float = 1.0, waits: int = 0, waited: float = 0.0, **writing: float) -> None:
        outcome = JobOutcome(
            rows=WriteResult(
                waits=waits,
                waited=waited,
                tally=RowTally(applied=Counter({RowType.INSERT: 1}), bytes=10),
                writing={TableId(table): seconds for table, seconds in writing.items()},
            ),
            took=timedelta(seconds=took),
        )
        self.following = job_ends.succeeded(
            self.following, job.number, outcome, WINDOWS, now=self.now, slow_seconds=LIMITS.slow_seconds
        )

    def fail(self, job: LaneJob, error: SluiceError) -> None:
        report = ErrorReport.of(error, datetime.now(UTC))
        self.following = job_ends.failed(self.following, job.number, report, now=self.now)

    def apart(self) -> list[set[str]]:
        return [set(lane.tables) for lane in self.following.lanes.apart]

    def places(self, given: Orders) -> dict[str, int]:
        report = reported(self.following, given)
        return {table: report.of(table).ts.seconds for table in self.following.lanes.tables}
