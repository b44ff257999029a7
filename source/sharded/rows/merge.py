"""`stretches`: the rows of all shards in one order, that of their positions. Pure.

Each row has its place among those of its effective time (`row_places.py`), and those of a shard are in order.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeAlias

from source.raw_row import Header

ShardRow: TypeAlias = tuple[bytes, Header]


@dataclass(frozen=True, slots=True)
class Stretch:
    """Rows in their order, and their effective times as numbers: millions are compared."""

    times: list[int]
    rows: list[ShardRow]

    @classmethod
    def of(cls, rows: list[ShardRow]) -> Stretch:
        return cls([header[1] for _, header in rows], rows)

    def cut(self, at: int) -> tuple[Stretch, Stretch]:
        times, rows = self.times, self.rows
        return Stretch(times[:at], rows[:at]), Stretch(times[at:], rows[at:])

    def followed_by(self, other: Stretch) -> Stretch:
        return Stretch(self.times + other.times, self.rows + other.rows) if self.times else other


def stretches(streams: Iterable[Iterable[Stretch]]) -> Iterator[Stretch]:
    """All rows in their order, in stretches that end between two times. Each stream is one shard's.

    What all shards have shown is sorted at once, so a row costs little more than on a replica set. The rows of a transaction are in memory together.

        sa   1 2 4 6 | ...        up to 6, exclusive, both are known:  1 2 3 4 5
        sb   3 5 6 6 7 | ...
    """
    shards = [_ShardStretch(iter(shown)) for shown in streams]
    while True:
        bounds = [bound for shard in shards if (bound := shard.bound()) is not None]
        bound = min(bounds, default=None)
        found = _in_order([shard.take(bound) for shard in shards])
        if found.rows:
            yield found
        if bound is None:
            return
        for shard in shards:
            if shard.bound() == bound:
                shard.more()


class _ShardStretch:
    """What one shard has shown and was not given on."""

    def __init__(self, shown: Iterator[Stretch]) -> None:
        self._shown = shown
        self._left: Stretch = Stretch([], [])
        self._ended = False
        self.more()

    def more(self) -> None:
        found = next((stretch for stretch in self._shown if stretch.rows), None)
        self._ended = found is None
        if found is not None:
            self._left = self._left.followed_by(found)

    def bound(self) -> int | None:
        """Below it everything is known. None: the shard has no more."""
        return None if self._ended else self._left.times[-1]

    def take(self, bound: int | None) -> Stretch:
        """The rows below it."""
        times = self._left.times
        taken, self._left = self._left.cut(len(times) if bound is None else bisect_left(times, bound))
        return taken


def _in_order(of_shards: Sequence[Stretch]) -> Stretch:
    having = [stretch for stretch in of_shards if stretch.rows]
    if len(having) <= 1:
        return having[0] if having else Stretch([], [])
    return Stretch.of(sorted(chain.from_iterable(stretch.rows for stretch in having), key=_order))


def _order(row: ShardRow) -> tuple[object, ...]:
    """Time and place."""
    return row[1][1:3]
