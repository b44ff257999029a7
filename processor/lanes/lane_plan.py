"""`plan`: which jobs of which lanes to start now. Pure; `lanes.py` defines a lane and shows an example.

Policies, in order of precedence:
- LeavingTableGetsNoJob
- HeldTableWaitsAtItsBarrier, and holds no other table
- OneJobForTheDefaultLane: it has all tables at the default checkpoint, and starts as soon as the barrier is ahead of that checkpoint
- NamedTablesAreTheDefaultLaneToo: where DDLs hold all tables, as after each of many DDLs of one name, its job has those that are near, and its
  own window is empty. So their windows go to the task that stays
- NearTableJoinsTheDefaultJob: a near table waits for the running default job to end instead of getting a job of its own
- ApartTablesHaveJobsOfTheirOwn: they come first, as a failure or a slow table is found by them, and never join other tables
- UnsettledTableReachesFurther: its window is as wide as it has to be, wherever the other windows of its lane end, and is not ended early
- HindmostFirst: the other tables get jobs beside the default job, grouped by nearness, while the limit of jobs allows

No table starves: a job moves each of its tables, a lane that is behind ends at the default checkpoint and merges there, and one job is
reserved for the default lane, which reaches and passes every table that is ahead of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain

from changefeed.cluster_time import ClusterTime
from changefeed.position import Position, Window
from changefeed.records.ddl import Barrier
from changefeed.table import TableId
from processor.lanes.lanes import LaneJob, Lanes
from processor.lanes.windows import Pace


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneLimits:
    near_seconds: int = 10
    """How many seconds of cluster time are worth reading again so that a table can join the default job."""
    jobs: int = 4
    """Jobs at once, one of them reserved for the default lane: at least two."""
    copy_follows_after: int = 60
    """How many seconds of cluster time the checkpoint of a table in copy may be behind before it moves."""
    copy_divides_after: int = 120
    """Seconds after which a chunk is divided where it has been read to. Snapshots are kept for five minutes."""
    slow_seconds: float = 0.4
    """A window that takes longer, and longer than it spans, and more than half of that for one table, is held up by that table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Paces:
    """How wide the windows are in the default lane, and in the lanes beside it."""

    default: Pace = field(default_factory=Pace)
    own: Pace = field(default_factory=Pace)

    def of(self, job: LaneJob) -> Pace:
        return self.default if job.tables else self.own


def plan(lanes: Lanes, barrier: Barrier, paces: Paces, limits: LaneLimits) -> list[LaneJob]:
    """The jobs to start now."""
    checkpoints = {table: lanes.checkpoint_of(table) for table in _differing(lanes, barrier)}
    idle = {
        table: at
        for table, at in checkpoints.items()
        if at < barrier.of(table) and table not in lanes.leaving and not lanes.busy(table)
    }
    jobs: list[LaneJob] = []
    apart = frozenset[TableId]().union(*(lane.tables for lane in lanes.apart))
    own_jobs = _apart_windows(lanes, idle, barrier)
    idle = {table: at for table, at in idle.items() if table not in apart}
    end = paces.default.end_of(lanes.checkpoint, barrier.position)
    near = {table: at for table, at in idle.items() if _apart(at, lanes.checkpoint) <= limits.near_seconds}
    if lanes.default_job is None and end > lanes.checkpoint:
        windows = {
            table: Window(at, max(at, _end(lanes, table, end, barrier) if table in near else at))
            for table, at in checkpoints.items()
        }
        plain = len(lanes.tables) > len(checkpoints)
        if plain or any(not window.empty for window in windows.values()):
            window = Window(lanes.checkpoint, end if plain else lanes.checkpoint)
            jobs.append(_job(lanes, 0, window, lanes.tables, windows, barrier))
    if lanes.default_job is not None or jobs:
        idle = {table: at for table, at in idle.items() if table not in near}
    beside = len(lanes.running) - (lanes.default_job is not None)
    groups = [*own_jobs, *_groups(idle, lanes, barrier, paces.own, limits)]
    for windows in groups[: max(0, limits.jobs - 1 - beside)]:
        start = min(window.start for window in windows.values())
        jobs.append(_job(lanes, len(jobs), Window(start, start), frozenset(), windows, barrier))
    return jobs


