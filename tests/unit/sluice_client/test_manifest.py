"""A table's messages are followed from manifest to manifest."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from changefeed.cluster_time import ClusterTime
from changefeed.position import Position, Window
from sluice_client.manifest import chain


def _at(seconds: int) -> Position:
    return Position(ClusterTime(seconds, 0))


def _window(start: int, end: int) -> Window:
    return Window(_at(start), _at(end))


def test_overlaps_are_taken_once_and_the_end_is_cut() -> None:
    ranges = [(_window(115, 130), "3"), (_window(100, 110), "1"), (_window(110, 120), "2")]
    assert list(chain(ranges, _at(100), _at(125))) == [
        (_window(100, 110), "1"),
        (_window(110, 120), "2"),
        (_window(120, 125), "3"),
    ]


_windows = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 40)).map(sorted).map(lambda each: _window(each[0], each[1])),
    max_size=8,
)


@given(_windows, st.integers(0, 40), st.integers(0, 40))
def test_each_position_of_a_range_is_shown_once(windows: list[Window], one: int, other: int) -> None:
    start, end = _at(min(one, other)), _at(max(one, other))
    places = [_at(second) for second in range(41) if start <= _at(second) < end]
    covered = [place for place in places if any(place in window for window in windows)]
    found = list(chain([(window, None) for window in windows], start, end))
    assert [place for place in places for window, _ in found if place in window] == covered
