"""`succeeded`, `failed`: what follows from the end of a job: how far its tables are, which are replicated apart from now on, and when to try again. Pure.

A table that held up a window that succeeded is slow, and gets a lane of its own (`SlowLane`). After a failure:

    the error names one table, and lasts          the table has failed; the others go on at once
    it lasts, and names none                      no job begins before the next run
    it is a bug in a task, met by some table      each half of the job's tables tries again by itself, until one is left: that one has failed
    a row is of a table that nobody knows         all try again, until the owner has recorded it
    it may pass                                   all try again after a pause; when they fail again and again, in halves

A worked example of the last, tables a to d, of which d is on a shard that is away:

    the job of a, b, c, d fails four times        {a, b} and {c, d} try again, each with pauses of its own (`SuspectLane`)
    that of {a, b} succeeds                       a and b are with the others again, which are witnesses from now on
    that of {c, d} fails                          {c} and {d}
    that of {c} succeeds, that of {d} fails       d is reported as retried, with its error

If the source, the target or Spark is away, all parts fail: then few are made, and they are together again afterwards.
"""

from __future__ import annotations

from dataclasses import replace

from changefeed.errors import FencedError, HistoryLost, InvariantError, TableUnknown
from changefeed.lifecycle import ErrorReport
from changefeed.position import Window
from changefeed.table import TableId
from processor.following import DIVIDED_AFTER, Following, pause_after, slow_lane_moved
from processor.lanes.apart_lane import ApartLane, SinkShare, SlowLane, SuspectLane
from processor.lanes.lanes import LaneJob, Lanes
from processor.lanes.windows import Finished, Pace, WindowLimits, span_seconds
from processor.task.job import JobOutcome

_MOST_APART = 64
_MOST_IN_THE_DARK = 8
"""Parts of a window while no job at all succeeds."""


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
    whole = following.lanes.job(number)
    job = whole if outcome.ended is None else whole.cut(outcome.ended)
    finished = Finished(
        window=job.scan,
        asked=whole.scan,
        slices=outcome.slices,
        bytes=outcome.held,
        events=outcome.rows.tally.applied.total(),
        took=outcome.took,
        silent_until=outcome.silent_until,
    )
    lanes, paces = slow_lane_moved(following.lanes, whole, now), following.paces
    if (apart := lanes.lane_of(whole)) is not None:
        caught_up = span_seconds(Window(job.scan.end, max(job.scan.end, lanes.checkpoint))) <= 1
        keeps_up = caught_up and sum(outcome.rows.writing.values()) <= slow_seconds / 2
        lanes = _after_apart_job(lanes, apart, apart.pace.after(finished, limits), now, keeps_up=keeps_up)
    elif whole is lanes.default_job:
        lanes = _compared(lanes, outcome, now)
        paces = replace(paces, default=paces.default.after(finished, limits))
    else:
        paces = replace(paces, own=paces.own.after(finished, limits))
    slow = slowest(outcome, max(slow_seconds, span_seconds(job.scan) - 1))
    if apart is None and slow is not None and slow in lanes.tables and _has_others(whole):
        sink = SinkShare(share=1.0) if _wrote_alone(outcome) else SinkShare()
        lanes = lanes.put_apart(SlowLane(tables=frozenset({slow}), pace=paces.of(whole), sink=sink))
    after = replace(
        following,
        lanes=lanes.finished(number, outcome.rows.unsettled, outcome.rows.ahead, outcome.ended, uneven=outcome.uneven),
        paces=paces,
        trouble=following.trouble if following.trouble and following.trouble.retry_at is None else None,
        succeeded_at=now,
    )
    return replace(after, flowed_at=now) if outcome.rows.tally.applied else after


def _after_apart_job(lanes: Lanes, lane: ApartLane, pace: Pace, now: float, *, keeps_up: bool) -> Lanes:
    """Tables without fault, and a slow table that has caught up and keeps up, go on with the others."""
    if keeps_up or not isinstance(lane, SlowLane):
        return lanes.together(lane)
    return lanes.with_lane(lane, lane.after_window(pace, now))


def _compared(lanes: Lanes, outcome: JobOutcome, now: float) -> Lanes:
    """What small writes of the default lane had to wait counts for each slow lane that wrote, or stood still, all the while."""
    for lane in lanes.apart:
        if isinstance(lane, SlowLane) and outcome.rows.waits and lane.moved_at <= now - outcome.took.total_seconds():
            beside = any(map(lanes.busy, lane.tables))
            seen = lane.sink.seen(outcome.rows.waits, outcome.rows.waited, beside=beside)
            lanes = lanes.with_lane(lane, replace(lane, sink=seen))
    return lanes


