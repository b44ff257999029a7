"""`ComparedSource`: what a comparison of both sides reads of a source. `source.opening` opens one.

ComparedSource ─┬─ ComparedDeployment     a replica set or a router: one connection shows everything
                └─ ComparedCluster        config servers and all shards
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Mapping
from typing import Any, Protocol, cast

from pymongo.errors import InvalidName
from pymongo.read_concern import ReadConcern

from changefeed.cluster_time import ClusterTime
from changefeed.table import TableName, TableSchema, TableSize
from source.connection import Client
from source.errors import translated
from source.oplog.window import newest_time
from source.raw_find import RawFind
from source.stream.note import NoteKeeper
from source.tables.catalog import read_catalog
from source.tables.chunks import Division, divide, table_size

_MAJORITY = ReadConcern("majority")
_MOST_DOCUMENTS = 100_000
"""In a reply, which ends at 16 MB."""


class ComparedSource(Protocol):
    """For several threads. Documents are those that the majority has, because only these are replicated."""

    in_order: bool
    """Whether a range comes in the order of the index on `_id`."""

    def read_tables(self, wanted: Callable[[TableName], bool]) -> tuple[TableSchema, ...]: ...

    def divide(self, schema: TableSchema, *, chunk_bytes: int, most: int) -> Division: ...

    def find(self, schema: TableSchema, options: Mapping[str, Any]) -> Generator[bytes, None, None]:
        """Batches of the table's documents, for the options of a `find`."""
        ...

    def size(self, schema: TableSchema) -> TableSize: ...

    def newest_time(self) -> ClusterTime:
        """At or after everything that earlier calls have read."""
        ...

    def resolve(self, at_ts: ClusterTime) -> None:
        """Called when replication has not passed that time yet: a quiet source may show nothing later."""

    def close(self) -> None: ...


class ComparedDeployment:
    """A source to which one connection leads."""

    in_order = True

    def __init__(self, client: Client, *, buckets: bool = True) -> None:
        """`buckets`: its changefeed knows a time series by its buckets, as the oplog shows it."""
        self._client = client
        self._buckets = buckets
        self._lock = threading.Lock()

    def read_tables(self, wanted: Callable[[TableName], bool]) -> tuple[TableSchema, ...]:
        return read_catalog(self._client, wanted, buckets=self._buckets).tables

    def divide(self, schema: TableSchema, *, chunk_bytes: int, most: int) -> Division:
        return divide(self._client, schema, chunk_bytes=chunk_bytes, most=most)

    def find(self, schema: TableSchema, options: Mapping[str, Any]) -> Generator[bytes, None, None]:
        with translated(f"reading {schema.name} of the source"):
            yield from find_batches(self._client, schema.rows_at(schema.name), options, _MAJORITY)

    def size(self, schema: TableSchema) -> TableSize:
        with translated(f"reading {schema.name} of the source"):
            return table_size(self._client, schema.rows_at(schema.name))

    def newest_time(self) -> ClusterTime:
        return newest_time(self._client)

    def resolve(self, at_ts: ClusterTime) -> None:
        """The last write does not become resolved before a later entry: a note is one."""
        with self._lock:
            NoteKeeper(self._client).write(at_ts)

    def close(self) -> None:
        self._client.close()


def find_batches(
    client: Client, name: TableName, options: Mapping[str, Any], concern: ReadConcern | None = None
) -> Generator[bytes, None, None]:
    """Batches of a collection's documents. Plain commands read a name that the driver's own cursors refuse, and a read concern among the options."""
    if "readConcern" in options:
        yield from _by_commands(client, name, options)
        return
    try:
        collection = client[name.db].get_collection(name.coll, read_concern=concern)
    except InvalidName:
        given = {**options, "readConcern": concern.document} if concern is not None else options
        yield from _by_commands(client, name, given)
        return
    with collection.find_raw_batches(**options) as cursor:
        for batch in cursor:
            yield cast("bytes", batch)  # documented by the driver, but not in its type hints


def _by_commands(client: Client, name: TableName, options: Mapping[str, Any]) -> Generator[bytes, None, None]:
    with RawFind(client, name, options, most=_MOST_DOCUMENTS) as replies:
        for found in replies:
            yield b"".join(found.documents)
