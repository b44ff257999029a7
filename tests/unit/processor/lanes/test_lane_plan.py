"""Which windows wait for the commit interval."""

from __future__ import annotations

from dataclasses import replace

from changefeed.cluster_time import ClusterTime
from changefeed.position import Position, Window
from changefeed.records.ddl import Barrier
from changefeed.table import TableId
from processor.lanes.lane_plan import unhurried
from processor.lanes.lanes import LaneJob

_A, _B = TableId("a"), TableId("b")


def _at(seconds: int) -> Position:
    return Position(ClusterTime(seconds, 0))


def _job(end: int) -> LaneJob:
    return LaneJob(number=1, window=Window(_at(100), _at(end)), tables=frozenset({_A}), replay_until=_at(100))


def _barrier(**held: Position) -> Barrier:
    return Barrier(epoch=1, position=_at(110), held={TableId(table): at for table, at in held.items()})


def test_a_window_up_to_the_barrier_waits() -> None:
    assert unhurried(_job(110), _barrier(), None)
    assert unhurried(_job(110), _barrier(), ClusterTime(111, 0))


def test_a_window_after_which_there_is_more_does_not_wait() -> None:
    assert not unhurried(_job(109), _barrier(), None)


def test_no_window_waits_that_brings_a_table_to_a_ddl() -> None:
    held = replace(_job(110), own_windows={_B: Window(_at(100), _at(105))})
    assert not unhurried(held, _barrier(b=_at(105)), None)
    there = replace(_job(110), own_windows={_B: Window(_at(105), _at(105))})
    assert unhurried(there, _barrier(b=_at(105)), None)


def test_the_target_is_not_waited_for() -> None:
    assert not unhurried(_job(110), _barrier(), ClusterTime(110, 0))