def _differing(lanes: Lanes, barrier: Barrier) -> set[TableId]:
    """The tables that must be named. All others are at the default checkpoint, may go to the barrier, and are in no other job or lane."""
    beside = chain.from_iterable(job.own_windows for job in lanes.running if job is not lanes.default_job)
    apart = chain.from_iterable(lane.tables for lane in lanes.apart)
    return {*lanes.exceptions, *lanes.leaving, *lanes.reach, *barrier.held, *beside, *apart} & lanes.tables


def _apart_windows(lanes: Lanes, idle: Mapping[TableId, Position], barrier: Barrier) -> Iterator[dict[TableId, Window]]:
    """A lane with a running job waits for it."""
    for lane in lanes.apart:
        starts = {table: idle[table] for table in lane.tables & idle.keys()}
        if starts and not any(lanes.busy(table) for table in lane.tables):
            end = lane.pace.end_of(min(starts.values()), barrier.position)
            yield {table: Window(at, _end(lanes, table, max(at, end), barrier)) for table, at in starts.items()}


def _groups(
    idle: Mapping[TableId, Position], lanes: Lanes, barrier: Barrier, pace: Pace, limits: LaneLimits
) -> list[dict[TableId, Window]]:
    """Lanes of near tables, the hindmost first. A lane behind the default lane ends at the default checkpoint at most, so that they meet."""
    left = sorted(idle, key=lambda table: (idle[table], table))
    groups: list[dict[TableId, Window]] = []
    while left:
        start = idle[left[0]]
        end = pace.end_of(start, barrier.position)
        if start < lanes.checkpoint:
            end = min(end, lanes.checkpoint)
        group = {
            table: Window(idle[table], _end(lanes, table, end, barrier))
            for table in left
            if idle[table] < end and _apart(idle[table], start) <= limits.near_seconds
        }
        groups.append(group)
        left = [table for table in left if table not in group]
    return groups


def _end(lanes: Lanes, table: TableId, end: Position, barrier: Barrier) -> Position:
    return min(max(end, lanes.reach.get(table, end)), barrier.of(table))


def _job(
    lanes: Lanes,
    offset: int,
    window: Window,
    tables: frozenset[TableId],
    own_windows: Mapping[TableId, Window],
    barrier: Barrier,
) -> LaneJob:
    """No processor has ever applied anything beyond a table's barrier, so its replay ends there."""
    held = {table: barrier.of(table) for table in own_windows if barrier.of(table) < lanes.replay_of(table)}
    unsettled = [table for table in lanes.reach if table in own_windows and not own_windows[table].empty]
    return LaneJob(
        number=lanes.next_number + offset,
        window=window,
        tables=tables,
        own_windows=own_windows,
        replay_until=lanes.replay_until,
        own_replay={**lanes.own_replay, **held} if held else lanes.own_replay,
        least=max((min(lanes.reach[table], own_windows[table].end) for table in unsettled), default=None),
    )


def _apart(a: Position, b: Position) -> int:
    return abs(a.ts.seconds - b.ts.seconds)


def unhurried(job: LaneJob, barrier: Barrier, target: ClusterTime | None) -> bool:
    """Whether a window may wait, so that a sink that commits gets few large windows and not many small ones.

        commit interval 60 s    a window of tables that follow, to the barrier         waits until 60 s after the last one began
                                one that ends before the barrier: there is more        begins at once
                                one that brings a table to the DDL that holds it       begins at once
        the barrier is the target                              begins at once

    The oplog is the queue: what waits is read later, in one pass.
    """
    if target is not None and barrier.position.ts >= target:
        return False
    return all(window.end == barrier.position for window in (job.window, *job.own_windows.values()) if not window.empty)
