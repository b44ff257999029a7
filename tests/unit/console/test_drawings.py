"""Figures."""

from __future__ import annotations

from itertools import pairwise

from console.drawings import HOUR, LagScale, sparkline
from console.observer import pace


def test_the_scale_has_room_for_a_second_beside_a_day() -> None:
    scale = LagScale(86_400)
    places = [float(scale.percent(behind).rstrip("%")) for behind in (86_400, 3600, 60, 1, 0)]
    assert places == sorted(places)
    assert (places[0], places[-1]) == (2.0, 98.0)
    assert min(after - before for before, after in pairwise(places)) > 5


def test_a_line_shows_the_last_hour_only() -> None:
    points = [(0.0, 500.0), (HOUR - 200.0, 1.0), (HOUR + 10.0, 0.5), (HOUR + 20.0, 2.0)]
    drawn = sparkline(points, HOUR + 30.0, "Lag")
    assert "at most 2 s" in drawn
    points_shown = drawn.partition('points="')[2].partition('"')[0]
    assert [float(point.partition(",")[2]) for point in points_shown.split()] == [12, 2]


def test_pages_that_cost_more_are_read_less_often() -> None:
    assert pace(0.001) == 1.0
    assert pace(0.015) == 1.0
    assert 0.06 / pace(0.06) <= 0.02
    assert pace(0.4) == 10.0
    assert all(cost / pace(cost) <= 0.0401 for cost in (0.01, 0.1, 0.3, 1.0, 5.0))
