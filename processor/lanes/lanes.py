"""`Lanes`: which tables are replicated by which job, and from where to where. Pure.

Most tables are at one position, the default checkpoint, and are replicated by one job at a time: the default lane. A table is
named only while it differs. A differing table that is near the default checkpoint joins the default lane's job with a window of its own.
Tables far behind or far ahead form lanes of their own, which run beside the default lane until they meet it.

A worked example: tables a, b, c at 100; near means 10 seconds, a window is 60 wide at most; a DDL holds b at 105, one holds c at 107:

    barrier                     job of the default lane         job beside it       afterwards
    110, b held 105, c 107      a [100,110) b [100,105)                             default 110, b 105, c 107
                                c [100,107)
    120, b held 105             a [110,120) c [107,120)                             default 120, b 105: c joined and merged
    170, b held 105             a, c [120,170)                                      default 170, b 105
    190, b held 105             a, c [170,190)                                      default 190, b 105
    200                         a, c [190,200)                  b [105,165)         default 200, b 165: b is far behind
    210                         a, c [200,210)                  b [165,200)         default 210, b 200: no further than the default
    220                         a, c [210,220) b [200,220)                          default 220: b joined and merged

A job is one attempt. `finished` moves the checkpoints of its tables. `failed` moves nothing, but what the job may have applied is
replay from then on (see `replay_of`). A table is unsettled when its window ended within its replay and some of its rows wait for later
events that the target may contain already. It keeps its checkpoint, and its next window is twice as wide, until a window contains all
such events (docs/why/order-and-replay.md).

**Apart.** A table that cannot keep up, or that may be the cause of a failure, does not set the pace of the others: it is replicated apart
(`apart_lane.py`).

    a job of a, b, c, d fails, and nothing says whose fault it is       apart {a, b}, {c, d}
    the job of {a, b} succeeds, that of {c, d} fails                    a and b are back in the default lane; apart {c}, {d}
    the job of {d} fails                                                d is the cause; c is back
    most of a long window's time was spent on a                         apart {a}, slow, until its windows are short again

Invariants (`check`): a table is in at most one running job, and its checkpoint is the start of its window there; the default lane has at
most one job; while that job runs, each table that is not in it is named, even if its checkpoint happens to equal the default; a leaving
table is in no new job. The cost of a tick is O(differing tables).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from changefeed.cluster_time import ClusterTime
from changefeed.errors import InvariantError
from changefeed.position import Position, Window
from changefeed.records.ddl import Barrier
from changefeed.table import TableId
from processor.lanes.apart_lane import ApartLane


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneJob:
    """`window` applies to all of `tables` that are not named. Named tables have their own window; it is empty if they take no part."""

    number: int
    window: Window
    tables: AbstractSet[TableId] = frozenset()
    own_windows: Mapping[TableId, Window] = field(default_factory=dict)
    replay_until: Position
    own_replay: Mapping[TableId, Position] = field(default_factory=dict)
    least: Position | None = None
    """The job does not end before it, however much it holds: an unsettled table needs a window as wide as that."""

    def of(self, table: TableId) -> Window | None:
        window = self.own_windows.get(table) or (self.window if table in self.tables else None)
        return None if window is None or window.empty else window

    def replay_of(self, table: TableId) -> Position:
        """Events of the table before this position may have been applied already."""
        return self.own_replay.get(table, self.replay_until)

    def cut(self, at: Position) -> LaneJob:
        """The job, ended early: no window of it goes further."""
        own = {table: _cut(window, at) for table, window in self.own_windows.items()}
        return replace(self, window=_cut(self.window, at), own_windows=own)

    def ends_ahead(self, table: TableId) -> bool:
        """Whether events of the table after its window may have been applied already."""
        window = self.of(table)
        return window is not None and window.end < self.replay_of(table)

    @property
    def scan(self) -> Window:
        """The range to read: from the lowest start to the highest end."""
        windows = [window for window in (self.window, *self.own_windows.values()) if not window.empty]
        return Window(min(window.start for window in windows), max(window.end for window in windows))


@dataclass(frozen=True, slots=True, kw_only=True)
class Lanes:
    checkpoint: Position
    tables: frozenset[TableId] = frozenset()
    exceptions: Mapping[TableId, Position] = field(default_factory=dict)
    leaving: frozenset[TableId] = frozenset()
    running: tuple[LaneJob, ...] = ()
    default_job: LaneJob | None = None
    """The default lane's job if it is running; it is in `running` too."""
    replay_until: Position
    own_replay: Mapping[TableId, Position] = field(default_factory=dict)
    apart: tuple[ApartLane, ...] = ()
    reach: Mapping[TableId, Position] = field(default_factory=dict)
    """How far the next window of a table goes at least, if its barrier allows it."""
    next_number: int = 1

    @classmethod
    def empty(cls, at: Position) -> Lanes:
        return cls(checkpoint=at, replay_until=at)

    def checkpoint_of(self, table: TableId) -> Position:
        return self.exceptions.get(table, self.checkpoint)

    def replay_of(self, table: TableId) -> Position:
        return self.own_replay.get(table, self.replay_until)

    def busy(self, table: TableId) -> bool:
        return any(job.of(table) for job in self.running)

    def reported(self) -> tuple[Position, Mapping[TableId, Position]]:
        """One checkpoint and the exceptions from it, for the position report."""
        return self.checkpoint, {table: at for table, at in self.exceptions.items() if at != self.checkpoint}

    def assign(self, starts: Mapping[TableId, Position], barrier: Barrier) -> Lanes:
        """Everything that an earlier node may have applied of a table is before the current barrier, so the table's replay ends there."""
        if assigned_before := self.tables & starts.keys():
            raise InvariantError(f"tables {sorted(assigned_before)} are assigned already")
        replay = {table: max(start, barrier.of(table)) for table, start in starts.items()}
        assigned = replace(
            self,
            tables=self.tables | starts.keys(),
            exceptions={**self.exceptions, **starts},
            replay_until=self.replay_until if self.tables else barrier.position,
            own_replay={**self.own_replay, **replay},
        )
        return _compacted(assigned)

    def leave(self, tables: Iterable[TableId]) -> Lanes:
        """The tables get no new job. They are `released` once no job has them."""
        return replace(self, leaving=self.leaving | (self.tables & frozenset(tables)))

    def released(self) -> Mapping[TableId, Position]:
        """The leaving tables that no job has, each with the position where it stopped."""
        return {table: self.checkpoint_of(table) for table in self.leaving if not self.busy(table)}

    def remove(self, tables: Iterable[TableId]) -> Lanes:
        gone = frozenset(tables)
        if running := sorted(table for table in gone if self.busy(table)):
            raise InvariantError(f"tables {running} are removed while they are replicated")
        left = replace(
            self,
            tables=self.tables - gone,
            leaving=self.leaving - gone,
            exceptions={table: at for table, at in self.exceptions.items() if table not in gone},
            own_replay={table: at for table, at in self.own_replay.items() if table not in gone},
            reach={table: at for table, at in self.reach.items() if table not in gone},
            apart=tuple(replace(lane, tables=lane.tables - gone) for lane in self.apart if not lane.tables <= gone),
        )
        return _compacted(left)

    def passed(self, places: Mapping[TableId, Position]) -> Lanes:
        """Moves checkpoints past changes that need not be applied. No job has these tables."""
        return _compacted(replace(self, exceptions={**self.exceptions, **places})) if places else self

    def lane_of(self, job: LaneJob) -> ApartLane | None:
        """The apart lane whose job it is."""
        named = {table for table in job.own_windows if job.of(table)}
        return next((lane for lane in self.apart if not job.tables and lane.tables & named), None)

    def put_apart(self, *lanes: ApartLane) -> Lanes:
        """No table is in two of these lanes."""
        tables = frozenset[TableId]().union(*(lane.tables for lane in lanes))
        rest = (replace(lane, tables=lane.tables - tables) for lane in self.apart)
        return replace(self, apart=(*(lane for lane in rest if lane.tables), *lanes))

    def together(self, lane: ApartLane) -> Lanes:
        """The tables of an apart lane are as any others."""
        return replace(self, apart=tuple(other for other in self.apart if other is not lane))

    def afresh(self) -> Lanes:
        """What failed is tried again at once."""
        return replace(self, apart=tuple(lane.afresh() for lane in self.apart))

    def with_lane(self, lane: ApartLane, changed: ApartLane) -> Lanes:
        return replace(self, apart=tuple(changed if it is lane else it for it in self.apart))

    def started(self, job: LaneJob) -> Lanes:
        return replace(
            self,
            running=(*self.running, job),
            default_job=job if job.tables else self.default_job,
            next_number=max(self.next_number, job.number + 1),
        )

    def finished(
        self,
        number: int,
        unsettled: AbstractSet[TableId] = frozenset(),
        ahead: Mapping[TableId, ClusterTime] = MappingProxyType({}),
        ended: Position | None = None,
        *,
        uneven: bool = False,
    ) -> Lanes:
        """Everything in the job's windows is durable downstream, except for the `unsettled` tables, whose windows have to be wider.

        `ended`: the windows ended there, before their ends. `uneven`: some rows after it may have been applied.

        `ahead`: tables with rows that were read from the source, each with the newest time of these rows. Events up to then are replay.
        """
        whole, left = self._ended(number)
        job = whole if ended is None else whole.cut(ended)
        left = _replaying(left, whole, default=whole is self.default_job) if uneven else left
        exceptions = dict(self.exceptions)
        for table, window in job.own_windows.items():
            if not window.empty:
                exceptions[table] = window.end
            elif whole is self.default_job:
                exceptions.setdefault(table, window.start)
        checkpoint = job.window.end if whole is self.default_job else self.checkpoint
        reach = {table: at for table, at in self.reach.items() if not job.of(table)}
        for table in unsettled:
            if unfinished := job.of(table):
                exceptions[table], reach[table] = unfinished.start, _twice(unfinished)
        exceptions = {table: at for table, at in exceptions.items() if table in self.tables}
        reach = {table: at for table, at in reach.items() if table in self.tables}
        own_replay = dict(left.own_replay)
        for table in self.tables & ahead.keys():
            own_replay[table] = max(left.replay_of(table), Position(ahead[table].next()))
        return _compacted(
            replace(left, checkpoint=checkpoint, exceptions=exceptions, reach=reach, own_replay=own_replay)
        )

    def failed(self, number: int) -> Lanes:
        """Any part of the job's windows may have been applied. Tables that the job did not have keep their replay; they are named for that."""
        job, ended = self._ended(number)
        return _compacted(_replaying(ended, job, default=job is self.default_job))

    def job(self, number: int) -> LaneJob:
        """The running job."""
        [job] = [job for job in self.running if job.number == number]
        return job

    def _ended(self, number: int) -> tuple[LaneJob, Lanes]:
        job = self.job(number)
        running = tuple(other for other in self.running if other is not job)
        default_job = None if job is self.default_job else self.default_job
        return job, replace(self, running=running, default_job=default_job)


