"""`TableReader`: reads the documents of one table of one side, by ranges of `_id` or by single keys, as bytes; `read_target`: the tables of the target."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import chain, pairwise
from typing import Any, Self, TypeAlias

from bson.raw_bson import RawBSONDocument
from pymongo.errors import OperationFailure

from changefeed.bson_bytes import document_of, elements
from changefeed.cluster_time import ClusterTime
from changefeed.documents.document import Document
from changefeed.documents.row_key import LAST_KEY, row_key
from changefeed.errors import PermanentError, SinkRefused
from changefeed.records.ddl import ObservedTable
from changefeed.table import SYSTEM_DATABASES, TableName, TableSchema, TableSize
from sink.mongodb.connection import Client, listed, listed_indexes
from sink.mongodb.target_errors import translated
from source.columns import Columns
from source.compared import ComparedSource, find_batches
from source.tables.chunks import table_size
from verify.raw_document import document_key, documents_in

_KEYS_AT_ONCE = 100
_ID_INDEX = {"_id": 1}
_THE_LAST = LAST_KEY.decode()
_NOT_THE_LAST = {"_id": {"$ne": _THE_LAST["_id"]}}
"""A scan with a lower bound only returns the last key in clustered collections only, so it is read apart."""
_NEARLY_FULL = 0.9

Find: TypeAlias = Callable[[Mapping[str, Any]], Generator[bytes, None, None]]
"""Batches of documents, for the options of a `find`."""


def nothing(_: int) -> None:
    pass


class Stopped(Exception):
    """The client that requested the verification has disconnected."""


@dataclass(frozen=True, slots=True)
class IdRange:
    """`[low, high)` in the order of the index on `_id`, each bound a raw `{_id: ...}`; None is an open end."""

    low: bytes | None = None
    high: bytes | None = None


EVERYTHING = IdRange()


def ranges_between(splits: Sequence[bytes]) -> tuple[IdRange, ...]:
    """Ranges with open ends: they include documents of the target below or above all keys of the source."""
    bounds = [None, *splits, None]
    return tuple(IdRange(low, high) for low, high in pairwise(bounds))


@dataclass(frozen=True, slots=True)
class TableReader:
    find: Find
    size: Callable[[], TableSize]
    stop: threading.Event
    columns: Columns | None = None
    """What the target sees of the source's documents; None: all."""
    in_order: bool = True
    """Whether a range comes in the order of the index on `_id`."""
    clustered: bool = False
    """The whole comes in this order by itself: a server before 6.0 would sort buckets in memory."""
    at_ts: ClusterTime | None = None
    """As of which time of its side it is read. None: as it is now."""
    took: Callable[[int], None] = nothing
    """Told how many bytes came. It may wait."""

    @classmethod
    def of_source(
        cls,
        source: ComparedSource,
        schema: TableSchema,
        stop: threading.Event,
        columns: Columns | None,
        at_ts: ClusterTime | None,
        took: Callable[[int], None],
    ) -> Self:
        in_buckets = schema.rows_at(schema.name).in_buckets
        return cls(
            partial(source.find, schema),
            partial(source.size, schema),
            stop,
            columns,
            in_order=source.in_order,
            clustered=source.in_order and in_buckets,
            at_ts=at_ts,
            took=took,
        )

    @classmethod
    def of_target(
        cls,
        client: Client,
        name: TableName,
        stop: threading.Event,
        at_ts: ClusterTime | None,
        took: Callable[[int], None],
    ) -> Self:
        """It may be a standalone server."""
        translated_here = partial(translated, f"reading {name} of the target", PermanentError)

        def find(options: Mapping[str, Any]) -> Generator[bytes, None, None]:
            with translated_here():
                yield from find_batches(client, name, options)

        def size() -> TableSize:
            with translated_here():
                return table_size(client, name)

        return cls(find, size, stop, clustered=name.in_buckets, at_ts=at_ts, took=took)

    def batches(self, keys: IdRange = EVERYTHING) -> Iterator[bytes]:
        """Batches of the range's documents."""
        bounds: dict[str, Any] = {}
        if keys.low is not None:
            bounds["min"] = RawBSONDocument(keys.low)
        if keys.high is not None:
            bounds["max"] = RawBSONDocument(keys.high)
        if bounds:
            bounds["hint"] = _ID_INDEX
        last_key_apart = keys.low is not None and keys.high is None
        if last_key_apart:
            bounds["filter"] = _NOT_THE_LAST
        yield from self._read(bounds if self.clustered and not bounds else bounds | {"sort": _ID_INDEX})
        if last_key_apart:
            yield from self._read({"filter": _THE_LAST})

    def look_up(self, keys: Collection[bytes]) -> Iterator[tuple[bytes, tuple[bytes, ...]]]:
        """Each key's documents: none, one, or several if several shards have the key."""
        remaining = list(keys)
        while remaining:
            some, remaining = remaining[:_KEYS_AT_ONCE], remaining[_KEYS_AT_ONCE:]
            found: dict[bytes, list[bytes]] = defaultdict(list)
            for batch in self._read({"filter": RawBSONDocument(_one_of(some))}):
                for document in documents_in(batch):
                    found[row_key(document_key(document))].append(document)
            for key in some:
                yield key, tuple(found[row_key(key)])

    def nearly_full(self, options: Document) -> bool:
        """Whether a capped collection with these options drops its oldest documents, or will soon."""
        bounds = options.decode()
        found = self.size()
        sizes = (found.bytes, bounds.get("size", 0)), (found.documents, bounds.get("max", 0))
        return any(most > 0 and size >= _NEARLY_FULL * most for size, most in sizes)

    def _read(self, options: Mapping[str, Any]) -> Iterator[bytes]:
        if self.at_ts is not None:
            options = {**options, "readConcern": {"level": "snapshot", "atClusterTime": self.at_ts.to_bson()}}
        with closing(self.find(options)) as batches:
            for batch in batches:
                if self.stop.is_set():
                    raise Stopped
                self.took(len(batch))
                yield batch if self.columns is None else b"".join(map(self.columns.document, documents_in(batch)))


