"""`Following`: what a node does next for one changefeed, and what it reports. Pure.

    orders (etcd)  ──follow──▶     lanes follow the assignment          starts no job
                   ──next_jobs──▶  jobs to start now                    only in the run that the orders name, outside a back-off
    finished jobs  ──job_ends.py──▶ checkpoints, or replay and a back-off
                   ──report──▶     what the owner may rely on

A run begins when no job of an earlier run is left, and clears the earlier run's errors. A worked example, of a pause:

    orders run 3      job 7 running                report: run 3
    orders paused     job 7 running, its tasks
                      are fenced                   report: run 3
                      job 7 failed                 report: run 0, all pipelines have stopped
    orders run 4      job 8 starts, as replay      report: run 4

A table that leaves gets no new job. It is released once no job has it. A table that is assigned again begins at its new start, since
another node may have replicated it in the meantime. An assignment counts as obeyed only when no table waits for a job to end.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import islice

from changefeed.errors import FencedError, TableUnknown
from changefeed.lifecycle import ErrorReport
from changefeed.position import Position
from changefeed.records.copy import CopyProgress
from changefeed.records.ddl import Barrier
from changefeed.records.node import AssignedTable, Assignment, PositionReport, RowCounts
from changefeed.shards import Shards, differing
from changefeed.table import TableId
from processor.lanes.apart_lane import ApartLane, SlowLane, SuspectLane
from processor.lanes.lane_plan import LaneLimits, Paces, plan
from processor.lanes.lanes import LaneJob, Lanes
from processor.task.job import JobOutcome

FIRST_PAUSE = timedelta(milliseconds=500)
LONGEST_PAUSE = timedelta(seconds=10)
DIVIDED_AFTER = 4
"""Failures of a window in a row, over about eight seconds: more than an election takes."""
_MOST_REPORTED = 64
"""Failed tables in one report. When the owner has stopped these, the next ones are reported."""
LOOK_EVERY = timedelta(seconds=5)
FLOWS_FOR = timedelta(seconds=1)
"""How long rows count as flowing after the last row in scope."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """What etcd tells this node about one changefeed, at one revision.

    `life` changes when the changefeed is restarted or created again: state from before does not count then.
    """

    life: int
    running: bool
    run: int
    barrier: Barrier
    barrier_rev: int
    assignment: Assignment = field(default_factory=Assignment)
    assignment_rev: int = 0
    troubled: bool = False
    """The changefeed has an error, on whichever node."""
    stops: Mapping[TableId, int] = field(default_factory=dict)
    """The stopped tables, with the revisions of their stops."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """Why no job may start for now, or not in this run at all."""

    error: ErrorReport
    failures: int
    retry_at: float | None
    """Monotonic seconds. None: no retry in this run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Following:
    """This node's state for one changefeed. `run` is the run of the jobs started last. All moments are monotonic seconds."""

    lanes: Lanes
    run: int = 0
    assignment_rev: int = 0
    entries: Mapping[TableId, AssignedTable] = field(default_factory=dict)
    """Each table's entry in the assignment at the time when the lanes took the table."""
    paces: Paces = field(default_factory=Paces)
    trouble: Trouble | None = None
    failed: Mapping[TableId, ErrorReport] = field(default_factory=dict)
    """Tables that cannot go on in this run, each for a reason of its own. They get no more work until the owner has stopped them."""
    rows: RowCounts = field(default_factory=RowCounts)
    succeeded_at: float = float("-inf")
    """When a job last succeeded."""
    looked_at: float | None = None
    """When a look last ended. None: not since the changefeed was last without errors."""
    reaches: bool = False
    """That look found that everything can be reached."""
    flowed_at: float | None = None
    """When rows in scope were last applied."""

    def follow(self, orders: Orders, copying: AbstractSet[TableId] = frozenset()) -> Following:
        """Brings the lanes to the assignment, as far as running jobs allow, and takes over the orders' run once the last run is over.

        `copying` are the tables whose initial copy has a running task.
        """
        before = self._error_of_lanes()
        following = self if self.assignment_rev == orders.assignment_rev else self._assigned(orders, copying)
        lanes = following.lanes
        if orders.running and following.run != orders.run and not lanes.running and not copying:
            following = replace(following, run=orders.run, trouble=None, failed={}, lanes=lanes.afresh())
        elif before is not None and following.trouble is None and not lanes.tables:
            error = replace(before, table=None)
            following = replace(following, trouble=Trouble(error=error, failures=1, retry_at=0.0))
        if not orders.troubled:
            following = replace(following, looked_at=None, reaches=False)
        failed = {
            table: error
            for table, error in following.failed.items()
            if table in lanes.tables and table not in orders.stops
        }
        return replace(following, failed=failed)

    def _assigned(self, orders: Orders, copying: AbstractSet[TableId]) -> Following:
        lanes, assignment = self.lanes, orders.assignment
        changed = differing(self.entries, assignment.tables)
        returned = {table for table in lanes.leaving - assignment.leaving if table in assignment.tables}
        gone = {table for table in changed if table in lanes.tables} | returned
        lanes = lanes.leave((lanes.tables & assignment.leaving) | gone)
        if free := [table for table in gone if not lanes.busy(table) and table not in copying]:
            lanes = lanes.remove(free)
        if new := {table for table in changed | gone if table in assignment.tables and table not in lanes.tables}:
            lanes = lanes.assign({table: assignment.tables[table].start for table in new}, orders.barrier)
        lanes = lanes.leave(assignment.leaving)
        waiting = gone & lanes.tables & lanes.leaving - assignment.leaving
        if not waiting:
            return replace(self, lanes=lanes, entries=assignment.tables, assignment_rev=orders.assignment_rev)
        before = {table: self.entries[table] for table in waiting if table in self.entries}
        tables = assignment.tables if isinstance(assignment.tables, Shards) else Shards(assignment.tables)
        return replace(self, lanes=lanes, entries=tables.but(before))

    def wanted(self, orders: Orders) -> bool:
        """Whether what is running may go on."""
        return orders.running and self.run == orders.run

    def may_begin(self, orders: Orders, *, now: float) -> bool:
        trouble = self.trouble
        paused = trouble is not None and (trouble.retry_at is None or now < trouble.retry_at)
        return self.wanted(orders) and not paused

    def in_the_way(self, orders: Orders, number: int) -> bool:
        """Whether a running job has a table that is to be stopped, or to leave."""
        job = self.lanes.job(number)
        return any(job.of(table) for table in self.lanes.leaving | orders.stops.keys())

    def may_look(self, orders: Orders, *, now: float) -> bool:
        """Whether to probe source and target now.

        A node probes when none of its windows would tell it that an error is over: it has no tables, its tables wait for a DDL, or its windows
        fail. Where windows fail, a look shows whether the error came with a table.
        """
        due = orders.troubled and (self.looked_at is None or now >= self.looked_at + LOOK_EVERY.total_seconds())
        if not self.lanes.tables:
            return self.may_begin(orders, now=now) and (self.trouble is not None or due)
        waits = not self.lanes.running and now >= self.succeeded_at + LOOK_EVERY.total_seconds()
        return self.wanted(orders) and due and (waits or self.trouble is not None)

    def looked(self, orders: Orders, error: ErrorReport | None, *, now: float) -> Following:
        """A node with tables that go on learns its own errors from their windows. An error that lasts waits for the next run."""
        lasts = self.trouble is not None and self.trouble.retry_at is None
        if lasts or self.lanes.tables - self.standing_still(orders):
            return replace(self, looked_at=now, reaches=error is None)
        after = replace(self, trouble=None) if error is None else self.with_error(error, now=now)
        return replace(after, looked_at=now, reaches=error is None)

    def next_jobs(
        self, orders: Orders, limits: LaneLimits, *, now: float, copying: Mapping[TableId, Position]
    ) -> list[LaneJob]:
        """The jobs to start now. Tables in copy go no further than `copying` says, as if a DDL held them there; tables that stand still, nowhere."""
        if not self.may_begin(orders, now=now):
            return []
        at_most = {table: min(limit, orders.barrier.of(table)) for table, limit in copying.items()}
        paused = [table for lane in self.lanes.apart if now < lane.begins_at for table in lane.tables]
        at_most |= {table: self.lanes.checkpoint_of(table) for table in (*paused, *self.standing_still(orders))}
        barrier = replace(orders.barrier, held={**orders.barrier.held, **at_most})
        return plan(self.lanes, barrier, self.paces, limits)

    def rested(self, now: float) -> Following:
        """Slow lanes that have stood still long enough may begin."""
        lanes = self.lanes
        for lane in lanes.apart:
            if isinstance(lane, SlowLane) and (changed := lane.rested(now)) is not lane:
                lanes = lanes.with_lane(lane, changed)
        return self if lanes is self.lanes else replace(self, lanes=lanes)

    def standing_still(self, orders: Orders) -> AbstractSet[TableId]:
        """Tables that get no work until a user acts."""
        return (orders.stops.keys() | self.failed.keys()) & self.lanes.tables

    def begun(self, job: LaneJob, *, now: float) -> Following:
        """A window that begins makes an earlier look outdated, unless it only tries again what failed."""
        begun = replace(self, lanes=slow_lane_moved(self.lanes, job, now).started(job))
        return begun if begun.trouble is not None else replace(begun, looked_at=None, reaches=False)

    def counted(self, outcome: JobOutcome) -> Following:
        """Rows are counted whether the job succeeded or failed."""
        return replace(self, rows=self.rows.plus(RowCounts.of(outcome.rows.tally)))

    def moved(self, places: Mapping[TableId, Position], orders: Orders) -> Following:
        """Moves the checkpoints of tables as their initial copy requires. No job has these tables. A leaving table stays marked as leaving."""
        if not places:
            return self
        lanes = self.lanes.remove(places).assign(places, orders.barrier).leave(self.lanes.leaving & places.keys())
        return replace(self, lanes=lanes)

    def with_error(self, error: ErrorReport, *, now: float) -> Following:
        """Records an error of this node: a copy may have met it with one table, and nothing says that it is the table's.

        The pause doubles from half a second to ten, but restarts at half a second for an error that passes at once. A permanent error waits for
        the next run.
        """
        if self.trouble is not None and self.trouble.retry_at is None:
            return self
        error = error if error.lasting or error.code == TableUnknown.code else replace(error, table=None)
        failures = self.trouble.failures + 1 if self.trouble and not error.passes_at_once else 1
        retry_at = None if error.lasting else now + pause_after(failures).total_seconds()
        return replace(self, trouble=Trouble(error=error, failures=failures, retry_at=retry_at))

    def table_failed(self, table: TableId, error: ErrorReport) -> Following:
        """The error is the table's alone: the others go on at once."""
        lane = next((lane for lane in self.lanes.apart if table in lane.tables), None)
        lanes = self.lanes.together(lane) if lane is not None and len(lane.tables) == 1 else self.lanes
        return replace(self, lanes=lanes, failed={table: error, **self.failed})

    @property
    def retry_at(self) -> float | None:
        """When the next pause is over. None: there is none."""
        lanes = self.lanes
        moments = [lane.begins_at for lane in lanes.apart if lane.begins_at and not any(map(lanes.busy, lane.tables))]
        if self.trouble is not None and self.trouble.retry_at is not None:
            moments.append(self.trouble.retry_at)
        return min(moments, default=None)

    def witnessed(self, lane: ApartLane) -> bool:
        """Whether other tables go on, so that the lane's failures are its own. A slow lane was found by a job that succeeded."""
        return not isinstance(lane, SuspectLane) or self.succeeded_at > lane.since

    def _retried(self) -> Mapping[TableId, ErrorReport]:
        """The tables that fail alone while others go on."""
        return {
            lane.alone: replace(lane.error, table=lane.alone)
            for lane in self.lanes.apart
            if lane.alone is not None and lane.error is not None
            if lane.failures >= DIVIDED_AFTER and self.witnessed(lane)
        }

    def _error_of_lanes(self) -> ErrorReport | None:
        """The error of several tables says more than that of one."""
        erring = [lane for lane in self.lanes.apart if lane.error is not None]
        lane = max(erring, key=lambda lane: (len(lane.tables), sorted(lane.tables)), default=None)
        if lane is None or lane.error is None:
            return None
        return replace(lane.error, table=lane.alone if self.witnessed(lane) else None)

    def arrived(self, orders: Orders) -> Mapping[TableId, Position]:
        """The tables that have reached the DDLs that hold them: the owner waits for that."""
        lanes = self.lanes
        held = ((table, at) for table, at in orders.barrier.held.items() if table in lanes.tables)
        return {table: at for table, at in held if lanes.checkpoint_of(table) == at}

    def report(
        self,
        orders: Orders,
        copies: Mapping[TableId, CopyProgress] | None = None,
        copying: AbstractSet[TableId] = frozenset(),
        *,
        now: float,
    ) -> PositionReport:
        lanes, (checkpoint, exceptions), released = self.lanes, self.lanes.reported(), self.lanes.released()
        error = self.trouble.error if self.trouble else self._error_of_lanes()
        return PositionReport(
            run=self.run if self.wanted(orders) or lanes.running or copying else 0,
            barrier_rev=orders.barrier_rev,
            assignment_rev=self.assignment_rev,
            checkpoint=checkpoint,
            exceptions=exceptions,
            released={table: released[table] for table in (orders.assignment.leaving & released.keys()) - copying},
            copies=copies or {},
            error=None if error is None or error.code == FencedError.code else error,
            failed=dict(islice(sorted(self.failed.items()), _MOST_REPORTED)),
            retried=dict(islice(sorted(self._retried().items()), _MOST_REPORTED)),
            stops={
                table: rev
                for table, rev in orders.stops.items()
                if table in lanes.tables and not lanes.busy(table) and table not in copying
            },
            rows=self.rows,
            flowing=self.flowed_at is not None and now < self.flowed_at + FLOWS_FOR.total_seconds(),
            reaches=self.reaches,
        )


def pause_after(failures: int) -> timedelta:
    return min(FIRST_PAUSE * (1 << min(failures - 1, 10)), LONGEST_PAUSE)


def slow_lane_moved(lanes: Lanes, job: LaneJob, now: float) -> Lanes:
    """A window of a slow lane begins or ends."""
    lane = lanes.lane_of(job)
    return lanes.with_lane(lane, replace(lane, moved_at=now)) if isinstance(lane, SlowLane) else lanes
