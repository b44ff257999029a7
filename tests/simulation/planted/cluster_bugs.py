"""Bugs of what is read of a sharded cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import schema_store.schema_base
from changefeed.cluster_time import ClusterTime
from changefeed.event import DdlEvent, DdlType
from changefeed.position import Position
from changefeed.sharded_history import ShardedHistory
from changefeed.table import TableId, TableName
from source.oplog.command_entry import CommandEntry
from source.sharded.cluster_clients import Silence
from source.sharded.effective_order import Operation, StreamPoint
from source.sharded.stream import ClusterStream
from source.sharded.tables.cluster_state import ClusterChange
from source.sharded.tables.live_tables import LiveTables
from source.sharded.tables.rewind import LeftTables
from tests.simulation.planted.bug import Bug


def _transactions_count_when_a_shard_logs_their_commit() -> AbstractContextManager[Any]:
    of = CommandEntry.of

    def logged(raw: bytes) -> CommandEntry:
        command = of(raw)
        return replace(command, commit_ts=command.ts) if command.commit_ts is not None else command

    return patch.object(CommandEntry, "of", logged)


def _windows_do_not_look_beyond_their_end_for_commits() -> AbstractContextManager[Any]:
    return patch.object(ShardedHistory, "until", lambda self, shard, end_ts: end_ts)


def _resolved_passes_undecided_transactions() -> AbstractContextManager[Any]:
    return patch.object(StreamPoint, "complete_ts", property(lambda self: self.read_ts))


def _rows_of_migrations_are_taken() -> AbstractContextManager[Any]:
    stack = ExitStack()
    for module in ("shard_row_reader", "row_scan"):
        stack.enter_context(patch(f"source.sharded.rows.{module}.from_migrate", lambda entry: False))
    return stack


def _an_insert_may_come_before_the_delete_of_its_time() -> AbstractContextManager[Any]:
    return patch("source.sharded.rows.row_places._turns", lambda headers: [b"01"] * len(headers))


def _rows_of_two_shards_have_one_position() -> AbstractContextManager[Any]:
    return patch("source.sharded.rows.row_places.digits_of", lambda shard: "0" * 14)


def _a_watermark_forgets_an_idle_shard() -> AbstractContextManager[Any]:
    """It is as far as the shards are in which something waits."""

    def resolved(points: Mapping[str, StreamPoint]) -> ClusterTime:
        busy = [point for point in points.values() if point.waiting_ts is not None]
        return min(point.complete_ts for point in busy or points.values())

    return patch("source.sharded.watch.resolved", resolved)


def _superseded_drops_are_taken() -> AbstractContextManager[Any]:
    dropped = LiveTables._dropped

    def taken(
        self: LiveTables, shard: str, uuid: TableId, operation: Operation, at: Position
    ) -> Iterator[ClusterChange]:
        table = self._ids.get(uuid)
        live = [each for each, found in self._live.items() if found.id == table]
        if uuid in self._live or not live:
            yield from dropped(self, shard, uuid, operation, at)
            return
        self._gone(uuid, shard)
        ended = self._end(live[0])
        yield DdlEvent(position=at, type=DdlType.DROP, db=ended.name.db, table=ended.name, id=ended.id)

    return patch.object(LiveTables, "_dropped", taken)


def _shards_to_which_chunks_moved_are_no_holders() -> AbstractContextManager[Any]:
    created = LiveTables._created

    def of_users(
        self: LiveTables, shard: str, name: TableName, uuid: TableId, operation: Operation, at: Position
    ) -> Iterator[ClusterChange]:
        return iter(()) if operation.get("fromMigrate") else created(self, shard, name, uuid, operation, at)

    return patch.object(LiveTables, "_created", of_users)


def _what_is_kept_of_folded_ddls_forgets_new_uuids() -> AbstractContextManager[Any]:
    """As a node finds it that starts, or becomes the owner."""
    schema = schema_store.schema_base._schema
    return patch("schema_store.schema_base._schema", lambda *kept: replace(schema(*kept), uuids=()))


def _a_removed_shard_that_is_silent_is_gone_at_once() -> AbstractContextManager[Any]:
    return patch.object(Silence, "over", property(lambda _: True))


def _a_shard_is_quiet_since_its_watch_began() -> AbstractContextManager[Any]:
    return patch.object(ClusterStream, "quiet_ts", property(lambda self: self.start_ts))


def _tables_of_a_shard_that_is_gone_go_on() -> AbstractContextManager[Any]:
    return patch.object(LeftTables, "may_have", lambda *_: False)


CLUSTER_BUGS: Mapping[str, Bug] = {
    "transactions count when a shard logs their commit": Bug(
        _transactions_count_when_a_shard_logs_their_commit, 30, sharded=True
    ),
    "windows do not look beyond their end for commits": Bug(
        _windows_do_not_look_beyond_their_end_for_commits, 30, sharded=True
    ),
    "resolved passes undecided transactions": Bug(_resolved_passes_undecided_transactions, 30, sharded=True),
    "rows of migrations are taken": Bug(_rows_of_migrations_are_taken, 30, sharded=True),
    "an insert may come before the delete of its time": Bug(
        _an_insert_may_come_before_the_delete_of_its_time, 110, sharded=True
    ),
    "rows of two shards have one position": Bug(_rows_of_two_shards_have_one_position, 30, sharded=True, sink="files"),
    "a watermark forgets an idle shard": Bug(_a_watermark_forgets_an_idle_shard, 30, sharded=True, sink="files"),
    "a migration is told as inserts": Bug(_rows_of_migrations_are_taken, 30, sharded=True, sink="topics"),
    "superseded drops are taken": Bug(_superseded_drops_are_taken, 30, sharded=True),
    "shards to which chunks moved are no holders": Bug(_shards_to_which_chunks_moved_are_no_holders, 200, sharded=True),
    "what is kept of folded DDLs forgets new UUIDs": Bug(
        _what_is_kept_of_folded_ddls_forgets_new_uuids, 150, sharded=True
    ),
    "a removed shard that is silent is gone at once": Bug(
        _a_removed_shard_that_is_silent_is_gone_at_once, 150, sharded=True
    ),
    "a shard is quiet since its watch began": Bug(_a_shard_is_quiet_since_its_watch_began, 30, sharded=True),
    "tables of a shard that is gone go on": Bug(_tables_of_a_shard_that_is_gone_go_on, 300, sharded=True),
}
