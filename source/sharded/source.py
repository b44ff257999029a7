"""`ShardedSource`: a sharded cluster, read at its config servers and at all its shards; `ComparedCluster`: what a comparison reads of it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Any

from changefeed.cluster_time import ClusterTime
from changefeed.documents.document import raw_document
from changefeed.documents.row_key import key_text
from changefeed.errors import DuplicateId, HistoryLost, InvariantError, SourceUnavailable
from changefeed.position import Position
from changefeed.table import TableId, TableName, TableSchema, TableSize
from changefeed.table_layout import TableLayout
from changefeed.users import Principals
from source.connection import Client, config_documents, read_command
from source.ddl_description import bson_uuid
from source.ddl_watch import DdlWatch
from source.errors import translated
from source.oplog.window import OplogWindow, read_oplog_window
from source.sharded.cluster_clients import CONFIG, ClusterClients, Silence, reach_newest
from source.sharded.owned.cluster_catalog import read_cluster_catalog
from source.sharded.owned.owned_chunks import OwnedChunk, cluster_sizes, divide_cluster
from source.sharded.owned.owned_find import owned_find
from source.sharded.rows.sharded_rows import sharded_rows
from source.sharded.sharded_ddl_watch import ShardedDdlWatch
from source.sharded.stream import ClusterStream, caught_up, operations_of
from source.sharded.tables.rewind import LeftTables, left_tables
from source.source import ChunkRows, RowCapture
from source.stream.window_reader import ReadOptions
from source.tables.catalog import CatalogReading, read_layout, read_undisturbed
from source.tables.chunk_reader import Chunk, ReadWay
from source.tables.chunks import Division
from source.tables.row_read import Row

_LOOKS = 5
_MOST_DOCUMENTS = 5_000
"""In a shard's reply to a comparison."""


class ShardedSource:
    """For all threads. `close` ends the connections."""

    def __init__(self, clients: ClusterClients) -> None:
        self._clients = clients

    def check(self) -> None:
        """Raises if the config servers or a shard does not answer."""
        self._clients.refuse_others()
        for name, host in self._clients.read_shards().items():
            with translated(f"asking shard {name}"):
                read_command(self._clients.of(name, host), "admin", {"ping": 1})

    def close(self) -> None:
        self._clients.close()

    def open_watch(self, start: Position) -> DdlWatch:
        return ShardedDdlWatch(self._clients, start)

    def read_tables(self, wanted: Callable[[TableName], bool]) -> CatalogReading:
        return read_undisturbed(partial(read_cluster_catalog, self._clients), wanted, self.open_watch)

    def sizes(self, names: Iterable[TableName]) -> Mapping[TableName, TableSize]:
        return cluster_sizes(self._clients, names)

    def oplog_window(self) -> OplogWindow | None:
        """What all have that answer. One that was never cut has everything: its replica set may be younger than the cluster."""
        found: list[tuple[OplogWindow, str]] = []
        parts: dict[str, ClusterTime | None] = {}
        away: SourceUnavailable | None = None
        for name, client in self._clients.streams().items():
            try:
                window = read_oplog_window(client)
            except SourceUnavailable as error:
                away, parts[name] = error, None
                continue
            if window is None:
                return None
            found.append((window, name))
            parts[name] = window.oldest_ts
        if not found:
            assert away is not None, "expected the config servers among the streams"
            raise away
        newest_ts = max(window.newest_ts for window, _ in found)
        cut = [each for each in found if not each[0].whole]
        if not cut:
            oldest_ts = min(window.oldest_ts for window, _ in found)
            return OplogWindow(oldest_ts=oldest_ts, newest_ts=newest_ts, whole=True, parts=parts)
        shortest, name = max(cut, key=lambda each: each[0].oldest_ts)
        return OplogWindow(oldest_ts=shortest.oldest_ts, newest_ts=newest_ts, of=f"of {_named(name)} ", parts=parts)

    def silence(self, shard: str, host: str) -> Silence | None:
        """Of a shard that was removed. None: it answers, or it is a shard again."""
        return self._clients.silence(shard, host)

    def left_tables(self, shard: str, since_ts: ClusterTime) -> LeftTables:
        """What a shard that was removed may have had at that time."""
        with closing(ClusterStream(CONFIG, self._clients.config, since_ts, config=True)) as stream:
            try:
                return left_tables(shard, since_ts, operations_of(caught_up(stream)))
            except HistoryLost:
                return LeftTables(all=True)

    def read_principals(self) -> Principals:
        raise InvariantError(
            "users are not replicated from a sharded cluster: such a changefeed is refused when it is created"
        )

    def beat(self, _name: str, *, checkpoint: Position, last_ts: ClusterTime | None) -> ClusterTime | None:
        """Ranges of oplogs need no places to stop at."""
        return last_ts if last_ts is not None else checkpoint.ts

    def end_heartbeats(self, _name: str) -> None:
        """There are none."""

    def move_on(self) -> None:
        """The config servers write a no-op each second, so a read is enough."""
        reach_newest(self._clients)

    def rows(self, _names: Iterable[TableName], ids: Mapping[TableId, TableId], options: ReadOptions) -> RowCapture:
        return sharded_rows(self._clients, ids, options)

    def rows_with_images(self, _options: ReadOptions) -> RowCapture:
        raise InvariantError("oplogs show no documents before a change: no table of such a changefeed is divided")

    def row(
        self,
        table: TableName,
        uuids: Sequence[TableId],
        key: bytes,
        *,
        not_before: ClusterTime,
        of_another: Callable[[TableId], bool],
    ) -> Row | None:
        """Under a name that the table has before and after: a shard finds nothing under one that it had at that time only."""
        name = self._name_now(table, uuids, of_another)
        for _ in range(_LOOKS):
            if name is None:
                return None
            row = self._row(name, uuids[0], key, not_before)
            before, name = name, self._name_now(table, uuids, of_another)
            if name == before:
                return row
        raise SourceUnavailable(f"reading a row of {table}: it was renamed at each of {_LOOKS} attempts")

    def _row(self, name: TableName, table: TableId, key: bytes, not_before: ClusterTime) -> Row:
        arguments = {"filter": raw_document(key), "limit": 1, "singleBatch": True}
        with owned_find(self._clients, name, arguments, not_before=not_before, most=1) as replies:
            having = {shard: found.documents[0] for shard, found in replies.first.items() if found.documents}
            if len(having) > 1:
                raise DuplicateId(
                    f"shards {' and '.join(sorted(having))} of the source each have a document of {name} with key {key_text(key)}; remove one of "
                    "them, then copy the table again"
                ).about(table)
            read_ts = replies.at_ts if replies.snapshot else reach_newest(self._clients)
            return Row(next(iter(having.values()), None), read_ts)

    def _name_now(
        self, table: TableName, uuids: Sequence[TableId], of_another: Callable[[TableId], bool]
    ) -> TableName | None:
        """Within its database: a sharded cluster renames no table into another one.

        A table whose UUIDs are all gone may have got another one of which this node has not heard, and the name may be that of a new table. Until
        an open DDL says which, no row is read.
        """
        wanted = {"$in": [bson_uuid(uuid) for uuid in uuids]}
        with translated(f"looking for {table}"):
            sharded = config_documents(self._clients.config, "collections", {"uuid": wanted})
            if sharded:
                return TableName.parse(str(sharded[0]["_id"]))
            for database in config_documents(self._clients.config, "databases", {"_id": table.db}):
                client = self._clients.of(database["primary"], self._clients.read_shards().get(database["primary"], ""))
                command = {"listCollections": 1, "filter": {"info.uuid": wanted}}
                for info in read_command(client, table.db, command)["cursor"]["firstBatch"]:
                    return TableName(table.db, info["name"])
                uuid = self._uuid_now(client, table)
                if uuid is None or of_another(uuid):
                    return None
                if uuid not in uuids:
                    raise SourceUnavailable(
                        f"{table} has the UUID {uuid} at the source, and no DDL has said yet whether the table has got it or another one has come to the "
                        "name; the row is read again"
                    )
                return table
        return None

    def _uuid_now(self, primary: Client, table: TableName) -> TableId | None:
        found = [each["uuid"] for each in config_documents(self._clients.config, "collections", {"_id": str(table)})]
        if not found:
            command = {"listCollections": 1, "filter": {"name": table.coll}}
            infos = read_command(primary, table.db, command)["cursor"]["firstBatch"]
            found = [each["info"]["uuid"] for each in infos if "uuid" in each["info"]]
        return TableId(bytes(found[0]).hex()) if found else None

    def divide(self, schema: TableSchema) -> Division:
        return divide_cluster(self._clients, schema)

    def layout(self, schema: TableSchema) -> TableLayout | None:
        return read_layout(self._clients.config, schema)

    def chunk(self, chunk: Chunk, _way: ReadWay) -> ChunkRows:
        return OwnedChunk(self._clients, chunk)

    @property
    def snapshots(self) -> bool:
        return True


