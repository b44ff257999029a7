"""What a node does next for one changefeed, and what it reports. Pure.

    orders (etcd)  ──obey──▶  lanes follow the assignment          starts no job
                   ──begin──▶ jobs to start now                    only in the run that the orders name, outside a back-off
    finished jobs  ──succeeded, failed──▶ checkpoints, or replay and a back-off
                   ──report──▶ what the owner may rely on

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

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import islice

from changefeed.errors import FencedError, HistoryLost, InvariantError
from changefeed.lifecycle import ErrorReport
from changefeed.position import Position, Window
from changefeed.records.copy import CopyProgress
from changefeed.records.ddl import Barrier
from changefeed.records.node import AssignedTable, Assignment, PositionReport, RowCounts
from changefeed.shards import Shards, differing
from changefeed.table import TableId
from processor.lanes.lane_plan import LaneLimits, Paces, plan
from processor.lanes.lanes import ApartLane, LaneJob, Lanes
from processor.lanes.sink_share import STILL_SECONDS, SinkShare
from processor.lanes.windows import Finished, Pace, WindowLimits, span_seconds
from processor.task.job import JobOutcome

FIRST_PAUSE = timedelta(milliseconds=500)
LONGEST_PAUSE = timedelta(seconds=10)
_DIVIDED_AFTER = 4
"""Failures of a window in a row, over about eight seconds: more than an election takes."""
_MOST_APART = 64
_MOST_IN_THE_DARK = 8
"""Parts of a window while no job at all succeeds."""
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
    """This node's state for one changefeed. `run` is the run of the jobs started last."""

    lanes: Lanes
    run: int = 0
    assignment_rev: int = 0
    given: Mapping[TableId, AssignedTable] = field(default_factory=dict)
    """Each table's entry in the assignment at the time when the lanes took the table."""
    paces: Paces = field(default_factory=Paces)
    trouble: Trouble | None = None
    failed: Mapping[TableId, ErrorReport] = field(default_factory=dict)
    """Tables that cannot go on in this run, each for a reason of its own. They get no more work until the owner has stopped them."""
    rows: RowCounts = field(default_factory=RowCounts)
    succeeded_at: float = float("-inf")
    """When a job last succeeded, in monotonic seconds."""
    looked_at: float | None = None
    """When a look last ended, in monotonic seconds. None: not since the changefeed was last without errors."""
    reaches: bool = False
    """That look found that everything can be reached."""
    flowed_at: float | None = None
    """When rows in scope were last applied, in monotonic seconds."""


def follow_orders(following: Following, orders: Orders, copying: AbstractSet[TableId] = frozenset()) -> Following:
    """Brings the lanes to the assignment, as far as running jobs allow, and takes over the orders' run once the last run is over.

    `copying` are the tables whose initial copy has a running task.
    """
    lanes, given = following.lanes, orders.assignment
    before = _error_of_lanes(following)
    if following.assignment_rev != orders.assignment_rev:
        changed = differing(following.given, given.tables)
        returned = {table for table in lanes.leaving - given.leaving if table in given.tables}
        gone = {table for table in changed if table in lanes.tables} | returned
        lanes = lanes.leave((lanes.tables & given.leaving) | gone)
        if free := [table for table in gone if not lanes.busy(table) and table not in copying]:
            lanes = lanes.remove(free)
        if new := {table for table in changed | gone if table in given.tables and table not in lanes.tables}:
            lanes = lanes.assign({table: given.tables[table].start for table in new}, orders.barrier)
        lanes = lanes.leave(given.leaving)
        waiting = gone & lanes.tables & lanes.leaving - given.leaving
        obeyed = _shards(given.tables).but(_only(following.given, waiting)) if waiting else given.tables
        following = replace(following, given=obeyed)
        if not waiting:
            following = replace(following, assignment_rev=orders.assignment_rev)
    if orders.running and following.run != orders.run and not lanes.running and not copying:
        following, lanes = replace(following, run=orders.run, trouble=None, failed={}), lanes.afresh()
    elif before is not None and following.trouble is None and not lanes.tables:
        error = replace(before, table=None)
        following = replace(following, trouble=Trouble(error=error, failures=1, retry_at=0.0))
    if not orders.troubled:
        following = replace(following, looked_at=None, reaches=False)
    failed = {
        table: error for table, error in following.failed.items() if table in lanes.tables and table not in orders.stops
    }
    return replace(following, lanes=lanes, failed=failed)


