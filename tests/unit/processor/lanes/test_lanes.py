from __future__ import annotations

import pytest

from changefeed.cluster_time import ClusterTime
from changefeed.errors import InvariantError
from changefeed.position import Position, Window
from changefeed.records.ddl import Barrier
from changefeed.table import TableId
from processor.lanes.lane_plan import LaneLimits, Paces, plan
from processor.lanes.lanes import LaneJob, Lanes
from tests.invariants import check_lanes

A, B, C, D = (TableId(name) for name in "abcd")
LIMITS = LaneLimits(near_seconds=10, jobs=4)
WIDE = Paces()


def at(seconds: int) -> Position:
    return Position(ClusterTime(seconds, 0))


def barrier(seconds: int, **held: int) -> Barrier:
    return Barrier(epoch=1, position=at(seconds), held={TableId(name): at(place) for name, place in held.items()})


def lanes_at(**starts: int) -> Lanes:
    lowest = min(starts.values())
    return Lanes.empty(at(lowest)).assign({TableId(name): at(place) for name, place in starts.items()}, barrier(lowest))


def start(lanes: Lanes, now: Barrier, limits: LaneLimits = LIMITS) -> tuple[Lanes, list[LaneJob]]:
    jobs = plan(lanes, now, WIDE, limits)
    for job in jobs:
        lanes = lanes.started(job)
        check_lanes(lanes)
    return lanes, jobs


def run(lanes: Lanes, now: Barrier) -> tuple[Lanes, list[dict[str, tuple[int, int]]]]:
    """Starts and finishes all jobs that may start; returns the work of each job, by table."""
    lanes, jobs = start(lanes, now)
    for job in jobs:
        lanes = lanes.finished(job.number)
    return lanes, [ranges(lanes, job) for job in jobs]


def ranges(lanes: Lanes, job: LaneJob) -> dict[str, tuple[int, int]]:
    windows = {table: job.of(table) for table in sorted(lanes.tables)}
    return {table: (window.start.ts.seconds, window.end.ts.seconds) for table, window in windows.items() if window}


def stand(lanes: Lanes) -> dict[str, int]:
    return {table: lanes.checkpoint_of(table).ts.seconds for table in sorted(lanes.tables)}


def test_the_worked_example() -> None:
    lanes = lanes_at(a=100, b=100, c=100)
    lanes, done = run(lanes, barrier(110, b=105, c=107))
    assert done == [{"a": (100, 110), "b": (100, 105), "c": (100, 107)}]
    assert lanes.reported() == (at(110), {B: at(105), C: at(107)})
    lanes, done = run(lanes, barrier(120, b=105))
    assert done == [{"a": (110, 120), "c": (107, 120)}]
    assert lanes.reported() == (at(120), {B: at(105)})
    lanes, _ = run(lanes, barrier(170, b=105))
    lanes, done = run(lanes, barrier(190, b=105))
    assert done == [{"a": (170, 190), "c": (170, 190)}]
    lanes, done = run(lanes, barrier(200))
    assert done == [{"a": (190, 200), "c": (190, 200)}, {"b": (105, 165)}]
    lanes, done = run(lanes, barrier(210))
    assert done == [{"a": (200, 210), "c": (200, 210)}, {"b": (165, 200)}]
    lanes, done = run(lanes, barrier(220))
    assert done == [{"a": (210, 220), "b": (200, 220), "c": (210, 220)}]
    assert lanes.reported() == (at(220), {})


def test_a_held_table_waits_and_holds_no_other() -> None:
    lanes = lanes_at(a=100, b=100)
    lanes, done = run(lanes, barrier(110, b=100))
    assert done == [{"a": (100, 110)}]
    assert stand(lanes) == {"a": 110, "b": 100}
    assert run(lanes, barrier(110, b=100))[1] == []


def test_a_lane_whose_only_table_is_held_runs_nothing() -> None:
    lanes = lanes_at(a=100)
    assert run(lanes, barrier(110, a=100)) == (lanes, [])
    lanes, done = run(lanes, barrier(110, a=104))
    assert done == [{"a": (100, 104)}]
    assert run(lanes, barrier(115))[1] == [{"a": (104, 115)}]


def test_where_ddls_hold_all_tables_those_that_are_near_go_on_in_the_job_of_the_default_lane() -> None:
    _, [job] = start(lanes_at(a=100, b=100), barrier(110, a=104, b=105))
    assert job.tables
    assert job.window.empty
    assert (job.of(TableId("a")), job.of(TableId("b"))) == (Window(at(100), at(104)), Window(at(100), at(105)))


def test_a_table_released_while_the_others_stand_still_gets_a_job_of_its_own_at_once() -> None:
    lanes, _ = run(lanes_at(a=100, b=100), barrier(110, b=105))
    assert run(lanes, barrier(110))[1] == [{"b": (105, 110)}]


def test_a_near_table_waits_for_the_running_job_of_the_default_lane_and_rides_in_the_next() -> None:
    lanes, _ = run(lanes_at(a=100, b=100), barrier(110, b=105))
    lanes, [running] = start(lanes, barrier(112, b=105))
    assert plan(lanes, barrier(113), WIDE, LIMITS) == []
    lanes = lanes.finished(running.number)
    assert run(lanes, barrier(115))[1] == [{"a": (112, 115), "b": (105, 115)}]