def _named(stream: str) -> str:
    return "the config servers" if stream == CONFIG else f"shard {stream}"


class ComparedCluster:
    """A sharded cluster, of which each shard shows the documents that it owns.

    A range is read at all shards at one cluster time, so chunks may move meanwhile. Its documents come shard by shard, in no common order.
    """

    in_order = False

    def __init__(self, clients: ClusterClients) -> None:
        self._clients = clients

    def read_tables(self, wanted: Callable[[TableName], bool]) -> tuple[TableSchema, ...]:
        return read_cluster_catalog(self._clients, wanted).tables

    def divide(self, schema: TableSchema, *, chunk_bytes: int, most: int) -> Division:
        return divide_cluster(self._clients, schema, chunk_bytes=chunk_bytes, most=most)

    def find(self, schema: TableSchema, options: Mapping[str, Any]) -> Generator[bytes, None, None]:
        """A table that is not there has no documents."""
        concern = options.get("readConcern")
        past_ts = ClusterTime.from_bson(concern["atClusterTime"]) if concern is not None else None
        with (
            translated(f"reading {schema.name} of the source"),
            owned_find(
                self._clients,
                schema.name,
                options,
                not_before=ClusterTime(0, 0),
                most=_MOST_DOCUMENTS,
                past_ts=past_ts,
            ) as replies,
        ):
            for shard, first in replies.first.items():
                yield b"".join(first.documents)
                for found in replies.rest[shard]:
                    yield b"".join(found.documents)

    def size(self, schema: TableSchema) -> TableSize:
        return cluster_sizes(self._clients, [schema.name]).get(schema.name, TableSize())

    def newest_time(self) -> ClusterTime:
        return reach_newest(self._clients)

    def resolve(self, at_ts: ClusterTime) -> None:
        """All shards have reached it already."""

    def close(self) -> None:
        self._clients.close()
