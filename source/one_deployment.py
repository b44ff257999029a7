"""`OneDeployment`: a replica set, or a sharded cluster through a router: one connection shows everything."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import islice

from changefeed.capture import Capture
from changefeed.cluster_time import ClusterTime
from changefeed.position import Position
from changefeed.table import TableId, TableName, TableSchema, TableSize
from changefeed.table_layout import TableLayout
from changefeed.users import Principals
from source.connection import Client, deployment_of
from source.ddl.ddl_watch import DdlWatch
from source.ddl_opening import open_ddl_watch
from source.oplog.row_reader import MOST_NAMES, OplogReader
from source.oplog.window import OplogWindow, read_oplog_window
from source.principals import read_principals
from source.row_capture import RowCapture, of_oplog, of_stream
from source.source import ChunkRows
from source.stream.heartbeat import beat, end_heartbeats
from source.stream.note import NoteKeeper
from source.stream.window_reader import ReadOptions, WindowReader
from source.tables.catalog import CatalogReading
from source.tables.chunk_reader import Chunk, ChunkReader, ReadWay, keeps_snapshots
from source.tables.chunks import Division, divide
from source.tables.layout_reading import read_layout
from source.tables.row_read import Row, read_row
from source.tables.stable_catalog import read_stable_catalog
from source.tables.table_size import table_sizes


class OneDeployment:
    def __init__(self, client: Client, capture: Capture) -> None:
        self._client = client
        self._capture = capture
        self._notes = NoteKeeper(client)

    def check(self) -> None:
        deployment_of(self._client)

    def close(self) -> None:
        self._client.close()

    def open_watch(self, start: Position) -> DdlWatch:
        return open_ddl_watch(self._client, start, self._capture)

    def read_tables(self, wanted: Callable[[TableName], bool]) -> CatalogReading:
        return read_stable_catalog(self._client, wanted, self.open_watch, buckets=self._capture is Capture.OPLOG)

    def sizes(self, names: Iterable[TableName]) -> Mapping[TableName, TableSize]:
        return table_sizes(self._client, names)

    def oplog_window(self) -> OplogWindow | None:
        return read_oplog_window(self._client)

    def read_principals(self) -> Principals:
        return read_principals(self._client)

    def beat(self, name: str, *, checkpoint: Position, last_ts: ClusterTime | None) -> ClusterTime | None:
        return beat(self._client, name, checkpoint=checkpoint, last_ts=last_ts)

    def end_heartbeats(self, name: str) -> None:
        end_heartbeats(self._client, name)

    def move_on(self) -> None:
        self._notes.write(ClusterTime(0, 0))

    def rows(self, names: Iterable[TableName], _ids: Mapping[TableId, TableId], options: ReadOptions) -> RowCapture:
        if self._capture is not Capture.OPLOG:
            return of_stream(WindowReader(self._client, options))
        wanted = list(islice(names, MOST_NAMES + 1))
        few = [str(each) for name in wanted for each in (name, name.buckets)] if len(wanted) <= MOST_NAMES else None
        return of_oplog(OplogReader(self._client, few, patience=options.patience, about=options.about))

    def rows_with_images(self, options: ReadOptions) -> RowCapture:
        return of_stream(WindowReader(self._client, options))

    def row(
        self,
        table: TableName,
        uuids: Sequence[TableId],
        key: bytes,
        *,
        not_before: ClusterTime,
        of_another: Callable[[TableId], bool],  # noqa: ARG002 - a table keeps its UUID
    ) -> Row | None:
        return read_row(self._client, table, uuids[0], key, not_before=not_before)

    def divide(self, schema: TableSchema) -> Division:
        return divide(self._client, schema)

    def layout(self, schema: TableSchema) -> TableLayout | None:
        return read_layout(self._client, schema) if deployment_of(self._client).sharded else None

    def chunk(self, chunk: Chunk, way: ReadWay) -> ChunkRows:
        return ChunkReader(self._client, chunk, way)

    @cached_property
    def snapshots(self) -> bool:
        return keeps_snapshots(deployment_of(self._client).version)
