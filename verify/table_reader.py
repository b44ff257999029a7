"""`TableReader`: reads the documents of one table of one side, by ranges of `_id` or by single keys, as bytes."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Self, TypeAlias, cast

from bson.raw_bson import RawBSONDocument
from pymongo.errors import InvalidName
from pymongo.read_concern import ReadConcern

from changefeed.bson_bytes import document_of, elements
from changefeed.documents.document import Document
from changefeed.documents.row_key import LAST_KEY, row_key
from changefeed.errors import PermanentError
from changefeed.table import TableName, TableSize
from sink.mongodb.connection import Client
from sink.mongodb.target_errors import translated as translated_of_target
from source.columns import Columns
from source.errors import translated as translated_of_source
from source.raw_find import RawFind
from source.tables.chunks import table_size
from verify.raw_document import document_key, documents_in

_KEYS_AT_ONCE = 100
_ID_INDEX = {"_id": 1}
_THE_LAST = LAST_KEY.decode()
_NOT_THE_LAST = {"_id": {"$ne": _THE_LAST["_id"]}}
"""A scan with a lower bound only returns the last key in clustered collections only, so it is read apart."""
_NEARLY_FULL = 0.9
_MOST_DOCUMENTS = 100_000
"""In a reply, which ends at 16 MB."""

Find: TypeAlias = Callable[[Mapping[str, Any]], Generator[bytes, None, None]]
"""Batches of documents, for the options of a `find`."""
Translated: TypeAlias = Callable[[], AbstractContextManager[None]]


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

    @classmethod
    def of_source(cls, client: Client, name: TableName, stop: threading.Event, columns: Columns | None = None) -> Self:
        """With majority read concern, because only that state is replicated."""
        translated = partial(translated_of_source, f"reading {name} of the source")
        find = partial(_find, client, name, ReadConcern("majority"), translated)
        size = partial(_size, client, name, translated)
        return cls(find, size, stop, columns, clustered=name.in_buckets)

    @classmethod
    def of_target(cls, client: Client, name: TableName, stop: threading.Event) -> Self:
        """It may be a standalone server."""
        translated = partial(translated_of_target, f"reading {name} of the target", PermanentError)
        find, size = partial(_find, client, name, None, translated), partial(_size, client, name, translated)
        return cls(find, size, stop, clustered=name.in_buckets)

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
        with closing(self.find(options)) as batches:
            for batch in batches:
                if self.stop.is_set():
                    raise Stopped
                yield batch if self.columns is None else b"".join(map(self.columns.document, documents_in(batch)))


def _find(
    client: Client, name: TableName, concern: ReadConcern | None, translated: Translated, options: Mapping[str, Any]
) -> Generator[bytes, None, None]:
    with translated():
        try:
            collection = client[name.db].get_collection(name.coll, read_concern=concern)
        except InvalidName:
            yield from _found(client, name, concern, options)
            return
        with collection.find_raw_batches(**options) as cursor:
            for batch in cursor:
                yield cast("bytes", batch)  # documented by the driver, but not in its type hints


def _found(
    client: Client, name: TableName, concern: ReadConcern | None, options: Mapping[str, Any]
) -> Generator[bytes, None, None]:
    """By plain commands, which take names that the driver's own cursors refuse."""
    given = {**options, "readConcern": concern.document} if concern is not None else options
    with RawFind(client, name, given, most=_MOST_DOCUMENTS) as replies:
        for found in replies:
            yield b"".join(found.documents)


def _size(client: Client, name: TableName, translated: Translated) -> TableSize:
    with translated():
        return table_size(client, name)


def _one_of(keys: Collection[bytes]) -> bytes:
    """`{_id: {$in: [...]}}` with the raw bytes of the keys."""
    values = []
    for number, key in enumerate(keys):
        ((_, kind, at, end),) = elements(key)
        values.append(bytes((kind,)) + str(number).encode() + b"\x00" + key[at:end])
    array = document_of(values)
    wanted = document_of([b"\x04$in\x00", array])
    return document_of([b"\x03_id\x00", wanted])
