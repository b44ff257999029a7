"""What a verification reads of its two sides: `ComparedSource` of the source, `read_target` of the target.

ComparedSource ─┬─ ComparedDeployment     a replica set or a router: one connection shows everything
                └─ ComparedCluster        config servers and all shards
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from bson.codec_options import CodecOptions, DatetimeConversion
from pymongo.errors import OperationFailure

from changefeed.capture import Capture
from changefeed.cluster_time import ClusterTime
from changefeed.documents.document import Document
from changefeed.errors import SinkRefused
from changefeed.records.ddl import ObservedTable
from changefeed.table import SYSTEM_DATABASES, TableName, TableSchema, TableSize
from sink.mongodb.connection import Client as TargetClient
from sink.mongodb.ddl.ddl_commands import NAMESPACE_NOT_FOUND
from sink.mongodb.target_errors import translated as translated_of_target
from source.columns import Columns
from source.connection import Client, connect
from source.errors import translated as translated_of_source
from source.oplog.window import newest_time
from source.sharded.cluster_clients import ClusterClients, reach_newest
from source.sharded.owned.cluster_catalog import read_cluster_catalog
from source.sharded.owned.owned_chunks import cluster_sizes, divide_cluster
from source.sharded.owned.owned_find import owned_find
from source.stream.note import NoteKeeper
from source.tables.catalog import read_catalog
from source.tables.chunks import Division, divide
from verify.table_reader import TableReader


class ComparedSource(Protocol):
    """What a verification asks of a source, whatever kind of deployment it is. For several threads."""

    def read_tables(self, wanted: Callable[[TableName], bool]) -> tuple[TableSchema, ...]: ...

    def divide(self, schema: TableSchema, *, chunk_bytes: int, most: int) -> Division: ...

    def reader(self, schema: TableSchema, stop: threading.Event, columns: Columns | None) -> TableReader: ...

    def newest_time(self) -> ClusterTime:
        """At or after everything that earlier calls have read."""
        ...

    def resolve(self, at_ts: ClusterTime) -> None:
        """Called when replication has not passed that time yet: a quiet source may show nothing later."""

    def close(self) -> None: ...


class ComparedDeployment:
    """A source to which one connection leads."""

    def __init__(self, client: Client, *, buckets: bool = True) -> None:
        """`buckets`: its changefeed knows a time series by its buckets, as the oplog shows it."""
        self._client = client
        self._buckets = buckets
        self._lock = threading.Lock()

    def read_tables(self, wanted: Callable[[TableName], bool]) -> tuple[TableSchema, ...]:
        return read_catalog(self._client, wanted, buckets=self._buckets).tables

    def divide(self, schema: TableSchema, *, chunk_bytes: int, most: int) -> Division:
        return divide(self._client, schema, chunk_bytes=chunk_bytes, most=most)

    def reader(self, schema: TableSchema, stop: threading.Event, columns: Columns | None) -> TableReader:
        return TableReader.of_source(self._client, schema.rows_at(schema.name), stop, columns)

    def newest_time(self) -> ClusterTime:
        return newest_time(self._client)

    def resolve(self, at_ts: ClusterTime) -> None:
        """The last write does not become resolved before a later entry: a note is one."""
        with self._lock:
            NoteKeeper(self._client).write(at_ts)

    def close(self) -> None:
        self._client.close()


_MOST_DOCUMENTS = 5_000


class ComparedCluster:
    """A sharded cluster, of which each shard shows the documents that it owns.

    A range is read at all shards at one cluster time, so chunks may move meanwhile. Its documents come shard by shard, in no common order.
    """

    def __init__(self, clients: ClusterClients) -> None:
        self._clients = clients

    def read_tables(self, wanted: Callable[[TableName], bool]) -> tuple[TableSchema, ...]:
        return read_cluster_catalog(self._clients, wanted).tables

    def divide(self, schema: TableSchema, *, chunk_bytes: int, most: int) -> Division:
        return divide_cluster(self._clients, schema, chunk_bytes=chunk_bytes, most=most)

    def reader(self, schema: TableSchema, stop: threading.Event, columns: Columns | None) -> TableReader:
        name, capped = schema.name, bool(schema.options.decode().get("capped"))

        def find(arguments: Mapping[str, Any]) -> Generator[bytes, None, None]:
            return self._find(name, arguments, snapshot=not capped)

        return TableReader(find, lambda: self._size(name), stop, columns, in_order=False)

    def newest_time(self) -> ClusterTime:
        return reach_newest(self._clients)

    def resolve(self, at_ts: ClusterTime) -> None:
        """All shards have reached it already."""

    def close(self) -> None:
        self._clients.close()

    def _size(self, name: TableName) -> TableSize:
        return cluster_sizes(self._clients, [name]).get(name, TableSize())

    def _find(self, name: TableName, arguments: Mapping[str, Any], *, snapshot: bool) -> Generator[bytes, None, None]:
        """A table that is not there has no documents."""
        not_before = ClusterTime(0, 0)
        with (
            translated_of_source(f"reading {name} of the source"),
            owned_find(
                self._clients, name, arguments, not_before=not_before, most=_MOST_DOCUMENTS, snapshot=snapshot
            ) as replies,
        ):
            for shard, first in replies.first.items():
                yield b"".join(first.documents)
                for found in replies.rest[shard]:
                    yield b"".join(found.documents)


def open_compared_source(uri: str, capture: Capture | None) -> ComparedSource:
    """Reads primaries: what they have not shown yet would look like a difference."""
    if capture is Capture.SHARD_OPLOGS:
        return ComparedCluster(ClusterClients(uri, capture=None))
    return ComparedDeployment(connect(uri, capture=None), buckets=capture is Capture.OPLOG)


_THREADS = 8
_OPTIONS: CodecOptions[dict[str, Any]] = CodecOptions(
    dict, tz_aware=True, datetime_conversion=DatetimeConversion.DATETIME_AUTO
)
_NOT_ABOUT_THE_TABLE = frozenset({"temp"})


def read_target(client: TargetClient, wanted: Callable[[TableName], bool]) -> dict[TableName, ObservedTable]:
    """Return the tables of the target. It may be any deployment, even a standalone server, so its oplog is not read."""
    with (
        translated_of_target("reading the catalog of the target", SinkRefused),
        ThreadPoolExecutor(_THREADS, "target") as threads,
    ):
        databases = [db for db in client.list_database_names() if db not in SYSTEM_DATABASES]
        listed = [
            entry for entries in threads.map(lambda db: list(_listed(client, db)), databases) for entry in entries
        ]
        chosen = [(name, info) for name, info in listed if wanted(name)]
        tables = threads.map(lambda entry: _table(client, *entry), chosen)
        return {name: table for (name, _), table in zip(chosen, tables, strict=True)}


def _listed(client: TargetClient, db: str) -> Iterator[tuple[TableName, Mapping[str, Any]]]:
    for info in client[db].cursor_command("listCollections", codec_options=_OPTIONS):
        name = TableName(db, info["name"])
        if not name.system:
            yield name, info


def _table(client: TargetClient, name: TableName, info: Mapping[str, Any]) -> ObservedTable:
    options = {option: value for option, value in info.get("options", {}).items() if option not in _NOT_ABOUT_THE_TABLE}
    indexes = () if info.get("type") == "view" else _indexes(client, name)
    return ObservedTable(uuid=None, options=Document.of(options), indexes=indexes)


def _indexes(client: TargetClient, name: TableName) -> tuple[Document, ...]:
    try:
        listed = client[name.db].cursor_command("listIndexes", name.coll, codec_options=_OPTIONS)
        return tuple(Document.of(index) for index in listed)
    except OperationFailure as error:
        if error.code != NAMESPACE_NOT_FOUND:
            raise
        return ()
