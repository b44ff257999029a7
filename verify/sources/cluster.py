"""`ComparedCluster`: a sharded cluster, of which each shard shows the documents that it owns.

A range is read at all shards at one cluster time, so chunks may move meanwhile. Its documents come shard by shard, in no common order.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Mapping
from typing import Any

from changefeed.cluster_time import ClusterTime
from changefeed.table import TableName, TableSchema, TableSize
from source.columns import Columns
from source.errors import translated
from source.sharded.cluster_clients import ClusterClients, reach_newest
from source.sharded.owned.cluster_catalog import read_cluster_catalog
from source.sharded.owned.owned_chunks import cluster_sizes, divide_cluster
from source.sharded.owned.owned_find import owned_find
from source.tables.chunks import Division
from verify.documents.table_reader import TableReader

_MOST_DOCUMENTS = 5_000


class ComparedCluster:
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
            translated(f"reading {name} of the source"),
            owned_find(
                self._clients, name, arguments, not_before=not_before, most=_MOST_DOCUMENTS, snapshot=snapshot
            ) as replies,
        ):
            for shard, first in replies.first.items():
                yield b"".join(first.documents)
                for found in replies.rest[shard]:
                    yield b"".join(found.documents)
