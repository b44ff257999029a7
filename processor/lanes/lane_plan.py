"""Which jobs of which lanes to start now. Pure; `lanes.py` says what a lane is and shows an example.

In order of precedence:
- LeavingTableGetsNoJob
- HeldTableWaitsAtItsBarrier, and holds no other
- OneJobForTheDefaultLane: with all tables that stand at the default checkpoint, as soon as the barrier is ahead of it
- NearTableRidesAlong: it waits for a running job of the default lane rather than getting one of its own
- UnsettledTableReachesFurther: its window is as wide as it has to be, wherever the others of its lane end
- HindmostFirst: the other tables get jobs beside it, grouped by nearness, as long as there are places for jobs

Nobody starves: a job moves each of its tables, a lane behind is capped at the default checkpoint and merges there, and the
default lane has a place of its own and passes whatever is ahead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain

from changefeed.position import Position, Window
from changefeed.records import Barrier
from changefeed.table import TableId
from processor.lanes.lanes import LaneJob, Lanes
from processor.lanes.windows import Pace


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneLimits:
    near_seconds: int = 10
    """Of cluster time: how much is worth reading again so that a table can ride along."""
    jobs: int = 4
    """At once, one of them kept for the default lane: at least two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Paces:
    """How wide windows are in the default lane, and in the lanes beside it."""

    default: Pace = field(default_factory=Pace)
    own: Pace = field(default_factory=Pace)

    def of(self, job: LaneJob) -> Pace:
        return self.default if job.tables else self.own


def plan(lanes: Lanes, barrier: Barrier, paces: Paces, limits: LaneLimits) -> list[LaneJob]:
    """The jobs to start now."""
    standing = {table: lanes.checkpoint_of(table) for table in _differing(lanes, barrier)}
    idle = {
        table: at
        for table, at in standing.items()
        if at < barrier.of(table) and table not in lanes.leaving and not lanes.busy(table)
    }
    jobs: list[LaneJob] = []
    end = paces.default.end_of(lanes.checkpoint, barrier.position)
    near = {table: at for table, at in idle.items() if _apart(at, lanes.checkpoint) <= limits.near_seconds}
    if lanes.default_job is None and end > lanes.checkpoint and len(lanes.tables) > len(standing):
        windows = {
            table: Window(at, max(at, _end(lanes, table, end, barrier) if table in near else at))
            for table, at in standing.items()
        }
        jobs.append(_job(lanes, 0, Window(lanes.checkpoint, end), lanes.tables, windows, barrier))
    if lanes.default_job is not None or jobs:
        idle = {table: at for table, at in idle.items() if table not in near}
    beside = len(lanes.running) - (lanes.default_job is not None)
    for windows in _groups(idle, lanes, barrier, paces.own, limits)[: max(0, limits.jobs - 1 - beside)]:
        start = min(window.start for window in windows.values())
        jobs.append(_job(lanes, len(jobs), Window(start, start), frozenset(), windows, barrier))
    return jobs


def _differing(lanes: Lanes, barrier: Barrier) -> set[TableId]:
    """The tables to be named: all others stand at the default checkpoint, may go to the barrier, and are free."""
    beside = [job.own_windows.keys() for job in lanes.running if job is not lanes.default_job]
    return {*lanes.exceptions, *lanes.leaving, *lanes.reach, *barrier.held, *chain.from_iterable(beside)} & lanes.tables


def _groups(
    idle: Mapping[TableId, Position], lanes: Lanes, barrier: Barrier, pace: Pace, limits: LaneLimits
) -> list[dict[TableId, Window]]:
    """Lanes of near tables, the hindmost first. One that is behind the default lane ends where that one stands, so that they meet."""
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
    """Nobody has ever applied anything beyond a table's barrier: its replay ends there."""
    held = {table: barrier.of(table) for table in own_windows if barrier.of(table) < lanes.replay_of(table)}
    return LaneJob(
        number=lanes.next_number + offset,
        window=window,
        tables=tables,
        own_windows=own_windows,
        replay_until=lanes.replay_until,
        own_replay={**lanes.own_replay, **held} if held else lanes.own_replay,
    )


def _apart(a: Position, b: Position) -> int:
    return abs(a.ts.seconds - b.ts.seconds)
