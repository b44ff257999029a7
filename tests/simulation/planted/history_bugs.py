"""Bugs of what is read of a replica set's history, by change streams and by the oplog."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from datetime import UTC
from typing import Any
from unittest.mock import patch

import owner.ddl.feed
import source.oplog.command_entry
import source.oplog.ddl_entry
import source.oplog.find
import source.oplog.row_entry
import source.stream.note
import source.tables.catalog
from changefeed.cluster_time import ClusterTime
from changefeed.event import DdlType
from changefeed.position import Position
from owner.ddl.feed import Subscription, Taken
from source.oplog.command_entry import CommandEntry
from source.oplog.row_reader import OplogReader
from source.raw_find import RawFind
from source.stream.completeness import resolved_after
from tests.simulation.planted.bug import Bug


def _resume_tokens_are_taken_as_inclusive() -> AbstractContextManager[Any]:
    def inclusive(before: Position, **seen: Any) -> Position:
        resolved = resolved_after(before, **seen)
        return Position(resolved.ts.next()) if resolved > before else resolved

    stack = ExitStack()
    stack.enter_context(patch("source.stream.completeness.resolved_after", inclusive))
    stack.enter_context(patch("source.stream.stream_ddl_watch.resolved_after", inclusive))
    return stack


def _an_answer_counts_for_the_moment_at_which_it_is_looked_at() -> AbstractContextManager[Any]:
    take = Subscription.take

    def late(self: Subscription) -> Taken:
        taken = take(self)
        now = vars(owner.ddl.feed)["datetime"].now(UTC)  # the simulation's
        return replace(taken, sighting=replace(taken.sighting, at=now)) if taken.sighting else taken

    return patch.object(Subscription, "take", late)


def _the_last_write_before_a_silence_counts_as_a_note() -> AbstractContextManager[Any]:
    return patch.object(source.stream.note, "end_of_source", lambda committed_ts, _: Position(committed_ts))


def _an_index_counts_from_the_start_of_its_build() -> AbstractContextManager[Any]:
    """The catalog lists the index from then on, but the build may still be aborted."""
    built = source.tables.catalog.built
    return patch("source.tables.catalog.built", lambda specs: built(spec.get("spec", spec) for spec in specs))


def _resolved_is_what_a_member_has_written() -> AbstractContextManager[Any]:
    """Reads do not wait for the majority either: a read that waits would be safe from this bug."""

    def written(hello: Mapping[str, Any]) -> ClusterTime:
        return ClusterTime.from_bson(hello["lastWrite"]["opTime"]["ts"])

    stack = ExitStack()
    stack.enter_context(_ranges_are_read_as_far_as_a_member_has_come())
    stack.enter_context(patch("source.oplog.oplog_ddl_watch.majority_time_of", written))
    return stack


def _ranges_are_read_as_far_as_a_member_has_come() -> AbstractContextManager[Any]:
    def now(client: Any, table: Any, arguments: Mapping[str, Any], **limits: int) -> RawFind:
        concern = {"level": "majority"}
        return RawFind(client, table, {**arguments, "readConcern": concern}, **limits)

    return patch("source.oplog.find.RawFind", now)


def _ranges_begin_behind_their_start() -> AbstractContextManager[Any]:
    entries = source.oplog.find.entries

    def behind(client: Any, start_ts: ClusterTime, end_ts: ClusterTime, wanted: Any) -> Any:
        return entries(client, start_ts.next() if start_ts.next() < end_ts else start_ts, end_ts, wanted)

    return _in_both_readers("entries", behind)


def _ranges_go_on_to_their_end_and_the_next_begins_behind_it() -> AbstractContextManager[Any]:
    """The resolved time is treated as a time that was read."""
    entries = source.oplog.find.entries

    def without_the_last(client: Any, start_ts: ClusterTime, end_ts: ClusterTime, wanted: Any) -> Any:
        last_ts = ClusterTime.from_int(end_ts.to_int() - 1)
        return entries(client, start_ts, max(last_ts, start_ts), wanted)

    return _in_both_readers("entries", without_the_last)


def _nobody_asks_whether_history_is_whole() -> AbstractContextManager[Any]:
    return patch("source.oplog.find.refuse_a_gap", lambda client, start_ts, member: None)


def _history_is_found_whole_before_it_is_read() -> AbstractContextManager[Any]:
    entries, refuse = source.oplog.find.entries, source.oplog.find.refuse_a_gap

    def asked_before(client: Any, start_ts: ClusterTime, end_ts: ClusterTime, wanted: Any) -> Any:
        refuse(client, start_ts, None)
        return entries(client, start_ts, end_ts, wanted)

    stack = ExitStack()
    stack.enter_context(_in_both_readers("entries", asked_before))
    stack.enter_context(_nobody_asks_whether_history_is_whole())
    return stack


def _in_both_readers(name: str, value: Any) -> AbstractContextManager[Any]:
    stack = ExitStack()
    stack.enter_context(patch(f"source.oplog.row_reader.{name}", value))
    stack.enter_context(patch(f"source.oplog.oplog_ddl_watch.{name}", value))
    return stack


def _transactions_are_read_from_where_their_range_begins() -> AbstractContextManager[Any]:
    read_range, earlier = OplogReader._range, source.oplog.find._earlier
    starts: list[ClusterTime] = []

    def ranged(self: OplogReader, progress: Any) -> Any:
        starts[:] = [progress.start_ts]
        return read_range(self, progress)

    def within(entry_at: Any, last: CommandEntry) -> list[ClusterTime]:
        return [ts for ts in earlier(entry_at, last) if not starts or ts >= starts[0]]

    stack = ExitStack()
    stack.enter_context(patch.object(OplogReader, "_range", ranged))
    stack.enter_context(patch("source.oplog.find._earlier", within))
    return stack


def _statements_of_a_session_are_taken_for_a_transaction() -> AbstractContextManager[Any]:
    return patch("source.oplog.command_entry._RETRYABLE_WRITES", -1)


def _operations_of_one_time_are_at_one_place() -> AbstractContextManager[Any]:
    made = source.oplog.row_entry.made_entry

    def at_one_place(operation: bytes, ts: bytes, index: int, *, upserts: bool) -> bytes:
        return made(operation, ts, 0, upserts=upserts)

    return patch("source.oplog.row_reader.made_entry", at_one_place)


def _an_index_counts_from_the_entry_that_begins_its_build() -> AbstractContextManager[Any]:
    commands = {**source.oplog.ddl_entry._TABLE_COMMANDS, "startIndexBuild": DdlType.CREATE_INDEXES}
    del commands["commitIndexBuild"]
    known = source.oplog.ddl_entry._NO_DDL | {"commitIndexBuild"}
    stack = ExitStack()
    stack.enter_context(patch("source.oplog.ddl_entry._TABLE_COMMANDS", commands))
    stack.enter_context(patch("source.oplog.ddl_entry._NO_DDL", known))
    return stack


def _rows_that_a_server_moved_are_passed_over() -> AbstractContextManager[Any]:
    entries = source.oplog.find.entries

    def of_users(client: Any, start_ts: ClusterTime, end_ts: ClusterTime, wanted: Mapping[str, object]) -> Any:
        return entries(client, start_ts, end_ts, {**wanted, "fromMigrate": {"$ne": True}})

    return patch("source.oplog.row_reader.entries", of_users)


def _parts_of_a_transaction_are_applied_as_they_are_met() -> AbstractContextManager[Any]:
    true = source.oplog.command_entry._true
    return patch("source.oplog.command_entry._true", lambda fields, name: name != b"partialTxn" and true(fields, name))


def _a_table_that_cannot_keep_up_is_lost_with_the_others() -> AbstractContextManager[Any]:
    return patch("owner.source_watch.others_go_on", lambda *_: False)


HISTORY_BUGS: Mapping[str, Bug] = {
    "a table that cannot keep up is lost with the others": Bug(
        _a_table_that_cannot_keep_up_is_lost_with_the_others, 30, slow=True
    ),
    "resume tokens are taken as inclusive": Bug(_resume_tokens_are_taken_as_inclusive, 110),
    "an answer counts for the moment at which it is looked at": Bug(
        _an_answer_counts_for_the_moment_at_which_it_is_looked_at, 90
    ),
    "the last write before a silence counts as a note": Bug(_the_last_write_before_a_silence_counts_as_a_note, 60),
    "an index counts from the start of its build": Bug(_an_index_counts_from_the_start_of_its_build, 50),
    "resolved is what a member has written": Bug(_resolved_is_what_a_member_has_written, 60),
    "ranges are read as far as a member has come": Bug(_ranges_are_read_as_far_as_a_member_has_come, 500),
    "ranges begin behind their start": Bug(_ranges_begin_behind_their_start, 20),
    "ranges leave out the entry at their end": Bug(_ranges_go_on_to_their_end_and_the_next_begins_behind_it, 20),
    "nobody asks whether history is whole": Bug(_nobody_asks_whether_history_is_whole, 200),
    "history is found whole before it is read": Bug(_history_is_found_whole_before_it_is_read, 1200),
    "transactions are read from where their range begins": Bug(
        _transactions_are_read_from_where_their_range_begins, 60
    ),
    "statements of a session are taken for a transaction": Bug(
        _statements_of_a_session_are_taken_for_a_transaction, 60
    ),
    "operations of one time are at one place": Bug(_operations_of_one_time_are_at_one_place, 300),
    "an index counts from the entry that begins its build": Bug(
        _an_index_counts_from_the_entry_that_begins_its_build, 60
    ),
    "rows that a server moved are passed over": Bug(_rows_that_a_server_moved_are_passed_over, 60),
    "parts of a transaction are applied as they are met": Bug(_parts_of_a_transaction_are_applied_as_they_are_met, 300),
}
