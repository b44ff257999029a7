"""`OwnedChunk`: the documents of one chunk of a copy, as all shards owned them at one time.

The replies of the shards are given on in the order of `_id`s as far as all shards have shown theirs:

    sa   1 4 6 | 9 ..           1 4 6 and 2 3 5 are given on, then sa is asked for more: sb may not go beyond 6 yet
    sb   2 3 5 8 | ..

So a chunk that takes long may be divided between two batches, and an `_id` that two shards have is found.

`cluster_sizes`, `divide_cluster`: how large the tables of a cluster are, and into which chunks one is divided.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import Any

from bson.errors import BSONError
from bson.raw_bson import RawBSONDocument
from pymongo.errors import PyMongoError

from changefeed.cluster_time import ClusterTime
from changefeed.documents.document import raw_document
from changefeed.documents.row_key import LAST_KEY, id_alone, row_key
from changefeed.errors import DuplicateId, InvariantError, SourceUnavailable
from changefeed.table import TableName, TableSchema, TableSize
from source.errors import translate, translated
from source.raw_find import Found
from source.sharded.cluster_clients import ClusterClients, reach_newest
from source.sharded.owned.owned_find import OwnedReplies, owned_find
from source.tables.chunk_reader import Chunk
from source.tables.chunks import (
    CHUNK_BYTES,
    MOST_CHUNKS,
    Division,
    chunks_of,
    divided,
    in_id_order,
    in_natural_order,
    sampled,
    table_sizes,
)

_MOST_DOCUMENTS = 5_000


class OwnedChunk:
    """After an error the chunk is read anew, from its beginning and at a later time."""

    def __init__(self, clients: ClusterClients, chunk: Chunk) -> None:
        self._clients = clients
        self._chunk = chunk
        self._at_ts: ClusterTime | None = None
        self._until_ts: ClusterTime | None = None
        self.ended = False

    def end(self) -> None:
        """Nothing more is needed. `batches` ends, and the times are those of what was read."""
        self.ended = True

    @property
    def after(self) -> ClusterTime:
        if self._at_ts is None:
            raise InvariantError(f"{self._chunk}: its time was requested before the chunk was read")
        return self._at_ts

    @property
    def until(self) -> ClusterTime:
        """The same time, unless a capped table was read, or nothing found: a shard finds nothing, too, under a name that the table lost after that
        time. A time after the reading makes its copy meet the rename. An open cursor notices a rename by itself.
        """
        return self._until_ts or self.after

    def batches(self) -> Iterator[list[bytes]]:
        """Up to 16 MB and 5,000 documents of each shard."""
        try:
            yield from self._batches()
        except (PyMongoError, BSONError) as error:
            failure = translate(error, f"reading {self._chunk} at {self._at_ts}")
            raise SourceUnavailable(f"{failure}; the chunk is read again") from error

    def _batches(self) -> Iterator[list[bytes]]:
        chunk = self._chunk
        not_before = chunk.not_before.ts.previous()
        with owned_find(
            self._clients, chunk.table, chunk.find_arguments(), not_before=not_before, most=_MOST_DOCUMENTS
        ) as replies:
            self._at_ts = replies.at_ts
            nothing = yield from _given_on(self._in_turn(replies) if chunk.whole else self._merged(replies))
            if not chunk.whole and chunk.range.last_key_apart and not self.ended:
                nothing |= yield from _given_on(self._last(replies))
            self._until_ts = reach_newest(self._clients) if nothing or not replies.snapshot else None

    def _last(self, beside: OwnedReplies) -> Iterator[list[bytes]]:
        """MaxKey is no end of a range."""
        with owned_find(
            self._clients,
            self._chunk.table,
            {"filter": raw_document(LAST_KEY.raw)},
            not_before=beside.at_ts,
            most=_MOST_DOCUMENTS,
            beside=beside,
        ) as replies:
            yield from self._in_turn(replies)

    def _in_turn(self, replies: OwnedReplies) -> Iterator[list[bytes]]:
        for shard, first in replies.first.items():
            yield first.documents
            for found in replies.rest[shard]:
                if self.ended:
                    return
                yield found.documents

    def _merged(self, replies: OwnedReplies) -> Iterator[list[bytes]]:
        shown = {shard: _ShardDocuments(first, replies.rest[shard]) for shard, first in replies.first.items()}
        while not self.ended:
            for each in shown.values():
                each.fill()
            open_ones = [each for each in shown.values() if each.more]
            bound = min((each.last for each in open_ones), default=None)
            taken = {shard: part for shard, each in shown.items() if (part := each.take(bound))}
            if not taken:
                return
            yield self._in_order(taken)

    def _in_order(self, taken: dict[str, list[bytes]]) -> list[bytes]:
        """The first and the last document are where they belong. The order of those between them does not matter."""
        if len(taken) == 1:
            [documents] = taken.values()
            return documents
        owners: dict[Any, str] = {}
        for shard, documents in taken.items():
            for document in documents:
                other = owners.setdefault(row_key(id_alone(document)), shard)
                if other != shard:
                    raise DuplicateId(
                        f"shards {other} and {shard} of the source each have a document with _id {_id(document)!r} in "
                        f"{self._chunk.table}; remove one of them, then copy the table again"
                    )
        first = min(taken, key=lambda shard: _order(taken[shard][0]))
        last = max(taken, key=lambda shard: _order(taken[shard][-1]))
        middle = [shard for shard in taken if shard not in (first, last)]
        if first != last:
            return [each for shard in (first, *middle, last) for each in taken[shard]]
        head, tail = taken[first][:-1], taken[first][-1:]
        return [*head, *(each for shard in middle for each in taken[shard]), *tail]


class _ShardDocuments:
    """What one shard has shown and was not given on."""

    def __init__(self, first: Found, rest: Iterator[Found]) -> None:
        self._documents = first.documents
        self._rest = rest
        self.more = bool(first.cursor_id)

    def fill(self) -> None:
        while self.more and not self._documents:
            found = next(self._rest)
            self._documents, self.more = found.documents, bool(found.cursor_id)

    @property
    def last(self) -> Any:
        return _order(self._documents[-1])

    def take(self, bound: Any | None) -> list[bytes]:
        """The documents up to the bound."""
        end = len(self._documents)
        if bound is not None:
            low = 0
            while low < end:
                middle = (low + end) // 2
                if bound < _order(self._documents[middle]):
                    end = middle
                else:
                    low = middle + 1
        taken, self._documents = self._documents[:end], self._documents[end:]
        return taken


def _given_on(batches: Iterator[list[bytes]]) -> Generator[list[bytes], None, bool]:
    """Returns whether there was no document."""
    nothing = True
    for documents in batches:
        nothing = nothing and not documents
        yield documents
    return nothing


def _id(document: bytes) -> Any:
    return raw_document(id_alone(document))["_id"]


def _order(document: bytes) -> Any:
    return in_id_order(_id(document))


def cluster_sizes(clients: ClusterClients, names: Iterable[TableName]) -> Mapping[TableName, TableSize]:
    """With the documents that a shard has and does not own: usually few."""
    wanted, sums = list(names), dict[TableName, TableSize]()
    for name, host in clients.read_shards().items():
        for table, size in table_sizes(clients.of(name, host), wanted).items():
            sums[table] = sums.get(table, TableSize()) + size
    return sums


def divide_cluster(
    clients: ClusterClients, schema: TableSchema, *, chunk_bytes: int = CHUNK_BYTES, most: int = MOST_CHUNKS
) -> Division:
    """By the `_id`s of a random sample of each shard."""
    hosts = clients.read_shards()
    sizes = {shard: table_sizes(clients.of(shard, host), [schema.name]) for shard, host in hosts.items()}
    size = sum((found[schema.name] for found in sizes.values() if schema.name in found), TableSize())
    wanted = chunks_of(schema, size, chunk_bytes=chunk_bytes, most=most)
    if wanted <= 1:
        return Division(whole=in_natural_order(schema), size=size)
    found: list[RawBSONDocument] = []
    for shard in hosts:
        here = sizes[shard].get(schema.name, TableSize()).documents
        share = -(-wanted * here // max(1, size.documents))
        with translated(f"dividing {schema.name} into chunks"):
            found += sampled(clients.of(shard), schema.name, here, share)
    return divided(schema, size, sorted(found, key=lambda each: in_id_order(each["_id"])), wanted)
