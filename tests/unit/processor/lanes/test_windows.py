from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from changefeed.capture import Capture
from changefeed.cluster_time import ClusterTime
from changefeed.position import Position, Window
from processor.lanes.windows import Finished, Pace, WindowLimits, slices, span_seconds

MIB = 1024 * 1024
LIMITS = WindowLimits(bytes=256 * MIB, duration=timedelta(seconds=20))

positions = st.builds(
    Position,
    st.builds(ClusterTime, st.integers(1000, 1100) | st.integers(0, 2**32 - 1), st.integers(0, 3)),
    st.sampled_from(["", "8201", "8202"]),
)
windows = st.tuples(positions, positions).map(lambda ends: Window(min(ends), max(ends)))


def at(seconds: int) -> Position:
    return Position(ClusterTime(seconds, 0))


def cut(window: Window, limits: WindowLimits) -> list[Window]:
    return slices(window, limits, capture=Capture.OPLOG, density=None)


def finished(span: int, mib: float, seconds: float) -> Finished:
    window = Window(at(1000), at(1000 + span))
    return Finished(window=window, asked=window, bytes=int(mib * MIB), took=timedelta(seconds=seconds))


@given(windows, st.integers(1, 9), st.integers(1, 5))
def test_slices_are_contiguous_and_not_empty_and_make_the_window(window: Window, count: int, least: int) -> None:
    parts = cut(window, WindowLimits(slices=count, slice_seconds=least))
    assert len(parts) <= count
    assert not any(part.empty for part in parts)
    assert [part.end for part in parts[:-1]] == [part.start for part in parts[1:]]
    assert (window.empty and not parts) or (parts[0].start, parts[-1].end) == (window.start, window.end)


@given(windows, st.integers(2, 9))
def test_a_cut_never_falls_inside_a_transaction(window: Window, count: int) -> None:
    for part in cut(window, WindowLimits(slices=count))[1:]:
        assert part.start == Position(ClusterTime(part.start.ts.seconds, 0))


def test_a_wide_window_is_cut_evenly_and_a_narrow_one_not_at_all() -> None:
    limits = WindowLimits(slices=4, slice_seconds=2)
    assert [span_seconds(part) for part in cut(Window(at(0), at(100)), limits)] == [25, 25, 25, 25]
    assert [span_seconds(part) for part in cut(Window(at(0), at(5)), limits)] == [2, 3]
    assert len(cut(Window(at(0), at(3)), limits)) == 1


def test_a_change_stream_is_cut_only_where_each_slice_has_replies_to_give() -> None:
    window, limits = Window(at(0), at(100)), WindowLimits(slices=4)
    counts = [
        len(slices(window, limits, capture=Capture.CHANGE_STREAM, density=mib * MIB // 100)) for mib in (0, 60, 70, 500)
    ]
    assert counts == [1, 1, 2, 4]


def test_the_oplog_is_cut_as_long_as_nobody_knows_and_then_where_there_is_work_for_each_slice() -> None:
    """At rest a no-op entry moves the barrier every ten seconds. A wide job for each would be most of an idle changefeed's cost."""
    window, limits = Window(at(0), at(10)), WindowLimits(slices=4)
    densities = (None, 0, MIB // 10, MIB // 2, 10 * MIB)
    assert [len(slices(window, limits, capture=Capture.OPLOG, density=each)) for each in densities] == [4, 1, 1, 2, 4]


def test_the_window_after_silence_reaches_through_it_and_the_ones_behind_are_as_before() -> None:
    silent = replace(finished(60, 0, 90), silent_until=at(5000))
    pace = Pace(seconds=60).after(silent, LIMITS)
    assert pace.end_of(at(1060), at(9000)) == at(5000)
    assert pace.end_of(at(1060), at(2000)) == at(2000)
    assert pace.end_of(at(5000), at(9000)) == at(5060)


def test_a_pace_knows_what_the_last_window_held() -> None:
    assert Pace().after(finished(60, 120, 5), LIMITS).density == 2 * MIB


def test_a_window_ends_at_a_near_barrier_and_within_the_pace_of_a_far_one() -> None:
    barrier = Position(ClusterTime(1030, 7), "8264")
    assert Pace(seconds=60).end_of(at(1000), barrier) == barrier
    assert Pace(seconds=10).end_of(at(1000), barrier) == at(1010)
    assert Pace(seconds=10).end_of(at(2000), barrier) == at(2000)
    assert Pace(seconds=10).end_of(at(2**32 - 5), at(2**32 - 1)) == at(2**32 - 1)


def test_the_worked_example() -> None:
    pace = Pace(seconds=60)
    seen = []
    for window in (finished(60, 4, 1), finished(240, 512, 12), finished(120, 200, 8), finished(2, 1, 0.2)):
        pace = pace.after(window, LIMITS)
        seen.append(pace.seconds)
    assert seen == [240, 120, 153, 153]


def test_a_window_of_many_small_events_narrows_the_next() -> None:
    limits = WindowLimits(bytes=256 * MIB, events=1000)
    many = replace(finished(60, 0, 1), events=2000)
    assert Pace(seconds=60).after(many, limits).seconds == 30


@pytest.mark.parametrize(("ended", "next_span"), [(1003, 12), (1015, 20), (1001, 4), (1000, 4), (1020, 4)])
def test_slices_are_as_long_as_the_one_that_was_full(ended: int, next_span: int) -> None:
    """Four of ten seconds. What those behind it read was dropped, and would be again: four slots took twice the time of two."""
    asked = Window(at(1000), at(1040))
    full = replace(finished(40, 20, 3), window=Window(asked.start, at(ended)), slices=4)
    assert Pace(seconds=60).after(full, LIMITS).seconds == next_span
    assert Pace(seconds=60).after(replace(full, slices=1), LIMITS).seconds == 60
    assert Pace(seconds=60).after(replace(full, window=asked), LIMITS).seconds == 60


def test_a_window_never_spans_more_than_its_limit_of_cluster_time() -> None:
    pace = Pace(seconds=60)
    for _ in range(9):
        pace = pace.after(finished(pace.seconds, 0, 0), WindowLimits(seconds=3600))
    assert pace.seconds == 3600


def test_a_slow_window_narrows_the_next_even_when_it_was_not_at_full_width() -> None:
    assert Pace(seconds=100).after(finished(50, 1, 40), LIMITS).seconds == 25


@given(st.integers(1, 10**5), st.floats(0, 10**6), st.floats(0, 10**5), st.integers(0, 10**5))
def test_a_pace_stays_usable_whatever_a_window_held(seconds: int, mib: float, took: float, span: int) -> None:
    pace = Pace(seconds=seconds).after(finished(span, mib, took), LIMITS)
    assert 1 <= pace.seconds <= max(seconds, 6 * 3600)


@given(st.floats(0.01, 40), st.floats(0.001, 0.5))
def test_windows_of_a_steady_source_settle_within_the_limits(mib_a_second: float, work: float) -> None:
    pace = Pace()
    for _ in range(20):
        span = pace.seconds
        pace = pace.after(finished(span, mib_a_second * span, work * span), LIMITS)
    assert pace.seconds * mib_a_second <= 256 * 1.01
    assert pace.seconds * work <= 20 * 1.01
    assert pace.seconds >= min(6 * 3600, 0.5 * min(256 / mib_a_second, 20 / work))
