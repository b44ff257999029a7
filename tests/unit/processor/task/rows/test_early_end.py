from __future__ import annotations

from collections.abc import Iterator

from changefeed.cluster_time import ClusterTime
from changefeed.position import Position
from processor.task.rows.gate import UNBOUNDED, EarlyEnd, Enough
from source.raw_row import Header

START = Position(ClusterTime(100, 0))


def at(seconds: int, increment: int) -> Position:
    return Position(ClusterTime(seconds, increment))


def events(*times: tuple[int, int], size: int = 10) -> Iterator[tuple[bytes, Header]]:
    for seconds, increment in times:
        time = seconds << 32 | increment
        yield bytes(size), Header(b"insert", time, b"", b"", b"", b"", 0, 0, 0, 0, 0, 0, None)


def taken(early: EarlyEnd, *times: tuple[int, int]) -> int:
    return len(list(early.before(events(*times))))


_TIMES = ((100, 1), (100, 2), (100, 2), (103, 1), (104, 1), (104, 2))


def test_the_worked_example() -> None:
    early = EarlyEnd(Enough(bytes=1000, events=3), at(104, 0))
    assert taken(early, *_TIMES) == 4
    assert early.at == at(104, 1)
    assert early.held == 40, "bytes"


def test_a_window_that_holds_less_does_not_end_early() -> None:
    early = EarlyEnd(Enough(bytes=1000, events=6), START)
    assert taken(early, *_TIMES) == 6
    assert early.at is None


def test_bytes_bound_a_window_too_but_not_inside_a_transaction() -> None:
    early = EarlyEnd(Enough(bytes=20, events=1000), START)
    assert taken(early, *_TIMES) == 3
    assert early.at == at(103, 1)


def test_an_overdue_window_ends_after_its_first_cluster_time_at_the_earliest() -> None:
    early = EarlyEnd(UNBOUNDED, START, lambda: True)
    assert taken(early, *_TIMES) == 1
    assert early.at == at(100, 2)