def _only(given: Mapping[TableId, AssignedTable], tables: AbstractSet[TableId]) -> dict[TableId, AssignedTable]:
    return {table: given[table] for table in tables if table in given}


def _shards(given: Mapping[TableId, AssignedTable]) -> Shards[AssignedTable]:
    return given if isinstance(given, Shards) else Shards(given)


def may_begin(following: Following, orders: Orders, *, now: float) -> bool:
    trouble = following.trouble
    paused = trouble is not None and (trouble.retry_at is None or now < trouble.retry_at)
    return orders.running and following.run == orders.run and not paused


def wanted(following: Following, orders: Orders) -> bool:
    """Whether what is running may go on."""
    return orders.running and following.run == orders.run


def in_the_way(following: Following, orders: Orders, number: int) -> bool:
    """Whether a running job has a table that is to be stopped, or to leave."""
    job = next(job for job in following.lanes.running if job.number == number)
    return any(job.of(table) for table in following.lanes.leaving | orders.stops.keys())


def may_look(following: Following, orders: Orders, *, now: float) -> bool:
    """Whether to look at source and target. A node without tables has no job that would show whether its own error is over, or whether
    it could do what another node fails to do. Neither has a node whose tables wait, as for a DDL whose other tables are on the node that fails.
    Where windows fail, a look shows whether the error came with a table.
    """
    if not following.lanes.tables:
        return may_begin(following, orders, now=now) and look_due(following, orders, now)
    waits = not following.lanes.running and now >= following.succeeded_at + LOOK_EVERY.total_seconds()
    runs = orders.running and following.run == orders.run
    return runs and _asked(following, orders, now) and (waits or following.trouble is not None)


def look_due(following: Following, orders: Orders, now: float) -> bool:
    return following.trouble is not None or _asked(following, orders, now)


def _asked(following: Following, orders: Orders, now: float) -> bool:
    return orders.troubled and (following.looked_at is None or now >= following.looked_at + LOOK_EVERY.total_seconds())


def looked(following: Following, orders: Orders, error: ErrorReport | None, *, now: float) -> Following:
    """A node with tables that go on learns its own errors from their windows. An error that lasts waits for the next run."""
    lasts = following.trouble is not None and following.trouble.retry_at is None
    if lasts or following.lanes.tables - standing_still(following, orders):
        return replace(following, looked_at=now, reaches=error is None)
    after = replace(following, trouble=None) if error is None else with_error(following, error, now=now)
    return replace(after, looked_at=now, reaches=error is None)


def begin(
    following: Following, orders: Orders, limits: LaneLimits, *, now: float, copying: Mapping[TableId, Position]
) -> list[LaneJob]:
    """The jobs to start. Tables in copy go no further than `copying` says, as if a DDL held them there; tables that stand still, nowhere."""
    if not may_begin(following, orders, now=now):
        return []
    lanes = following.lanes
    at_most = {table: min(limit, orders.barrier.of(table)) for table, limit in copying.items()}
    paused = [table for lane in lanes.apart if now < lane.retry_at for table in lane.tables]
    at_most |= {table: lanes.checkpoint_of(table) for table in (*paused, *standing_still(following, orders))}
    barrier = replace(orders.barrier, held={**orders.barrier.held, **at_most})
    return plan(following.lanes, barrier, following.paces, limits)


def rested(following: Following, now: float) -> Following:
    """A slow lane that has stood still long enough may begin, so nothing is due because of it any more."""
    lanes = following.lanes
    for lane in lanes.apart:
        if lane.error is None and 0 < lane.retry_at <= now:
            lanes = lanes.with_lane(lane, replace(lane, retry_at=0.0))
    return following if lanes is following.lanes else replace(following, lanes=lanes)


def standing_still(following: Following, orders: Orders) -> AbstractSet[TableId]:
    """Tables that get no work until a user acts."""
    return (orders.stops.keys() | following.failed.keys()) & following.lanes.tables


def begun(following: Following, job: LaneJob, *, now: float) -> Following:
    """A window that begins makes an earlier look outdated, unless it only tries again what failed."""
    begun = replace(following, lanes=_moved(following.lanes, job, now).started(job))
    return begun if begun.trouble is not None else replace(begun, looked_at=None, reaches=False)


