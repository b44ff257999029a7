"""`OneDeployment`: a replica set, or a sharded cluster through a router: one connection shows everything. Rows and DDL are read from the oplog or from change streams."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from itertools import islice

from pymongo import ReadPreference
from pymongo.read_concern import ReadConcern

from changefeed.capture import Capture
from changefeed.cluster_time import ClusterTime
from changefeed.documents.document import STRICT
from changefeed.errors import SourceUnsupported
from changefeed.position import Position
from changefeed.table import TableId, TableName, TableSchema, TableSize
from changefeed.table_layout import TableLayout
from changefeed.users import Principals, own_users
from source.connection import Client, Deployment, deployment_of
from source.ddl_watch import DdlWatch
from source.errors import translated
from source.majority_watch import MajorityWatch
from source.oplog import row_entry
from source.oplog.ddl_entry import BEFORE_ROWS, WITH_ROWS
from source.oplog.oplog_ddl_watch import OplogDdlWatch
from source.oplog.row_reader import MOST_NAMES, OplogReader
from source.oplog.window import OplogWindow, oldest_time_for_message, read_oplog_window
from source.source import ChunkRows, RowCapture
from source.stream import change_event
from source.stream.note import NoteKeeper, beat, end_heartbeats
from source.stream.stream_ddl_watch import ChangeStreamCursor, ResumingDdlWatch
from source.stream.window_reader import ReadOptions, WindowReader
from source.tables.catalog import CatalogReading, read_layout, read_stable_catalog
from source.tables.chunk_reader import SNAPSHOTS_SINCE, Chunk, ChunkReader, ReadWay
from source.tables.chunks import Division, divide, table_sizes
from source.tables.row_read import Row, read_row


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
        return deployment_of(self._client).version >= SNAPSHOTS_SINCE


def of_stream(reader: WindowReader) -> RowCapture:
    return RowCapture(
        reader=lambda _: reader,
        scan=change_event.scan,
        update_of=change_event.update_of,
        about_of=change_event.about_of,
    )


def of_oplog(reader: OplogReader) -> RowCapture:
    return RowCapture(
        reader=lambda _: reader, scan=row_entry.scan, update_of=row_entry.update_of, about_of=row_entry.about_of
    )


def reads_oplog(capture: Capture, deployment: Deployment) -> bool:
    """Whether DDL is read from the oplog: with the oplog capture, and where change streams do not show all DDL."""
    version = ".".join(map(str, deployment.version))
    if not deployment.sharded:
        return capture is Capture.OPLOG or not deployment.shows_all_ddl
    if capture is Capture.OPLOG:
        raise SourceUnsupported(
            "the source is a sharded cluster, and mongos shows no oplog; write capture: change_stream"
        )
    if not deployment.shows_all_ddl:
        raise SourceUnsupported(
            f"the source is a sharded cluster of MongoDB {version}: its change streams show no indexes and options, and mongos "
            "shows no oplog; the oldest supported version of a sharded cluster is 6.0"
        )
    return False


def open_ddl_watch(client: Client, start: Position, capture: Capture) -> DdlWatch:
    """The watch begins with the first poll."""
    deployment = deployment_of(client)
    if reads_oplog(capture, deployment):
        return OplogDdlWatch(client, start, WITH_ROWS if capture is Capture.OPLOG else BEFORE_ROWS)
    cursor = ChangeStreamCursor(client, sharded=deployment.sharded)
    notes, majority = NoteKeeper(client), MajorityWatch(client)
    return ResumingDdlWatch(cursor, start, notes, majority, partial(oldest_time_for_message, client))


_PATIENCE_MS = 5_000
"""Such a read waits until the majority has confirmed the primary."""


def read_principals(client: Client) -> Principals:
    """As the majority has them now, whichever members the changefeed prefers: a member that is behind lacks users, which would be dropped."""
    with translated("reading the source's users and roles"):
        admin = client.get_database(
            "admin",
            codec_options=STRICT,
            read_preference=ReadPreference.PRIMARY,
            read_concern=ReadConcern("linearizable"),
        )
        users = {str(user["_id"]): user for user in admin["system.users"].find({}, max_time_ms=_PATIENCE_MS)}
        roles = {str(role["_id"]): role for role in admin["system.roles"].find({}, max_time_ms=_PATIENCE_MS)}
        status = admin.command("connectionStatus")
    return Principals(users=users, roles=roles, own=own_users(status))
