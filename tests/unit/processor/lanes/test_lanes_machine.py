"""I1, I2, I7 for lanes: in any order of events, each table's range is applied once, in order, never beyond its barrier, and to the end."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from changefeed.cluster_time import ClusterTime
from changefeed.position import Position
from changefeed.records.ddl import Barrier
from changefeed.table import TableId
from processor.lanes.apart_lane import SlowLane, SuspectLane
from processor.lanes.lane_plan import LaneLimits, Paces, plan
from processor.lanes.lanes import LaneJob, Lanes
from processor.lanes.windows import Pace
from tests.invariants import check_lanes

TABLES = [TableId(name) for name in "abcdef"]
LIMITS = LaneLimits(near_seconds=10, jobs=3)
PACES = Paces(default=Pace(seconds=30), own=Pace(seconds=20))
START = 1000


def at(seconds: int) -> Position:
    return Position(ClusterTime(seconds, 0))


class LanesMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = START
        self.held: dict[TableId, int] = {}
        self.lanes = Lanes.empty(at(START))
        self.applied: dict[TableId, Position] = {}
        self.touched: dict[TableId, Position] = {}
        self.wider: dict[TableId, Position] = {}

    @property
    def barrier(self) -> Barrier:
        return Barrier(epoch=1, position=at(self.now), held={table: at(place) for table, place in self.held.items()})

    def assign(self, tables: Sequence[TableId], behind: int) -> None:
        starts = {}
        for table in set(tables) - self.lanes.tables:
            start = self.applied.get(table, at(max(START, min(self.now, self.held.get(table, self.now)) - behind)))
            starts[table] = self.applied[table] = start
            self.touched.setdefault(table, start)
        if starts:
            self.lanes = self.lanes.assign(starts, self.barrier)

    @initialize(tables=st.sets(st.sampled_from(TABLES), min_size=1))
    def begin(self, tables: set[TableId]) -> None:
        self.assign(sorted(tables), 0)

    @rule(tables=st.sets(st.sampled_from(TABLES)), behind=st.integers(0, 200))
    def assign_more(self, tables: set[TableId], behind: int) -> None:
        self.assign(sorted(tables), behind)

    @rule(seconds=st.integers(1, 10) | st.integers(50, 150))
    def time_passes(self, seconds: int) -> None:
        self.now += seconds

    @rule(table=st.sampled_from(TABLES))
    def hold(self, table: TableId) -> None:
        self.held.setdefault(table, self.now)

    @rule()
    def release(self) -> None:
        self.held.clear()

    @rule()
    def tick(self) -> None:
        for job in plan(self.lanes, self.barrier, PACES, LIMITS):
            assert any(job.of(table) for table in self.lanes.tables), "a job of nothing"
            for table in self.lanes.tables:
                if window := job.of(table):
                    assert not self.lanes.busy(table), "two jobs for one table"
                    assert table not in self.lanes.leaving
                    assert window.end <= self.barrier.of(table), "beyond the barrier"
                    assert window.start == self.applied[table], "a gap, or again"
                    assert job.scan.start <= window.start
                    assert window.end <= job.scan.end
                    last = self.wider.pop(table, None)
                    assert last is None or window.end > last or window.end == self.barrier.of(table), "no wider"
                    lane = next((lane for lane in self.lanes.apart if table in lane.tables), None)
                    named = {each for each in self.lanes.tables if job.of(each)}
                    assert lane is None or named <= lane.tables, "an apart table in a job with others"
                    again = min(self.touched[table], window.end)
                    assert again <= max(window.start, job.replay_of(table)), "replay taken for divergence"
            self.lanes = self.lanes.started(job)
        beside = [job for job in self.lanes.running if job is not self.lanes.default_job]
        assert len(beside) < LIMITS.jobs

    def ends(self, job: LaneJob) -> dict[TableId, Position]:
        return {table: window.end for table in self.lanes.tables if (window := job.of(table))}

    @precondition(lambda self: self.lanes.running)
    @rule(choice=st.integers(0, 5))
    def finish(self, choice: int) -> None:
        job = self.lanes.running[choice % len(self.lanes.running)]
        ends = self.ends(job)
        self.lanes = self.lanes.finished(job.number)
        self.applied |= ends
        self.touched |= {table: max(end, self.touched[table]) for table, end in ends.items()}

    @precondition(lambda self: self.lanes.running)
    @rule(
        choice=st.integers(0, 5),
        after=st.integers(0, 80),
        tables=st.sets(st.sampled_from(TABLES)),
        uneven=st.booleans(),
    )
    def finish_early(self, choice: int, after: int, tables: set[TableId], uneven: bool) -> None:
        """The window held too much, or the sink was too slow. A target that is ahead of some rows is so here, too."""
        job = self.lanes.running[choice % len(self.lanes.running)]
        ended = max(at(job.scan.start.ts.seconds + after), job.least or at(0))
        whole, early = self.ends(job), job.cut(ended)
        ends = {table: early.of(table).end if early.of(table) else self.applied[table] for table in whole}  # type: ignore[union-attr]
        unsettled = {table for table in tables & ends.keys() if early.ends_ahead(table)}
        self.lanes = self.lanes.finished(job.number, unsettled, ended=ended, uneven=uneven)
        self.applied |= {table: end for table, end in ends.items() if table not in unsettled}
        touched = whole if uneven else ends
        self.touched |= {table: max(end, self.touched[table]) for table, end in touched.items()}
        self.wider |= {table: ends[table] for table in unsettled}

    @precondition(lambda self: self.lanes.running)
    @rule(choice=st.integers(0, 5), tables=st.sets(st.sampled_from(TABLES)))
    def finish_in_part(self, choice: int, tables: set[TableId]) -> None:
        """The target is ahead of the rows of some tables: the next window includes more of the events that explain them."""
        job = self.lanes.running[choice % len(self.lanes.running)]
        ends = self.ends(job)
        unsettled = {table for table in tables & ends.keys() if job.ends_ahead(table)}
        self.lanes = self.lanes.finished(job.number, unsettled)
        self.applied |= {table: end for table, end in ends.items() if table not in unsettled}
        self.touched |= {table: max(end, self.touched[table]) for table, end in ends.items()}
        self.wider |= {table: ends[table] for table in unsettled}

    @precondition(lambda self: self.lanes.running)
    @rule(choice=st.integers(0, 5))
    def fail(self, choice: int) -> None:
        job = self.lanes.running[choice % len(self.lanes.running)]
        ends = self.ends(job)
        self.lanes = self.lanes.failed(job.number)
        self.touched |= {table: max(end, self.touched[table]) for table, end in ends.items()}

    @rule(tables=st.lists(st.sampled_from(TABLES), unique=True, min_size=1), cut=st.integers(0, 5), slow=st.booleans())
    def put_apart(self, tables: list[TableId], cut: int, slow: bool) -> None:
        """At any time, also while a job has some of the tables."""
        parts = (frozenset(tables[:cut]) & self.lanes.tables, frozenset(tables[cut:]) & self.lanes.tables)
        kind = SlowLane if slow else SuspectLane
        lanes = [kind(tables=part, pace=Pace(seconds=5)) for part in parts if part]
        self.lanes = self.lanes.put_apart(*lanes)

    @precondition(lambda self: self.lanes.apart)
    @rule(choice=st.integers(0, 5))
    def put_together(self, choice: int) -> None:
        self.lanes = self.lanes.together(self.lanes.apart[choice % len(self.lanes.apart)])

    @rule(tables=st.sets(st.sampled_from(TABLES)))
    def leave(self, tables: set[TableId]) -> None:
        self.lanes = self.lanes.leave(tables)

    @rule()
    def give_up_what_is_released(self) -> None:
        released = self.lanes.released()
        assert all(place == self.applied[table] for table, place in released.items())
        self.wider = {table: end for table, end in self.wider.items() if table not in released}
        self.lanes = self.lanes.remove(released)

    @invariant()
    def stands_where_it_was_applied(self) -> None:
        check_lanes(self.lanes)
        default, exceptions = self.lanes.reported()
        for table in self.lanes.tables:
            assert exceptions.get(table, default) == self.applied[table]
            assert self.lanes.checkpoint_of(table) == self.applied[table]
            bound = max(self.touched[table], self.applied[table], at(self.now))
            assert self.lanes.replay_of(table) <= bound, "divergence taken for replay"

    def teardown(self) -> None:
        """When the barrier stops, all tables reach it in a bounded number of jobs, and end in one lane."""
        held = [table for table in self.held if table in self.lanes.tables]
        self.arrive()
        for lane in self.lanes.apart:
            self.lanes = self.lanes.together(lane)
        self.now += 1
        self.arrive()
        if not held and not self.lanes.leaving and self.lanes.tables:
            assert self.lanes.reported() == (at(self.now), {}), "not merged"

    def arrive(self) -> None:
        for _ in range(40 + 2 * (self.now - START)):
            self.tick()
            if not self.lanes.running:
                break
            self.finish(0)
        assert not self.lanes.running, "not at the barrier in time"
        for table in self.lanes.tables - self.lanes.leaving:
            assert self.applied[table] == max(self.applied[table], self.barrier.of(table)), "starved"


TestLanes = LanesMachine.TestCase
TestLanes.settings = settings(max_examples=150, stateful_step_count=40)
