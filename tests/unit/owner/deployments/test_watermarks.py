"""Marks follow the checkpoints that are in etcd, one at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest

from changefeed.cluster_time import ClusterTime
from changefeed.errors import SinkUnavailable
from changefeed.position import Position
from changefeed.records.requests import ChangefeedId
from changefeed.table import TableId, TableName
from owner.deployments import watermarks
from owner.deployments.watermarks import Watermarks
from tests.unit.owner.deployments.at_once import AtOnce


class _Written:
    def __init__(self) -> None:
        self.marks: list[tuple[Position, Mapping[TableId, Position]]] = []
        self.error: SinkUnavailable | None = None

    def mark(self, at: Position, behind: Mapping[TableId, Position], tables: Iterable[TableName]) -> None:
        if self.error is not None:
            raise self.error
        self.marks.append((at, behind))


def _at(seconds: int) -> Position:
    return Position(ClusterTime(seconds, 0))


@pytest.fixture
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watermarks, "_EVERY_SECONDS", 0.0)  # a test does not wait for the clock


def _watermarks(background: AtOnce, written: _Written | None) -> Watermarks:
    return Watermarks(ChangefeedId("f"), background, lambda: written)  # type: ignore[arg-type]  # has the one method that is called


def test_each_new_checkpoint_is_marked_once(no_pause: None) -> None:
    written = _Written()
    marks = _watermarks(AtOnce(), written)
    for at in (100, 100, 101, 101):
        marks.look(_at(at), {}, tuple)
    marks.look(_at(101), {TableId("a"): _at(99)}, tuple)
    assert written.marks == [(_at(100), {}), (_at(101), {}), (_at(101), {TableId("a"): _at(99)})]


def test_a_mark_that_is_being_written_is_not_overtaken(no_pause: None) -> None:
    background, written = AtOnce(), _Written()
    marks = _watermarks(background, written)
    background.slow = True
    marks.look(_at(100), {}, tuple)
    background.slow = False
    marks.look(_at(200), {}, tuple)
    marks.look(_at(200), {}, tuple)
    assert [at for at, _ in written.marks] == [_at(100), _at(200)]


def test_a_sink_that_is_away_is_marked_later(no_pause: None) -> None:
    written = _Written()
    written.error = SinkUnavailable("the disk is full")
    marks = _watermarks(AtOnce(), written)
    marks.look(_at(100), {}, tuple)
    written.error = None
    marks.look(_at(101), {}, tuple)
    marks.look(_at(101), {}, tuple)
    assert [at for at, _ in written.marks] == [_at(100), _at(101)]


def test_a_sink_without_watermarks_gets_none() -> None:
    _watermarks(AtOnce(), None).look(_at(100), {}, tuple)


def test_marks_have_a_pause_between_them() -> None:
    written = _Written()
    marks = _watermarks(AtOnce(), written)
    marks.look(_at(100), {}, tuple)
    marks.look(_at(101), {}, tuple)
    assert [at for at, _ in written.marks] == [_at(100)]