def _has_others(job: LaneJob) -> bool:
    """Whether the job has several tables. Those without a row in its window wait for its end, too."""
    return max(len(job.tables), sum(job.of(table) is not None for table in job.own_windows)) > 1


def _wrote_alone(outcome: JobOutcome) -> bool:
    """Whether no other table has had a row. A window that has ended early says nothing of that."""
    return outcome.ended is None and len(outcome.rows.writing) == 1


def slowest(outcome: JobOutcome, seconds: float) -> TableId | None:
    """The table that held up a window, if the window took longer than so many seconds, and most of the time for that table."""
    took = outcome.took.total_seconds()
    return outcome.rows.busiest(took) if took > seconds else None


def failed(following: Following, number: int, error: ErrorReport, *, now: float, of_a_task: bool = True) -> Following:
    """A failure of one table alone leaves the others where they are.

    `of_a_task`: the error comes from the job's tasks, not from this process or from Spark.
    """
    job = following.lanes.job(number)
    windows = {table: window for table in following.lanes.tables if (window := job.of(table)) is not None}
    following = replace(following, lanes=slow_lane_moved(following.lanes, job, now).failed(number))
    if error.table is not None and error.table in following.lanes.tables and error.lasting:
        return following.table_failed(error.table, error)
    if error.code == TableUnknown.code:
        return following.with_error(error, now=now)
    following = _narrowed(following, job)
    if not error.lasting:
        return _tried_again(following, job, error, now=now)
    if error.code == HistoryLost.code and not job.tables:
        for table in sorted(table for table, window in windows.items() if window.start == job.scan.start):
            following = following.table_failed(table, error)
        return following
    if not of_a_task or error.code != InvariantError.code:
        return following.with_error(error, now=now)
    return _separated(
        following, SuspectLane(tables=frozenset(windows), pace=Pace(seconds=max(1, span_seconds(job.scan)))), error
    )


def _tried_again(following: Following, job: LaneJob, error: ErrorReport, *, now: float) -> Following:
    """The reason may pass. Until it does, one table that meets it must not stop the others of its window."""
    divides = not error.passes_at_once and error.code != FencedError.code
    lane = following.lanes.lane_of(job)
    if lane is None:
        return _divided(following, job, error, now=now, divides=divides)
    failures = lane.failures + 1 if divides else 1
    begins_at = now + pause_after(failures).total_seconds()
    paused = replace(lane, failures=failures, begins_at=begins_at, error=replace(error, table=None))
    if divides and _may_halve(following, lane) and isinstance(paused, SuspectLane):
        return replace(following, lanes=following.lanes.put_apart(*replace(paused, since=now).halves()))
    return replace(following, lanes=following.lanes.with_lane(lane, paused))


def _divided(following: Following, job: LaneJob, error: ErrorReport, *, now: float, divides: bool) -> Following:
    """The error is the node's, until its windows have failed again and again."""
    lanes, after = following.lanes, following.with_error(error, now=now)
    again = after.trouble is not None and after.trouble.failures >= DIVIDED_AFTER
    if not again or not divides or not job.tables or lanes.apart:
        return after
    tables = frozenset(table for table in lanes.tables if job.of(table) is not None)
    if len(tables) == 1:
        return after
    lane = SuspectLane(tables=tables, pace=Pace(seconds=1), since=now, error=error)
    return replace(after, trouble=None, lanes=lanes.put_apart(*lane.halves()))


def _may_halve(following: Following, lane: ApartLane) -> bool:
    most = _MOST_APART if following.witnessed(lane) else _MOST_IN_THE_DARK
    return lane.alone is None and not isinstance(lane, SlowLane) and len(following.lanes.apart) < most


def _separated(following: Following, lane: SuspectLane, error: ErrorReport) -> Following:
    """Nothing says which table meets the bug: each half of them tries again by itself."""
    if lane.alone is not None:
        return following.table_failed(lane.alone, error)
    return replace(following, lanes=following.lanes.put_apart(*lane.halves()))


def _narrowed(following: Following, job: LaneJob) -> Following:
    lanes, paces = following.lanes, following.paces
    if (apart := lanes.lane_of(job)) is not None:
        return replace(following, lanes=lanes.with_lane(apart, replace(apart, pace=apart.pace.after_failure(job.scan))))
    narrowed = paces.of(job).after_failure(job.scan)
    return replace(following, paces=replace(paces, **{"default" if job.tables else "own": narrowed}))
