"""What several watermarks say together, and what each of them says."""

from __future__ import annotations

from changefeed.cluster_time import ClusterTime
from changefeed.position import Position
from changefeed.table import TableId
from sink.reading.stored_message import NOTHING, Watermark

_A, _B = TableId("a"), TableId("b")


def _mark(at: int, **behind: int) -> Watermark:
    return Watermark(_at(at), {TableId(table): _at(position) for table, position in behind.items()})


def _at(seconds: int) -> Position:
    return Position(ClusterTime(seconds, 1))


def test_together_they_say_the_furthest_of_each_table() -> None:
    assert _mark(10, a=5).joined(_mark(8)) == _mark(10, a=8)
    assert _mark(10, a=5).joined(_mark(20, b=12)) == _mark(20, b=12)


def test_each_of_them_says_the_least_of_each_table() -> None:
    assert _mark(10, a=5).met(_mark(8)) == _mark(8, a=5)
    assert _mark(10, a=9).met(_mark(8)) == _mark(8)
    assert _mark(20, a=5, b=12).met(_mark(15, a=7)) == _mark(15, a=5, b=12)
    assert _mark(20).met(NOTHING) == NOTHING


def test_one_covers_another_that_says_nothing_more() -> None:
    assert _mark(10).covers(_mark(10, a=5))
    assert _mark(10, a=5).covers(_mark(9, a=5))
    assert not _mark(10, a=5).covers(_mark(9))
    assert _mark(10, a=5).of(_A) == _at(5)
    assert _mark(10, a=5).of(_B) == _at(10)