def succeeded(
    following: Following,
    number: int,
    outcome: JobOutcome,
    limits: WindowLimits,
    *,
    now: float,
    slow_seconds: float = float("inf"),
) -> Following:
    """A successful job clears a passing error. Its unsettled tables keep their checkpoint."""
    whole = _job(following, number)
    job = whole if outcome.ended is None else whole.cut(outcome.ended)
    finished = Finished(
        window=job.scan,
        bytes=outcome.tally.bytes,
        events=outcome.tally.applied.total(),
        took=outcome.took,
        silent_until=outcome.silent_until,
    )
    lanes, paces = _moved(following.lanes, whole, now), following.paces
    if (apart := lanes.lane_of(whole)) is not None:
        caught_up = span_seconds(Window(job.scan.end, max(job.scan.end, lanes.checkpoint))) <= 1
        keeps_up = caught_up and sum(outcome.writing.values()) <= slow_seconds / 2
        lanes = _after_apart_job(lanes, apart, apart.pace.after(finished, limits), now, keeps_up=keeps_up)
    elif whole is lanes.default_job:
        lanes = _compared(lanes, outcome, now)
        paces = replace(paces, default=paces.default.after(finished, limits))
    else:
        paces = replace(paces, own=paces.own.after(finished, limits))
    slow = slowest(outcome, max(slow_seconds, span_seconds(job.scan) - 1))
    if apart is None and slow is not None and slow in lanes.tables and _has_others(whole):
        sink = SinkShare(share=1.0) if _wrote_alone(outcome) else SinkShare()
        lanes = lanes.put_apart(ApartLane(tables=frozenset({slow}), pace=paces.of(whole), slow=True, sink=sink))
    lasting = following.trouble if following.trouble and following.trouble.retry_at is None else None
    return replace(
        following,
        lanes=lanes.finished(number, outcome.unsettled, outcome.ahead, outcome.ended, uneven=outcome.uneven),
        paces=paces,
        trouble=lasting,
        succeeded_at=now,
        flowed_at=now if outcome.tally.applied else following.flowed_at,
    )


def flowing(following: Following, now: float) -> bool:
    return following.flowed_at is not None and now < following.flowed_at + FLOWS_FOR.total_seconds()


def counted(following: Following, outcome: JobOutcome) -> Following:
    """Rows are counted whether the job succeeded or failed."""
    rows = RowCounts.of(outcome.tally)
    return replace(following, rows=following.rows.plus(rows))


def pace_of(following: Following, job: LaneJob) -> Pace:
    apart = following.lanes.lane_of(job)
    return apart.pace if apart is not None else following.paces.of(job)


def _job(following: Following, number: int) -> LaneJob:
    [job] = [job for job in following.lanes.running if job.number == number]
    return job


def _after_apart_job(lanes: Lanes, lane: ApartLane, pace: Pace, now: float, *, keeps_up: bool) -> Lanes:
    """Tables without fault, and a slow table that has caught up and keeps up, go on with the others."""
    if keeps_up or not lane.slow:
        return lanes.together(lane)
    sink = lane.sink.after_window()
    begins_at = now + STILL_SECONDS if sink.stands_still else 0.0
    return lanes.with_lane(lane, replace(lane, pace=pace, sink=sink, failures=0, retry_at=begins_at, error=None))


def _moved(lanes: Lanes, job: LaneJob, now: float) -> Lanes:
    """A window of a lane apart begins or ends."""
    lane = lanes.lane_of(job)
    return lanes if lane is None else lanes.with_lane(lane, replace(lane, moved_at=now))


def _compared(lanes: Lanes, outcome: JobOutcome, now: float) -> Lanes:
    """What small writes of the default lane had to wait counts for each slow lane that wrote, or stood still, all the while."""
    for lane in lanes.apart:
        if lane.slow and outcome.waits and lane.moved_at <= now - outcome.took.total_seconds():
            beside = any(map(lanes.busy, lane.tables))
            seen = lane.sink.seen(outcome.waits, outcome.waited, beside=beside)
            lanes = lanes.with_lane(lane, replace(lane, sink=seen))
    return lanes


def sink_share(following: Following, job: LaneJob) -> float:
    """For which part of the time the job may keep the sink busy."""
    lane = following.lanes.lane_of(job)
    return lane.sink.share if lane is not None and lane.slow else 1.0


def settled(following: Following, job: LaneJob) -> bool:
    """Whether nothing is to be learned soon for the share of the job's lane."""
    lane = following.lanes.lane_of(job)
    return lane is not None and lane.slow and lane.sink.settled


def _has_others(job: LaneJob) -> bool:
    """Whether the job has several tables. Those without a row in its window wait for its end, too."""
    return max(len(job.tables), sum(job.of(table) is not None for table in job.own_windows)) > 1


