"""`ComparedDeployment`: a source to which one connection leads."""

from __future__ import annotations

import threading
from collections.abc import Callable

from changefeed.cluster_time import ClusterTime
from changefeed.table import TableName, TableSchema
from source.columns import Columns
from source.connection import Client
from source.oplog.window import newest_time
from source.stream.note import NoteKeeper
from source.tables.catalog import read_catalog
from source.tables.chunks import Division, divide
from verify.documents.table_reader import TableReader


class ComparedDeployment:
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