def _one_of(keys: Collection[bytes]) -> bytes:
    """`{_id: {$in: [...]}}` with the raw bytes of the keys."""
    values = []
    for number, key in enumerate(keys):
        ((_, kind, at, end),) = elements(key)
        values.append(bytes((kind,)) + str(number).encode() + b"\x00" + key[at:end])
    array = document_of(values)
    wanted = document_of([b"\x04$in\x00", array])
    return document_of([b"\x03_id\x00", wanted])


_THREADS = 8
_NOT_ABOUT_THE_TABLE = frozenset({"temp"})
_UNAUTHORIZED = 13


def read_target(
    client: Client, wanted: Callable[[TableName], bool], written: Collection[str]
) -> dict[TableName, ObservedTable]:
    """Return the tables of the target. It may be any deployment, even a standalone server, so its oplog is not read. `written`: the databases that the
    changefeed writes. Of others the user may see no more than that they are there, so nothing was written there.
    """

    def entries_of(db: str) -> list[tuple[TableName, Mapping[str, Any]]]:
        try:
            return list(_listed(client, db))
        except OperationFailure as error:
            if error.code != _UNAUTHORIZED or db in written:
                raise
            return []

    with (
        translated("reading the catalog of the target", SinkRefused),
        ThreadPoolExecutor(_THREADS, "target") as threads,
    ):
        databases = [db for db in client.list_database_names() if db not in SYSTEM_DATABASES]
        entries = chain.from_iterable(threads.map(entries_of, databases))
        chosen = [(name, info) for name, info in entries if wanted(name)]
        tables = threads.map(lambda entry: _table(client, *entry), chosen)
        return {name: table for (name, _), table in zip(chosen, tables, strict=True)}


def _listed(client: Client, db: str) -> Iterator[tuple[TableName, Mapping[str, Any]]]:
    for info in listed(client, db, "listCollections"):
        name = TableName(db, info["name"])
        if not name.system:
            yield name, info


def _table(client: Client, name: TableName, info: Mapping[str, Any]) -> ObservedTable:
    options = {option: value for option, value in info.get("options", {}).items() if option not in _NOT_ABOUT_THE_TABLE}
    indexes = () if info.get("type") == "view" else listed_indexes(client, name)
    return ObservedTable(uuid=None, options=Document.of(options), indexes=indexes)