def _wrote_alone(outcome: JobOutcome) -> bool:
    """Whether no other table has had a row. A window that has ended early says nothing of that."""
    return outcome.ended is None and len(outcome.writing) == 1


def slowest(outcome: JobOutcome, seconds: float) -> TableId | None:
    """The table that held up a window, if the window took longer than so many seconds, and most of the time for that table."""
    took = outcome.took.total_seconds()
    return outcome.busiest(took) if took > seconds else None


def failed(following: Following, number: int, error: ErrorReport, *, now: float, of_a_task: bool = True) -> Following:
    """A failure of one table alone leaves the others where they are. A bug may be met by one table, and nothing says by which: each half of the
    job's tables tries again by itself.

    `of_a_task`: the error comes from the job's tasks, not from this process or from Spark.
    """
    job = _job(following, number)
    windows = {table: window for table in following.lanes.tables if (window := job.of(table)) is not None}
    following = replace(following, lanes=_moved(following.lanes, job, now).failed(number))
    if error.table is not None and error.table in following.lanes.tables and error.lasting:
        return table_failed(following, error.table, error)
    following = _narrowed(following, job)
    if not error.lasting:
        return _tried_again(following, job, error, now=now)
    if error.code == HistoryLost.code and not job.tables:
        for table in sorted(table for table, window in windows.items() if window.start == job.scan.start):
            following = table_failed(following, table, error)
        return following
    if not of_a_task or error.code != InvariantError.code:
        return with_error(following, error, now=now)
    return _separated(following, sorted(windows), error, Pace(seconds=max(1, span_seconds(job.scan))))


def _tried_again(following: Following, job: LaneJob, error: ErrorReport, *, now: float) -> Following:
    """The reason may pass. Until it does, one table that meets it must not stop the others of its window, so a window that fails again and
    again is divided. If the source, the target or Spark is away, all parts fail: then few are made, and they are together again afterwards.
    """
    lanes = following.lanes
    lane = lanes.lane_of(job)
    if lane is None:
        after = with_error(following, error, now=now)
        again = after.trouble is not None and after.trouble.failures >= _DIVIDED_AFTER
        if not again or error.passes_at_once or error.code == FencedError.code or not job.tables or lanes.apart:
            return after
        tables = sorted(table for table in lanes.tables if job.of(table) is not None)
        if len(tables) == 1:
            return after
        halves = _halves(tables, ApartLane(tables=frozenset(tables), pace=Pace(seconds=1), since=now, error=error))
        return replace(after, trouble=None, lanes=lanes.put_apart(*halves))
    divides = not error.passes_at_once and error.code != FencedError.code
    failures = lane.failures + 1 if divides else 1
    paused = replace(
        lane, failures=failures, retry_at=now + _pause(failures).total_seconds(), error=replace(error, table=None)
    )
    most = _MOST_APART if _witnessed(following, lane) else _MOST_IN_THE_DARK
    if not divides or lane.alone is not None or len(lanes.apart) >= most:
        return replace(following, lanes=lanes.with_lane(lane, paused))
    return replace(following, lanes=lanes.put_apart(*_halves(sorted(lane.tables), replace(paused, since=now))))


def _witnessed(following: Following, lane: ApartLane) -> bool:
    """Whether other tables go on, so that the lane's failures are its own."""
    return following.succeeded_at > lane.since


def _halves(tables: Sequence[TableId], lane: ApartLane) -> list[ApartLane]:
    middle = len(tables) // 2
    return [replace(lane, tables=frozenset(half)) for half in (tables[:middle], tables[middle:])]


def retried(following: Following) -> Mapping[TableId, ErrorReport]:
    """The tables that fail alone while others go on."""
    return {
        lane.alone: replace(lane.error, table=lane.alone)
        for lane in following.lanes.apart
        if lane.alone is not None and lane.error is not None
        if lane.failures >= _DIVIDED_AFTER and _witnessed(following, lane)
    }


def _error_of_lanes(following: Following) -> ErrorReport | None:
    """The error of several tables says more than that of one."""
    erring = [lane for lane in following.lanes.apart if lane.error is not None]
    lane = max(erring, key=lambda lane: (len(lane.tables), sorted(lane.tables)), default=None)
    if lane is None or lane.error is None:
        return None
    return replace(lane.error, table=lane.alone if _witnessed(following, lane) else None)


