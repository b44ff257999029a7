"""`merged`, `DuplicateIds`: the rows of all shards in one order, in which the operations of one document stand as they happened. Pure.

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
from itertools import chain, groupby
from operator import attrgetter
from typing import Generic, Protocol, TypeVar

from changefeed.errors import DuplicateId
from changefeed.event import RowType
from changefeed.table import TableId


class ShardOperation(Protocol):
    @property
    def time(self) -> int:
        """The effective time, as a number."""

    @property
    def shard(self) -> str: ...


R = TypeVar("R", bound=ShardOperation)

_time = attrgetter("time")


def merged(
    streams: Iterable[Iterable[R]],
    document: Callable[[R], Hashable],
    inserts: Callable[[R], bool],
    deletes: Callable[[R], bool],
) -> Iterator[list[R]]:
    """The rows of each effective time. Each stream is one shard's rows, by effective time. `document`: of which table, and its `_id`."""
    batches = stretches([([row] for row in rows) for rows in streams], document, inserts, deletes)
    for _, rows in groupby(chain.from_iterable(batches), key=_time):
        yield list(rows)


def stretches(
    streams: Iterable[Iterable[list[R]]],
    document: Callable[[R], Hashable],
    inserts: Callable[[R], bool],
    deletes: Callable[[R], bool],
) -> Iterator[list[R]]:
    """All rows in their order, in lists that end between two times. Each stream is one shard's rows, in lists.

    What all shards have shown is sorted at once, and few times have rows of several shards. So a row costs little more than on a replica
    set. The rows of a transaction are in memory together.

        sa   1 2 4 6 | ...        up to 6, exclusive, both are known:  1 2 3 4 5
        sb   3 5 6 6 7 | ...
    """
    shards = [_ShardStretch(iter(rows)) for rows in streams]
    while True:
        bounds = [bound for shard in shards if (bound := shard.bound()) is not None]
        if not bounds:
            last = _in_order([shard.take(None) for shard in shards], document, inserts, deletes)
            if last:
                yield last
            return
        bound = min(bounds)
        found = _in_order([shard.take(bound) for shard in shards], document, inserts, deletes)
        if found:
            yield found
        for shard in shards:
            if shard.bound() == bound:
                shard.more()


class _ShardStretch(Generic[R]):
    """What one shard has shown and was not given on."""

    def __init__(self, batches: Iterator[list[R]]) -> None:
        self._batches = batches
        self._rows: list[R] = []
        self._ended = False
        self.more()

    def more(self) -> None:
        found = next((batch for batch in self._batches if batch), None)
        self._ended = found is None
        self._rows += found or []

    def bound(self) -> int | None:
        """Below it everything is known. None: the shard has no more."""
        return None if self._ended else self._rows[-1].time

    def take(self, bound: int | None) -> list[R]:
        """The rows below it."""
        end = len(self._rows) if bound is None else bisect_left(self._rows, bound, key=_time)
        taken, self._rows = self._rows[:end], self._rows[end:]
        return taken


def _in_order(
    of_shards: Sequence[list[R]],
    document: Callable[[R], Hashable],
    inserts: Callable[[R], bool],
    deletes: Callable[[R], bool],
) -> list[R]:
    rows = list(chain.from_iterable(of_shards))
    if sum(map(bool, of_shards)) <= 1:
        return rows
    rows.sort(key=_time)
    for time in _to_be_ordered(of_shards, deletes):
        begin, end = bisect_left(rows, time, key=_time), bisect_right(rows, time, key=_time)
        rows[begin:end] = _in_turn(rows[begin:end], document, inserts, deletes)
    return rows


def _to_be_ordered(of_shards: Sequence[list[R]], deletes: Callable[[R], bool]) -> set[int]:
    """The times of several shards at which a document is deleted. Under load, half of all times are of several shards."""
    seen: set[int] = set()
    shared: set[int] = set()
    for times in ({row.time for row in of_shard} for of_shard in of_shards):
        shared |= seen & times
        seen |= times
    return {row.time for of_shard in of_shards for row in of_shard if row.time in shared and deletes(row)}


def _in_turn(
    rows: list[R], document: Callable[[R], Hashable], inserts: Callable[[R], bool], deletes: Callable[[R], bool]
) -> list[R]:
    """Rows of one time, with a delete: only a delete may have to come before what another shard has of its document."""
    places: dict[Hashable, list[int]] = defaultdict(list)
    for place, row in enumerate(rows):
        places[document(row)].append(place)
    ordered = list(rows)
    for of_document in places.values():
        history = [rows[place] for place in of_document]
        if len({row.shard for row in history}) > 1:
            for place, row in zip(of_document, _as_it_moved(history, inserts, deletes), strict=True):
                ordered[place] = row
    return ordered


def _as_it_moved(history: list[R], inserts: Callable[[R], bool], deletes: Callable[[R], bool]) -> Iterator[R]:
    """The rows of one document and time, stay by stay."""
    stays: list[list[R]] = []
    open_ones: dict[str, list[R]] = {}
    for row in history:
        if row.shard not in open_ones:
            stays.append(open_ones.setdefault(row.shard, []))
        open_ones[row.shard].append(row)
        if deletes(row):
            del open_ones[row.shard]
    stays.sort(key=lambda stay: (inserts(stay[0]), not deletes(stay[-1])))
    return chain.from_iterable(stays)


@dataclass(slots=True)
class DuplicateIds:
    """Which shard has which document, as far as the rows seen tell. Two shards that have one `_id` at the end of a time are an error.

    A document that came with its chunk has no row of its own: an update or a delete on a shard shows that it is there now.
    """

    _shards: dict[Hashable, frozenset[str]] = field(default_factory=dict)

    def take(self, table: TableId, document: Hashable, rows: Iterable[tuple[str, RowType]]) -> None:
        """The operations on one document at one time: shards and types, in the order of `merged`."""
        has = set(self._shards.get((table, document), ()))
        for shard, type in rows:
            match type:
                case RowType.INSERT:
                    has.add(shard)
                case RowType.DELETE:
                    has = has - {shard} if shard in has else set()
                case _:
                    has = has if shard in has else {shard}
        if len(has) > 1:
            raise DuplicateId(
                f"shards {' and '.join(sorted(has))} of the source each have a document with _id {document} in table {table}; "
                "remove one of them, then copy the table again"
            ).about(table)
        self._shards[table, document] = frozenset(has)
