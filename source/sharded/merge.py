"""`stretches`: the rows of all shards in one order, in which the operations of one document stand as they happened. Pure.

Rows are ordered by effective time. A document moves from one shard to another in two ways: with its chunk, and then the next operation
has a later time; or by a change of its shard key, a delete and an insert of one transaction, at one time. So at one time, the operations of a document are
ordered by its *stays* on shards, each from an insert to a delete: first the one that it was in before, last the one in which it is left.

    302.40   sb   insert 7                302.40   sa   update 7
    302.40   sa   update 7                302.40   sa   delete 7
    302.40   sa   delete 7      becomes   302.40   sb   insert 7
    303.1    sb   update 7                303.1    sb   update 7

Else the operations of each shard keep their order.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Generic, TypeVar

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Stretch(Generic[R]):
    """Rows in the order of their effective times, and these times as numbers: millions are compared."""

    times: list[int]
    rows: list[R]
    deletes: frozenset[int] = field(default_factory=frozenset)
    """Times at which rows were deleted. There may be others in it."""

    def cut(self, at: int) -> tuple[Stretch[R], Stretch[R]]:
        times, rows = self.times, self.rows
        return Stretch(times[:at], rows[:at], self.deletes), Stretch(times[at:], rows[at:], self.deletes)

    def followed_by(self, other: Stretch[R]) -> Stretch[R]:
        """Deletes of times that are over are forgotten."""
        if not self.times:
            return other
        left = frozenset(time for time in self.deletes if time >= self.times[0])
        return Stretch(self.times + other.times, self.rows + other.rows, left | other.deletes)


@dataclass(frozen=True, slots=True)
class Nature(Generic[R]):
    """What a row is, seen only where its place depends on it. `document`: of which table, and its `_id`."""

    document: Callable[[R], Hashable]
    inserts: Callable[[R], bool]
    deletes: Callable[[R], bool]


def stretches(streams: Iterable[Iterable[Stretch[R]]], nature: Nature[R]) -> Iterator[Stretch[R]]:
    """All rows in their order, in stretches that end between two times. Each stream is one shard's.

    What all shards have shown is sorted at once, and few times have rows of several shards. So a row costs little more than on a replica
    set. The rows of a transaction are in memory together.

        sa   1 2 4 6 | ...        up to 6, exclusive, both are known:  1 2 3 4 5
        sb   3 5 6 6 7 | ...
    """
    shards = [_ShardStretch(iter(shown)) for shown in streams]
    while True:
        bounds = [bound for shard in shards if (bound := shard.bound()) is not None]
        bound = min(bounds, default=None)
        found = _in_order([shard.take(bound) for shard in shards], nature)
        if found.rows:
            yield found
        if bound is None:
            return
        for shard in shards:
            if shard.bound() == bound:
                shard.more()


class _ShardStretch(Generic[R]):
    """What one shard has shown and was not given on."""

    def __init__(self, shown: Iterator[Stretch[R]]) -> None:
        self._shown = shown
        self._left: Stretch[R] = Stretch([], [])
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

    def take(self, bound: int | None) -> Stretch[R]:
        """The rows below it."""
        times = self._left.times
        taken, self._left = self._left.cut(len(times) if bound is None else bisect_left(times, bound))
        return taken


def _in_order(of_shards: Sequence[Stretch[R]], nature: Nature[R]) -> Stretch[R]:
    having = [stretch for stretch in of_shards if stretch.rows]
    if len(having) <= 1:
        return having[0] if having else Stretch([], [])
    unsorted = list(chain.from_iterable(stretch.times for stretch in having))
    order = sorted(range(len(unsorted)), key=unsorted.__getitem__)
    rows = list(chain.from_iterable(stretch.rows for stretch in having))
    rows, times = list(map(rows.__getitem__, order)), list(map(unsorted.__getitem__, order))
    for time in _to_be_ordered(having):
        begin, end = bisect_left(times, time), bisect_right(times, time)
        rows[begin:end] = _in_turn([_at(stretch, time) for stretch in having], nature)
    return Stretch(times, rows)


def _to_be_ordered(of_shards: Sequence[Stretch[R]]) -> set[int]:
    """The times of several shards at which rows were deleted. Under load, half of all times are of several shards."""
    deletes = frozenset[int]().union(*(stretch.deletes for stretch in of_shards))
    if not deletes:
        return set()
    seen: set[int] = set()
    shared: set[int] = set()
    for stretch in of_shards:
        times = deletes.intersection(stretch.times)
        shared |= seen & times
        seen |= times
    return shared


def _at(stretch: Stretch[R], time: int) -> list[R]:
    return stretch.rows[bisect_left(stretch.times, time) : bisect_right(stretch.times, time)]


def _in_turn(of_shards: Sequence[list[R]], nature: Nature[R]) -> list[R]:
    """Rows of one time, with a delete: only a delete may have to come before what another shard has of its document."""
    rows = [(shard, row) for shard, of_shard in enumerate(of_shards) for row in of_shard]
    places: dict[Hashable, list[int]] = defaultdict(list)
    for place, (_, row) in enumerate(rows):
        places[nature.document(row)].append(place)
    ordered = [row for _, row in rows]
    for of_document in places.values():
        history = [rows[place] for place in of_document]
        if len({shard for shard, _ in history}) > 1:
            for place, row in zip(of_document, _as_it_moved(history, nature), strict=True):
                ordered[place] = row
    return ordered


def _as_it_moved(history: list[tuple[int, R]], nature: Nature[R]) -> Iterator[R]:
    """The rows of one document and time, stay by stay."""
    stays: list[list[R]] = []
    open_ones: dict[int, list[R]] = {}
    for shard, row in history:
        if shard not in open_ones:
            stays.append(open_ones.setdefault(shard, []))
        open_ones[shard].append(row)
        if nature.deletes(row):
            del open_ones[shard]
    stays.sort(key=lambda stay: (nature.inserts(stay[0]), not nature.deletes(stay[-1])))
    return chain.from_iterable(stays)