def test_tables_far_behind_catch_up_beside_the_others_grouped_by_nearness_and_hindmost_first() -> None:
    lanes = lanes_at(a=5000, b=100, c=105, d=2000)
    lanes = lanes.assign({TableId("e"): at(5000)}, barrier(5000))
    _, jobs = start(lanes, barrier(5010))
    assert [ranges(lanes, job) for job in jobs] == [
        {"a": (5000, 5010), "e": (5000, 5010)},
        {"b": (100, 160), "c": (105, 160)},
        {"d": (2000, 2060)},
    ]
    _, jobs = start(lanes, barrier(5010), LaneLimits(jobs=2))
    assert len(jobs) == 2


def test_a_table_far_ahead_is_not_held_back_by_a_default_lane_that_catches_up() -> None:
    lanes = lanes_at(a=100, b=100, c=5000)
    assert run(lanes, barrier(5010))[1] == [{"a": (100, 160), "b": (100, 160)}, {"c": (5000, 5010)}]


def test_a_table_assigned_while_a_job_runs_is_not_taken_for_one_of_its_tables() -> None:
    lanes, [job] = start(lanes_at(a=100), barrier(110))
    lanes = lanes.assign({B: at(100)}, barrier(110))
    assert not lanes.busy(B)
    lanes = lanes.finished(job.number)
    assert stand(lanes) == {"a": 110, "b": 100}
    assert run(lanes, barrier(112))[1] == [{"a": (110, 112), "b": (100, 112)}]


def test_a_leaving_table_is_released_where_its_last_job_ends() -> None:
    lanes, [job] = start(lanes_at(a=100, b=100), barrier(110))
    lanes = lanes.leave([B])
    assert lanes.released() == {}
    with pytest.raises(InvariantError, match="while they are replicated"):
        lanes.remove([B])
    lanes, done = run(lanes.finished(job.number), barrier(120))
    assert done == [{"a": (110, 120)}]
    assert lanes.released() == {B: at(110)}
    assert stand(lanes.remove([B])) == {"a": 120}


def test_a_table_is_not_assigned_twice() -> None:
    with pytest.raises(InvariantError, match="assigned already"):
        lanes_at(a=100).assign({A: at(100)}, barrier(100))


def test_a_failed_job_is_run_again_from_the_same_place() -> None:
    lanes, [job] = start(lanes_at(a=100, b=100), barrier(110, b=104))
    lanes = lanes.failed(job.number)
    assert run(lanes, barrier(120, b=104))[1] == [{"a": (100, 120), "b": (100, 104)}]


def test_what_was_before_the_barrier_at_the_start_is_replay_and_nothing_after_it() -> None:
    lanes = Lanes.empty(at(100)).assign({A: at(100), B: at(100)}, barrier(130, b=120))
    _, [job] = start(lanes, barrier(150))
    assert (job.replay_of(A), job.replay_of(B)) == (at(130), at(120))
    assert job.scan == Window(at(100), at(150))


def test_a_failed_job_makes_replay_of_its_own_windows_only() -> None:
    lanes, _ = run(lanes_at(a=100, b=100, c=100), barrier(110, b=105))
    lanes, [job] = start(lanes, barrier(120, b=105, c=115))
    lanes = lanes.failed(job.number)
    assert (lanes.replay_of(A), lanes.replay_of(C)) == (at(120), at(115))
    assert lanes.replay_of(B) <= at(105)
    lanes, _ = run(lanes, barrier(120))
    lanes, [job] = start(lanes, barrier(130))
    assert all(job.replay_of(table) <= at(120) for table in (A, B, C))
    assert lanes.own_replay == {}


def test_a_table_with_a_repaired_row_is_replayed_until_the_row_was_read() -> None:
    lanes, [job] = start(lanes_at(a=100, b=100), barrier(110))
    lanes = lanes.finished(job.number, ahead={A: at(114).ts})
    lanes, [job] = start(lanes, barrier(120))
    assert at(114) < job.replay_of(A) < at(115)
    assert job.replay_of(B) <= at(110)
    lanes = lanes.finished(job.number)
    assert lanes.own_replay == {}


def test_a_table_is_named_only_while_it_differs() -> None:
    many = {TableId(f"{number:04}"): at(100) for number in range(2000)}
    lanes = Lanes.empty(at(50)).assign(many, barrier(105))
    assert lanes.reported() == (at(100), {})
    assert (lanes.replay_until, lanes.own_replay) == (at(105), {})
    lanes, [job] = start(lanes, Barrier(epoch=1, position=at(110), held={TableId("0007"): at(103)}))
    assert job.own_windows == {TableId("0007"): Window(at(100), at(103))}
    assert lanes.finished(job.number).reported() == (at(110), {TableId("0007"): at(103)})


def test_a_window_may_end_early_and_an_unsettled_table_goes_at_least_twice_as_far_then() -> None:
    lanes, [job] = start(lanes_at(a=100, b=100), barrier(160))
    assert job.least is None
    lanes = lanes.finished(job.number, {A}, ended=at(110))
    assert stand(lanes) == {"a": 100, "b": 110}
    lanes, [job] = start(lanes, barrier(160))
    assert job.least == at(120)
    lanes = lanes.finished(job.number, {A}, ended=at(125))
    lanes, jobs = start(lanes, barrier(140))
    assert [(job.least, ranges(lanes, job)) for job in jobs if job.of(A)] == [(at(140), {"a": (100, 140)})]


def test_a_window_whose_buckets_ended_at_different_places_is_replay_after_the_first_of_them() -> None:
    lanes, [job] = start(lanes_at(a=100, b=100), barrier(160))
    lanes = lanes.finished(job.number, ended=at(110), uneven=True)
    assert stand(lanes) == {"a": 110, "b": 110}
    assert (lanes.replay_of(A), lanes.replay_of(B)) == (at(160), at(160))
