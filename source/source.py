"""`Source`: a source as owner and tasks read it, whatever kind of deployment it is, and whichever capture reads it.

    Source ─┬─ one_deployment.OneDeployment     a replica set or a router: one connection shows everything
            └─ sharded.source.ShardedSource     config servers and all shards

Clients of several clusters are never mixed up: each changefeed has its own.

Rows are read by a `RowCapture`: a reader, and the functions that parse its raw events.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from changefeed.cluster_time import ClusterTime
from changefeed.position import Position, Window
from changefeed.source_history import SourceHistory
from changefeed.table import TableId, TableName, TableSchema, TableSize
from changefeed.table_layout import TableLayout
from changefeed.users import Principals
from source.ddl_watch import DdlWatch
from source.oplog.window import OplogWindow
from source.raw_row import Header, RawBatch, RowAbout
from source.stream.window_reader import ReadOptions
from source.tables.catalog import CatalogReading
from source.tables.chunk_reader import Chunk, ReadWay
from source.tables.chunks import Division
from source.tables.row_read import Row


class RowReader(Protocol):
    def read(self, window: Window) -> Generator[RawBatch, None, None]:
        """The raw events of the window in order, each once. It ends when the window is proven complete."""
        ...

    def took(self, taken: int, read: int) -> None:
        """Report that `taken` of `read` events were wanted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowCapture:
    reader: Callable[[SourceHistory | None], RowReader]
    """From where the windows that are to be read stand at the shards. Only a sharded source needs it."""
    scan: Callable[[bytes], Header]
    update_of: Callable[[bytes, Header], bytes]
    """The `updateDescription` of an update."""
    about_of: Callable[[bytes, Header], RowAbout]
    carried: Callable[[bytes, Header], bytes] | None = None
    """What of an event is given to another process, so that `scan` finds the same header there; None: the event."""


class ChunkRows(Protocol):
    """For one chunk. `after` is known from the first batch on, `until` after the last one."""

    @property
    def ended(self) -> bool: ...

    @property
    def after(self) -> ClusterTime: ...

    @property
    def until(self) -> ClusterTime: ...

    def batches(self) -> Iterator[list[bytes]]: ...

    def end(self) -> None:
        """Nothing more is needed."""


class ReadsRows(Protocol):
    def row(
        self,
        table: TableName,
        uuids: Sequence[TableId],
        key: bytes,
        *,
        not_before: ClusterTime,
        of_another: Callable[[TableId], bool],
    ) -> Row | None:
        """None if the table is gone. `uuids`: all that it is known to have had, the first one first. `of_another`: whether a UUID is known to be
        another table's.
        """
        ...


class TaskSource(ReadsRows, Protocol):
    """What the tasks of a node need of a source. For one thread at a time."""

    def check(self) -> None:
        """Raises if it does not answer."""

    def rows(self, names: Iterable[TableName], ids: Mapping[TableId, TableId], options: ReadOptions) -> RowCapture:
        """`names`: all that wanted tables may have. `ids`: the tables of UUIDs that superseded a table's first one."""
        ...

    def rows_with_images(self, options: ReadOptions) -> RowCapture:
        """With the documents before and after each change, where the source keeps them. Only change streams show them."""
        ...

    def divide(self, schema: TableSchema) -> Division: ...

    def layout(self, schema: TableSchema) -> TableLayout | None:
        """How it shards the table now. None: it does not."""
        ...

    def chunk(self, chunk: Chunk, way: ReadWay) -> ChunkRows: ...

    @property
    def snapshots(self) -> bool:
        """Whether chunks can be read at one time."""

    def close(self) -> None: ...


class Source(TaskSource, Protocol):
    """With what the owner needs of one. For several threads."""

    def open_watch(self, start: Position) -> DdlWatch:
        """It begins with the first poll."""
        ...

    def read_tables(self, wanted: Callable[[TableName], bool]) -> CatalogReading:
        """All wanted tables, as they were at one position."""
        ...

    def sizes(self, names: Iterable[TableName]) -> Mapping[TableName, TableSize]: ...

    def oplog_window(self) -> OplogWindow | None: ...

    def read_principals(self) -> Principals: ...

    def beat(self, name: str, *, checkpoint: Position, last_ts: ClusterTime | None) -> ClusterTime | None: ...

    def end_heartbeats(self, name: str) -> None: ...

    def move_on(self) -> None:
        """Has the source write something without content, so that what is resolved moves. It does nothing where the source allows nothing."""
        ...
