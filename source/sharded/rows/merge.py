"""`stretches`: the rows of all shards in one order, that of their positions. Pure.

Each row has its place among those of its effective time (`row_places.py`), and those of a shard are in order.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TypeAlias

from source.raw_row import Header

ShardRow: TypeAlias = tuple[int, bytes, bytes, Header]
"""Time, place, entry and its header. No two have one time and place, so that they are compared as they are: millions of them."""
Stretch: TypeAlias = list[ShardRow]
"""Rows in their order."""


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
        having = [taken for shard in shards if (taken := shard.take(bound))]
        if having:
            yield having[0] if len(having) == 1 else sorted(chain.from_iterable(having))
        if bound is None:
            return
        for shard in shards:
            if shard.bound() == bound:
                shard.more()


class _ShardStretch:
    """What one shard has shown and was not given on."""

    def __init__(self, shown: Iterator[Stretch]) -> None:
        self._shown = shown
        self._left: Stretch = []
        self._ended = False
        self.more()

    def more(self) -> None:
        found = next(filter(None, self._shown), None)
        self._ended = found is None
        if found is not None:
            self._left = self._left + found if self._left else found

    def bound(self) -> int | None:
        """Below it everything is known. None: the shard has no more."""
        return None if self._ended else self._left[-1][0]

    def take(self, bound: int | None) -> Stretch:
        """The rows below it."""
        rows = self._left
        at = len(rows) if bound is None else first_of(rows, bound)
        self._left = rows[at:]
        return rows[:at]


def first_of(rows: Stretch, time: int) -> int:
    """Where those of that time begin, or of a later one."""
    return bisect_left(rows, (time,))
