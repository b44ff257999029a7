"""`merged`, `DuplicateIds`: the rows of all shards in one order, in which the operations of one document stand as they happened. Pure.

Rows are ordered by effective time. A document moves from one shard to another in two ways: with its chunk, and then the next operation
has a later time; or by a change of its shard key, a delete and an insert of one transaction, at one time. So at one time, per document,
the shard whose last operation is a delete comes first:

    302.40   sb   insert 7                302.40   sa   delete 7
    302.40   sa   delete 7      becomes   302.40   sb   insert 7
    303.1    sb   update 7                303.1    sb   update 7

Else the operations of each shard keep their order.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Protocol, TypeVar

from changefeed.cluster_time import ClusterTime
from changefeed.errors import DuplicateId
from changefeed.event import RowType
from changefeed.table import TableId


class ShardOperation(Protocol):
    @property
    def ts(self) -> ClusterTime: ...
    @property
    def shard(self) -> str: ...


R = TypeVar("R", bound=ShardOperation)


def merged(
    streams: Iterable[Iterable[R]], document: Callable[[R], Hashable], deletes: Callable[[R], bool]
) -> Iterator[list[R]]:
    """The rows of each effective time. Each stream is one shard's rows, by effective time. `document`: of which table, and its `_id`."""
    in_time = heapq.merge(*streams, key=lambda row: (row.ts, row.shard))
    for _, rows in groupby(in_time, key=lambda row: row.ts):
        yield _at_one_time(list(rows), document, deletes)


def _at_one_time(rows: list[R], document: Callable[[R], Hashable], deletes: Callable[[R], bool]) -> list[R]:
    if all(row.shard == rows[0].shard for row in rows):
        return rows
    last: dict[Hashable, dict[str, R]] = defaultdict(dict)
    for row in rows:
        last[document(row)][row.shard] = row

    def leaves(row: R) -> bool:
        shards = last[document(row)]
        return len(shards) > 1 and deletes(shards[row.shard])

    return sorted(rows, key=lambda row: not leaves(row))


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