def _separated(following: Following, tables: Sequence[TableId], error: ErrorReport, pace: Pace) -> Following:
    if len(tables) == 1:
        return table_failed(following, tables[0], error)
    halves = _halves(tables, ApartLane(tables=frozenset(tables), pace=pace))
    return replace(following, lanes=following.lanes.put_apart(*halves))


def _narrowed(following: Following, job: LaneJob) -> Following:
    lanes, paces = following.lanes, following.paces
    if (apart := lanes.lane_of(job)) is not None:
        return replace(following, lanes=lanes.with_lane(apart, replace(apart, pace=apart.pace.after_failure(job.scan))))
    narrowed = paces.of(job).after_failure(job.scan)
    return replace(following, paces=replace(paces, **{"default" if job.tables else "own": narrowed}))


def table_failed(following: Following, table: TableId, error: ErrorReport) -> Following:
    """The error is the table's alone: the others go on at once."""
    lane = next((lane for lane in following.lanes.apart if table in lane.tables), None)
    lanes = following.lanes.together(lane) if lane is not None and len(lane.tables) == 1 else following.lanes
    return replace(following, lanes=lanes, failed={table: error, **following.failed})


def moved(following: Following, places: Mapping[TableId, Position], orders: Orders) -> Following:
    """Moves the checkpoints of tables as their initial copy requires. No job has these tables. A leaving table stays marked as leaving."""
    lanes = following.lanes
    if places:
        lanes = lanes.remove(places).assign(places, orders.barrier).leave(lanes.leaving & places.keys())
    return replace(following, lanes=lanes)


def with_error(following: Following, error: ErrorReport, *, now: float) -> Following:
    """Records an error of this node: a copy may have met it with one table, and nothing says that it is the table's. The pause doubles from half a second to ten, but restarts at half a second for an error that passes at once.
    A permanent error waits for the next run.
    """
    error = error if error.lasting else replace(error, table=None)
    failures = following.trouble.failures + 1 if following.trouble and not error.passes_at_once else 1
    pause = _pause(failures)
    passing = error.retryable or error.code == FencedError.code
    trouble = Trouble(error=error, failures=failures, retry_at=now + pause.total_seconds() if passing else None)
    lasting = following.trouble
    if lasting is not None and lasting.retry_at is None:
        trouble = lasting
    return replace(following, trouble=trouble)


def _pause(failures: int) -> timedelta:
    return min(FIRST_PAUSE * (1 << min(failures - 1, 10)), LONGEST_PAUSE)


def retry_at(following: Following) -> float | None:
    """When the next pause is over. None: there is none."""
    lanes = following.lanes
    moments = [lane.retry_at for lane in lanes.apart if lane.retry_at and not any(map(lanes.busy, lane.tables))]
    if following.trouble is not None and following.trouble.retry_at is not None:
        moments.append(following.trouble.retry_at)
    return min(moments, default=None)


def arrived(following: Following, orders: Orders) -> Mapping[TableId, Position]:
    """The tables that have reached the DDLs that hold them: the owner waits for that."""
    lanes = following.lanes
    held = ((table, at) for table, at in orders.barrier.held.items() if table in lanes.tables)
    return {table: at for table, at in held if lanes.checkpoint_of(table) == at}


def report(
    following: Following,
    orders: Orders,
    copies: Mapping[TableId, CopyProgress] | None = None,
    copying: AbstractSet[TableId] = frozenset(),
    *,
    now: float,
) -> PositionReport:
    checkpoint, exceptions = following.lanes.reported()
    released = following.lanes.released()
    takes_part = orders.running and following.run == orders.run
    error = following.trouble.error if following.trouble else _error_of_lanes(following)
    return PositionReport(
        run=following.run if takes_part or following.lanes.running or copying else 0,
        barrier_rev=orders.barrier_rev,
        assignment_rev=following.assignment_rev,
        checkpoint=checkpoint,
        exceptions=exceptions,
        released={table: released[table] for table in (orders.assignment.leaving & released.keys()) - copying},
        copies=copies or {},
        error=None if error is None or error.code == FencedError.code else error,
        failed=dict(islice(sorted(following.failed.items()), _MOST_REPORTED)),
        retried=dict(islice(sorted(retried(following).items()), _MOST_REPORTED)),
        stops={
            table: rev
            for table, rev in orders.stops.items()
            if table in following.lanes.tables and not following.lanes.busy(table) and table not in copying
        },
        rows=following.rows,
        flowing=flowing(following, now),
        reaches=following.reaches,
    )
