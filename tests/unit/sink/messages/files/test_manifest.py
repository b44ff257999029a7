"""A table's messages are followed from manifest to manifest, and a gap is found."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from changefeed.cluster_time import ClusterTime
from changefeed.position import Position, Window
from sink.messages.feed_reader import MessageGap
from sink.messages.files.manifest import chain


def _at(seconds: int) -> Position:
    return Position(ClusterTime(seconds, 0))


def _window(start: int, end: int) -> Window:
    return Window(_at(start), _at(end))


def test_overlaps_are_taken_once_and_the_end_is_cut() -> None:
    ranges = [(_window(115, 130), "3"), (_window(100, 110), "1"), (_window(110, 120), "2")]
    assert chain("t", ranges, _at(100), _at(125)) == [
        (_window(100, 110), "1"),
        (_window(110, 120), "2"),
        (_window(120, 125), "3"),
    ]


@pytest.mark.parametrize("ranges", [[], [(100, 110), (111, 130)], [(101, 130)], [(100, 124)]])
def test_ranges_that_do_not_meet_are_a_gap(ranges: list[tuple[int, int]]) -> None:
    with pytest.raises(MessageGap, match="found none in any manifest"):
        chain("t", [(_window(*each), None) for each in ranges], _at(100), _at(125))


def test_before_an_end_a_gap_does_not_matter() -> None:
    assert chain("t", [(_window(100, 110), "1")], _at(100), _at(125), whole=False) == [(_window(100, 110), "1")]


_windows = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 40)).map(sorted).map(lambda each: _window(each[0], each[1])),
    max_size=8,
)


@given(_windows, st.integers(0, 40), st.integers(0, 40))
def test_each_position_is_shown_once_or_a_gap_is_true(windows: list[Window], one: int, other: int) -> None:
    start, end = _at(min(one, other)), _at(max(one, other))
    places = [_at(second) for second in range(41) if start <= _at(second) < end]
    covered = all(any(place in window for window in windows) for place in places)
    try:
        found = chain("t", [(window, None) for window in windows], start, end)
    except MessageGap:
        assert not covered
        return
    shown = [place for place in places for window, _ in found if place in window]
    assert shown == places