def _cut(window: Window, at: Position) -> Window:
    return Window(window.start, max(window.start, min(window.end, at)))


def _twice(window: Window) -> Position:
    """The end of a window twice as wide, in whole seconds."""
    start, end = window.start.ts.seconds, window.end.ts.seconds
    return Position(ClusterTime(start + 2 * max(1, end - start), 0))


def _replaying(lanes: Lanes, job: LaneJob, *, default: bool) -> Lanes:
    """Any part of the job's windows may have been applied."""
    replay_until = max(lanes.replay_until, job.window.end) if default else lanes.replay_until
    named = {*lanes.exceptions, *job.own_windows, *lanes.own_replay} & lanes.tables
    own_replay = {
        table: max(lanes.replay_of(table), window.end) if (window := job.of(table)) else lanes.replay_of(table)
        for table in named
    }
    return replace(lanes, replay_until=replay_until, own_replay=own_replay)


def _compacted(lanes: Lanes) -> Lanes:
    """Names no more tables than needed: the default becomes the checkpoint of most tables, and replay that is over is forgotten."""
    checkpoint, exceptions = lanes.checkpoint, lanes.exceptions
    if lanes.default_job is None:
        plain = len(lanes.tables) - len(exceptions)
        if len(exceptions) > plain:
            most, count = Counter(exceptions.values()).most_common(1)[0]
            if count > plain:
                exceptions = {**exceptions, **dict.fromkeys(lanes.tables - exceptions.keys(), checkpoint)}
                checkpoint = most
        exceptions = {table: at for table, at in exceptions.items() if at != checkpoint}
    passed = lanes.replay_until
    own_replay = {
        table: until
        for table, until in lanes.own_replay.items()
        if until != passed and max(until, passed) > exceptions.get(table, checkpoint)
    }
    return replace(lanes, checkpoint=checkpoint, exceptions=exceptions, own_replay=own_replay)
