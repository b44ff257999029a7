"""`BUGS`: plausible bugs, which prove that the simulation finds them. Each is a context that replaces a part of the product.

They are not in the product: a switch for a bug would itself be a bug.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, timedelta
from functools import partial
from typing import Any
from unittest.mock import patch

import owner.ddl.barrier
import owner.ddl.feed
import owner.decision.decide
import owner.owner
import owner.tables.recopy
import processor.changefeed_processor
import processor.copy.plan
import processor.decision
import processor.lanes.lane_plan
import processor.spark.pipeline
import processor.task.job
import processor.task.permit
import schema_store.schema_base
import source.oplog.command_entry
import source.oplog.ddl_entry
import source.oplog.find
import source.oplog.row_entry
import source.oplog.transaction
import source.sharded.clock
import source.sharded.merge
import source.sharded.owned.owned_find
import source.sharded.row_reader
import source.stream.note
import source.tables.catalog
from changefeed.cluster_time import ClusterTime
from changefeed.errors import PipelineUnavailable
from changefeed.event import DdlEvent, DdlType
from changefeed.position import Position
from changefeed.records import Barrier, DdlRecord, DdlState
from changefeed.sharded.former import LeftTables, Silence
from changefeed.sharded.history import ShardedHistory
from changefeed.table import TableId, TableName
from coordination.etcd.protocol import Delete
from coordination.fenced import FencedStore
from coordination.session import Session
from owner.ddl.feed import Subscription, Taken
from owner.ddl.steps import Apply, Observed, RecordExecuting, next_step
from owner.decision.decide import PublishBarrier, RecordDdls
from owner.etcd_writes import ChangefeedWriter
from owner.tables.node_standings import NodeStandings
from owner.tables.progress import Floor, NodeState, TableProgress
from processor.copy.table_copy import TableCopy
from processor.etcd_view import ProcessorView
from processor.lanes.lanes import Lanes
from processor.lanes.windows import Pace
from processor.spark.attempts import Attempts
from processor.spark.stays import Stay
from processor.task.copied_ranges import CopiedFilter
from processor.task.job import JobOutcome
from processor.task.rows.applier import Applier
from processor.task.rows.mounter import Mounter
from processor.task.window_task import replicate_window
from sink.asked_rows import RowRepairs
from sink.mongodb.commander import Commander
from sink.mongodb.ddl.ddl_applier import MongoDdlApplier
from sink.mongodb.ddl.ddl_effect import DdlEffect
from sink.mongodb.majority import write_time
from source.connection import HELLO
from source.oplog.command_entry import CommandEntry
from source.oplog.ddl_watch import OplogDdlWatch
from source.oplog.row_reader import OplogReader
from source.raw.raw_find import RawFind
from source.sharded.resolved import StreamPoint
from source.sharded.stream import ClusterStream
from source.sharded.tables.live_tables import ClusterChange, LiveTables
from source.sharded.unit import Operation
from source.stream.resolved import resolved_after

Plant = Callable[[], AbstractContextManager[Any]]

_COMMON = 30


@dataclass(frozen=True)
class Bug:
    plant: Plant
    found_within: int
    """The number of seeds, from 0 on, within which it is found."""
    sharded: bool = False
    """Whether the source of these seeds is a sharded cluster."""
    kept: bool = False
    """Whether their copies may remove nothing at the target."""

    @property
    def rare(self) -> bool:
        """Finding it takes too long for `make test`."""
        return self.found_within > _COMMON


def _writes_are_not_fenced() -> AbstractContextManager[Any]:
    def commit(self: FencedStore, ops: Sequence[Any], compares: Sequence[Any] = ()) -> int:
        result = self._etcd.txn(tuple(compares), ops)
        self._wrote(result.revision)
        return result.revision

    return patch.object(FencedStore, "commit", commit)


def _unknown_outcomes_are_not_settled() -> AbstractContextManager[Any]:
    """The state is read again, but a delayed request may still arrive."""

    def settle(self: FencedStore) -> int:
        return self._last_rev

    return patch.object(FencedStore, "settle", settle)


def _a_lost_session_goes_on() -> AbstractContextManager[Any]:
    stack = ExitStack()
    stack.enter_context(patch.object(Session, "alive", property(lambda self: not self._wake.is_set())))
    stack.enter_context(patch.object(Session, "lost_at", property(lambda self: self._monotonic() + 10)))
    return stack


def _a_ddl_holds_nothing_while_it_runs() -> AbstractContextManager[Any]:
    holding = Barrier.holding

    def of_those_that_wait(self: Barrier, records: Iterable[DdlRecord]) -> Barrier:
        return holding(self, [record for record in records if record.state is DdlState.PENDING])

    return patch.object(Barrier, "holding", of_those_that_wait)


def _barrier_passes_ddls_that_are_not_recorded() -> AbstractContextManager[Any]:
    decide = owner.decision.decide.decide

    def decided(*arguments: Any, **named: Any) -> Any:
        decision = decide(*arguments, **named)
        late = [action for action in decision.actions if isinstance(action, RecordDdls)]
        rest = [action for action in decision.actions if not isinstance(action, RecordDdls)]
        gates = [index for index, action in enumerate(rest) if isinstance(action, PublishBarrier)]
        at = gates[-1] + 1 if gates else 0
        return replace(decision, actions=(*rest[:at], *late, *rest[at:]))

    return patch("owner.changefeed_owner.decide", decided)


def _barrier_includes_its_position() -> AbstractContextManager[Any]:
    def of(self: Barrier, table: TableId) -> Position:
        held = self.held.get(table)
        return self.position if held is None else min(self.position, Position(held.ts.next()))

    return patch.object(Barrier, "of", of)


def _tables_are_not_held() -> AbstractContextManager[Any]:
    return patch.object(Barrier, "holding", lambda self, records: self)


def _windows_pass_the_barrier() -> AbstractContextManager[Any]:
    end_of = Pace.end_of

    def beyond(self: Pace, start: Position, end: Position) -> Position:
        return end_of(self, start, Position(replace(end.ts, seconds=end.ts.seconds + 1)))

    return patch.object(Pace, "end_of", beyond)


def _lanes_forget_held_tables() -> AbstractContextManager[Any]:
    plan = processor.lanes.lane_plan.plan

    def planned(lanes: Lanes, ahead: Barrier, *rest: Any) -> Any:
        return plan(lanes, replace(ahead, held={}), *rest)

    return patch("processor.decision.plan", planned)


def _ddl_runs_before_its_tables_have_arrived() -> AbstractContextManager[Any]:
    return patch("owner.ddl.barrier._reached", lambda record, checkpoint_of: True)


def _ddls_that_meet_run_in_any_order() -> AbstractContextManager[Any]:
    return patch("owner.ddl.barrier._first", iter)


def _ddl_runs_before_it_is_recorded_as_executing() -> AbstractContextManager[Any]:
    def stepped(record: DdlRecord, progress: Any, **rest: Any) -> Any:
        step = next_step(record, progress, **rest)
        if isinstance(step, RecordExecuting) and isinstance(progress, Observed):
            return Apply(step.record)
        return step

    return patch("owner.decision.ddl_steps.next_step", stepped)


def _ddls_are_done_again_without_a_look() -> AbstractContextManager[Any]:
    return patch("sink.mongodb.ddl.ddl_applier.effect", lambda ddl, before, now, ttl: DdlEffect.ABSENT)


def _checkpoint_passes_open_ddls() -> AbstractContextManager[Any]:
    def checkpoint(tables: Position | None, records: Any, resolved: Position) -> Position:
        return resolved if tables is None else tables

    return patch("owner.ddl.barrier.changefeed_checkpoint", checkpoint)


def _stale_reports_count() -> AbstractContextManager[Any]:
    return patch.object(TableProgress, "_still_uncovered", lambda self, node, state, floor: {})


def _tables_count_from_the_start_of_their_assignment() -> AbstractContextManager[Any]:
    """Found in this product by the simulation."""
    nowhere = Position.parse("0.0")
    return patch.object(Floor, "of", lambda self, table: nowhere)


def _tables_are_taken_over_without_waiting() -> AbstractContextManager[Any]:
    return patch.dict(owner.owner.Owner.__init__.__kwdefaults__, {"margin": timedelta(0)})


def _tables_are_given_to_nodes_that_are_not_ready() -> AbstractContextManager[Any]:
    takes = property(lambda self: self.gone_at is None and not self.draining)
    return patch.object(NodeState, "takes_tables", takes)


def _a_node_that_fails_keeps_its_tables() -> AbstractContextManager[Any]:
    return patch.object(NodeStandings, "failing", lambda self, processors: frozenset())


def _tables_are_released_while_at_work() -> AbstractContextManager[Any]:
    def released(self: Lanes) -> Mapping[TableId, Position]:
        return {table: self.checkpoint_of(table) for table in self.leaving}

    return patch.object(Lanes, "released", released)


def _tasks_ask_for_no_permit() -> AbstractContextManager[Any]:
    return patch.object(processor.task.permit.TaskPermit, "__call__", lambda self: self._budget)


def _lost_attempts_are_not_revoked() -> AbstractContextManager[Any]:
    return patch.object(Attempts, "_revoke", lambda self, attempt, reason: None)


def _a_window_that_its_stay_lost_counts_as_not_taken() -> AbstractContextManager[Any]:
    hand_over = Stay._hand_over

    def or_nothing(self: Stay, channel: Any, spec: Any) -> JobOutcome | None:
        try:
            return hand_over(self, channel, spec)
        except PipelineUnavailable:
            return None

    return patch.object(Stay, "_hand_over", or_nothing)


def _tasks_end_before_their_last_batch_is_written() -> AbstractContextManager[Any]:
    return patch.object(Applier, "_wait", lambda self: setattr(self, "_writing", None))


def _windows_are_reported_before_they_are_acknowledged() -> AbstractContextManager[Any]:
    def run(self: Any, shared: Any, spec: Any) -> JobOutcome:
        handle = shared.through(self._spark)
        task = partial(replicate_window, handle, spec)
        self._spark._begin(self.group(shared.context, spec), task)
        return JobOutcome()

    return patch.object(processor.spark.pipeline.Pipeline, "run", run)


def _failed_windows_count_as_done() -> AbstractContextManager[Any]:
    failed = processor.decision.failed

    def done(following: Any, number: int, error: Any, **rest: Any) -> Any:
        troubled = failed(following, number, error, **rest)
        return replace(troubled, lanes=following.lanes.finished(number))

    return patch("processor.decision.failed", done)


def _windows_that_ended_early_count_as_whole() -> AbstractContextManager[Any]:
    succeeded = processor.decision.succeeded

    def whole(following: Any, number: int, outcome: JobOutcome, *rest: Any, **more: Any) -> Any:
        return succeeded(following, number, replace(outcome, ended=None), *rest, **more)

    return patch("processor.decision.succeeded", whole)


def _a_window_ends_where_its_last_bucket_ended() -> AbstractContextManager[Any]:
    def last(parts: Sequence[JobOutcome]) -> JobOutcome:
        ends = [part.ended for part in parts if part.ended is not None]
        whole = len(ends) < len(parts)
        return replace(processor.task.job.together(parts), ended=None if whole else max(ends), uneven=False)

    return patch("processor.spark.pipeline.together", last)


def _writes_of_two_primaries_are_confirmed_together() -> AbstractContextManager[Any]:
    def any_primary(self: Commander, reply: Mapping[str, Any], doing: str) -> None:
        self._deferred = write_time(reply)

    return patch.object(Commander, "_same_primary", any_primary)


def _windows_keep_the_schemas_of_before_a_ddl() -> AbstractContextManager[Any]:
    return patch.object(processor.changefeed_processor.ChangefeedProcessor, "_renew_context", lambda self: None)


def _resume_tokens_are_taken_as_inclusive() -> AbstractContextManager[Any]:
    def inclusive(before: Position, **seen: Any) -> Position:
        resolved = resolved_after(before, **seen)
        return Position(resolved.ts.next()) if resolved > before else resolved

    stack = ExitStack()
    stack.enter_context(patch("source.stream.window_progress.resolved_after", inclusive))
    stack.enter_context(patch("source.stream.resuming_ddl_watch.resolved_after", inclusive))
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
    indexes = source.tables.catalog._list_indexes

    def listed(client: Any, name: Any) -> Any:
        return (spec.get("spec", spec) for spec in indexes(client, name))

    return patch("source.tables.catalog._list_indexes", listed)


def _rows_are_not_acknowledged_by_the_majority() -> AbstractContextManager[Any]:
    def unconcerned(command: dict[str, Any], seconds: float) -> dict[str, Any]:
        return {name: value for name, value in command.items() if name != "writeConcern"}

    return patch("sink.mongodb.commander._bounded", unconcerned)


def _ddls_are_not_acknowledged_by_the_majority() -> AbstractContextManager[Any]:
    def answer(self: MongoDdlApplier, command: Any, permitted: float) -> Any:
        return self._client[command.db].command(dict(command.body))

    return patch.object(MongoDdlApplier, "_answer", answer)


def _resolved_is_what_a_member_has_written() -> AbstractContextManager[Any]:
    """Reads do not wait for the majority either: a read that waits would be safe from this bug."""

    def committed(self: OplogDdlWatch) -> ClusterTime:
        written = self._client.admin.command(HELLO)["lastWrite"]
        return ClusterTime.from_bson(written["opTime"]["ts"])

    stack = ExitStack()
    stack.enter_context(_ranges_are_read_as_far_as_a_member_has_come())
    stack.enter_context(patch.object(OplogDdlWatch, "_committed", committed))
    return stack


def _ranges_are_read_as_far_as_a_member_has_come() -> AbstractContextManager[Any]:
    def now(client: Any, table: Any, arguments: Mapping[str, Any], *, most: int) -> RawFind:
        concern = {"level": "majority"}
        return RawFind(client, table, {**arguments, "readConcern": concern}, most=most)

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
    stack.enter_context(patch(f"source.oplog.ddl_watch.{name}", value))
    return stack


def _transactions_are_read_from_where_their_range_begins() -> AbstractContextManager[Any]:
    read_range, earlier = OplogReader._range, source.oplog.transaction._earlier
    starts: list[ClusterTime] = []

    def ranged(self: OplogReader, progress: Any) -> Any:
        starts[:] = [progress.start_ts]
        return read_range(self, progress)

    def within(entry_at: Any, last: CommandEntry) -> list[ClusterTime]:
        return [ts for ts in earlier(entry_at, last) if not starts or ts >= starts[0]]

    stack = ExitStack()
    stack.enter_context(patch.object(OplogReader, "_range", ranged))
    stack.enter_context(patch("source.oplog.transaction._earlier", within))
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


def _stragglers_are_taken_to_be_at_the_checkpoint() -> AbstractContextManager[Any]:
    made = Floor.__init__

    def init(self: Floor, checkpoint: Position, records: Any, stragglers: Any = None) -> None:
        made(self, checkpoint, records)

    return patch.object(Floor, "__init__", init)


def _drops_do_not_wait_for_the_node_of_a_stopped_table() -> AbstractContextManager[Any]:
    return patch.object(TableProgress, "obeys", lambda self, table, rev: True)


def _refused_ddls_hold_the_checkpoint() -> AbstractContextManager[Any]:
    return patch("owner.decision.decide.not_awaited", lambda records, counts, waiting, passed: frozenset())


def _nodes_obey_a_stop_only_by_their_report() -> AbstractContextManager[Any]:
    return patch("processor.decision.standing_still", lambda following, orders: following.failed.keys())


def _only_tables_of_today_are_expected_in_history() -> AbstractContextManager[Any]:
    held = processor.changefeed_processor._held
    return patch(
        "processor.changefeed_processor._held", lambda stored: replace(held(stored), known_from=stored.patterns_since)
    )


def _versions_are_dropped_up_to_the_checkpoint() -> AbstractContextManager[Any]:
    return patch.object(ProcessorView, "settled_below", property(lambda self: self.checkpoint))


def _a_stopped_table_that_ends_is_renamed_first() -> AbstractContextManager[Any]:
    return patch("owner.decision.ddl_steps._as_it_can_be", lambda record, waiting, checkpoints: record)


def _a_table_goes_on_when_its_end_is_released() -> AbstractContextManager[Any]:
    def forgotten(self: ChangefeedWriter, records: Any, opened: Barrier, stragglers: Any) -> None:
        marks = [self._put_straggler(table, straggler) for table, straggler in stragglers.items()]
        ended = [Delete(self._layout.straggler(self._id, id)) for record in records for id in record.scope.ended]
        self._commit([*map(self._put_ddl, records), self._put_barrier(opened), *marks, *ended])

    return patch.object(ChangefeedWriter, "release", forgotten)


def _copies_are_followed_past_chunks_that_are_being_read() -> AbstractContextManager[Any]:
    follows_to = processor.copy.plan.follows_to
    return patch(
        "processor.copy.table_copies.follows_to", lambda copy, inputs: follows_to(copy, replace(inputs, running={}))
    )


def _deletes_are_held_for_chunks_that_nobody_clears() -> AbstractContextManager[Any]:
    return patch.object(CopiedFilter, "of", lambda self, change: self.overlap(change.key, change.time))


def _chunks_that_nobody_clears_are_read_once() -> AbstractContextManager[Any]:
    across = TableCopy.read_across
    return patch.object(
        TableCopy, "read_across", lambda self, position, *, others: across(self, position, others=False)
    )


def _the_rest_of_a_divided_chunk_counts_as_read() -> AbstractContextManager[Any]:
    with_chunk = TableCopy.with_chunk
    return patch.object(
        TableCopy,
        "with_chunk",
        lambda self, read, chunk: with_chunk(self, self.chunks[self.number_from(read.lower)], chunk),
    )


def _what_a_release_creates_is_no_straggler() -> AbstractContextManager[Any]:
    return patch("owner.decision.decide.after_release", lambda *_: {})


def _a_copy_takes_its_tables_place_before_it_has_caught_up() -> AbstractContextManager[Any]:
    return patch("owner.etcd_view._copied", lambda table, stored: (TableId(table), stored.record.stage))


def _rows_of_a_copy_go_to_the_table_that_stands_still() -> AbstractContextManager[Any]:
    mount = Mounter._mount_table
    return patch.object(Mounter, "_mount_table", lambda self, schema: mount(self, replace(schema, beside=None)))


def _own_ddls_overtake_those_of_the_source() -> AbstractContextManager[Any]:
    places = owner.tables.recopy.places
    return patch("owner.tables.recopy.places", lambda barrier, highest, recorded: places(barrier, highest, ()))


def _a_table_enters_while_its_node_has_it() -> AbstractContextManager[Any]:
    reached = owner.ddl.barrier._reached

    def without_leaving(record: DdlRecord, checkpoint_of: Any, waiting: Any) -> bool:
        return record.event.type is DdlType.ENTER or reached(record, checkpoint_of, waiting)

    return patch("owner.ddl.barrier._reached", without_leaving)


def _repairs_count_as_done_when_they_begin() -> AbstractContextManager[Any]:
    return patch("sink.mongodb.rows.row_writer.RowRepairs", lambda asked, _: RowRepairs(asked, None))


def _transactions_count_when_a_shard_logs_their_commit() -> AbstractContextManager[Any]:
    return patch("source.sharded.row_reader._commit_ts", source.sharded.row_reader._ts_of)


def _windows_do_not_look_beyond_their_end_for_commits() -> AbstractContextManager[Any]:
    return patch.object(ShardedHistory, "until", lambda self, shard, end_ts: end_ts)


def _resolved_passes_undecided_transactions() -> AbstractContextManager[Any]:
    return patch.object(StreamPoint, "complete_ts", property(lambda self: self.read_ts))


def _rows_of_migrations_are_taken() -> AbstractContextManager[Any]:
    stack = ExitStack()
    for module in ("row_reader", "rows"):
        stack.enter_context(patch(f"source.sharded.{module}.from_migrate", lambda entry: False))
    return stack


def _an_insert_may_come_before_the_delete_of_its_time() -> AbstractContextManager[Any]:
    return patch("source.sharded.merge._in_turn", lambda rows, document, deletes: rows)


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


def _a_copy_chooses_its_time_before_it_learns_the_owners() -> AbstractContextManager[Any]:
    versions = source.sharded.owned.owned_find._versions
    chosen: list[ClusterTime] = []

    def at_first(clients: Any, table: TableName, hosts: Any) -> Any:
        chosen.append(source.sharded.clock.reach(clients, ClusterTime(0, 0)))
        return versions(clients, table, hosts)

    def then(clients: Any, at_least_ts: ClusterTime) -> ClusterTime:
        return max(chosen.pop(), at_least_ts)

    stack = ExitStack()
    stack.enter_context(patch("source.sharded.owned.owned_find._versions", at_first))
    stack.enter_context(patch("source.sharded.owned.owned_find.reach", then))
    return stack


def _a_removed_shard_that_is_silent_is_gone_at_once() -> AbstractContextManager[Any]:
    return patch.object(Silence, "over", property(lambda _: True))


def _a_shard_is_quiet_since_its_watch_began() -> AbstractContextManager[Any]:
    return patch.object(ClusterStream, "quiet_ts", property(lambda self: self.start_ts))


def _tables_of_a_shard_that_is_gone_go_on() -> AbstractContextManager[Any]:
    return patch.object(LeftTables, "may_have", lambda *_: False)


BUGS: Mapping[str, Bug] = {
    "writes are not fenced": Bug(_writes_are_not_fenced, 40),
    "unknown outcomes are not settled": Bug(_unknown_outcomes_are_not_settled, 80),
    "a lost session goes on": Bug(_a_lost_session_goes_on, 40),
    "a DDL holds nothing while it runs": Bug(_a_ddl_holds_nothing_while_it_runs, 10),
    "barrier passes DDLs that are not recorded": Bug(_barrier_passes_ddls_that_are_not_recorded, 60),
    "barrier includes its position": Bug(_barrier_includes_its_position, 10),
    "tables are not held": Bug(_tables_are_not_held, 10),
    "windows pass the barrier": Bug(_windows_pass_the_barrier, 10),
    "lanes forget held tables": Bug(_lanes_forget_held_tables, 10),
    "DDL runs before its tables have arrived": Bug(_ddl_runs_before_its_tables_have_arrived, 10),
    "DDLs that meet run in any order": Bug(_ddls_that_meet_run_in_any_order, 10),
    "DDL runs before it is recorded as executing": Bug(_ddl_runs_before_it_is_recorded_as_executing, 10),
    "DDLs are done again without a look": Bug(_ddls_are_done_again_without_a_look, 300),
    "checkpoint passes open DDLs": Bug(_checkpoint_passes_open_ddls, 10),
    "stale reports count": Bug(_stale_reports_count, 220),
    "tables count from the start of their assignment": Bug(_tables_count_from_the_start_of_their_assignment, 500),
    "tables are taken over without waiting": Bug(_tables_are_taken_over_without_waiting, 300),
    "tables are given to nodes that are not ready": Bug(_tables_are_given_to_nodes_that_are_not_ready, 30),
    "a node that fails keeps its tables": Bug(_a_node_that_fails_keeps_its_tables, 80),
    "tables are released while at work": Bug(_tables_are_released_while_at_work, 300),
    "tasks ask for no permit": Bug(_tasks_ask_for_no_permit, 600),
    "lost attempts are not revoked": Bug(_lost_attempts_are_not_revoked, 300),
    "a window that its stay lost counts as not taken": Bug(_a_window_that_its_stay_lost_counts_as_not_taken, 700),
    "tasks end before their last batch is written": Bug(_tasks_end_before_their_last_batch_is_written, 10),
    "windows are reported before they are acknowledged": Bug(_windows_are_reported_before_they_are_acknowledged, 20),
    "failed windows count as done": Bug(_failed_windows_count_as_done, 20),
    "windows that ended early count as whole": Bug(_windows_that_ended_early_count_as_whole, 10),
    "a window ends where its last bucket ended": Bug(_a_window_ends_where_its_last_bucket_ended, 60),
    "writes of two primaries are confirmed together": Bug(_writes_of_two_primaries_are_confirmed_together, 200),
    "windows keep the schemas of before a DDL": Bug(_windows_keep_the_schemas_of_before_a_ddl, 10),
    "resume tokens are taken as inclusive": Bug(_resume_tokens_are_taken_as_inclusive, 110),
    "an answer counts for the moment at which it is looked at": Bug(
        _an_answer_counts_for_the_moment_at_which_it_is_looked_at, 90
    ),
    "the last write before a silence counts as a note": Bug(_the_last_write_before_a_silence_counts_as_a_note, 60),
    "an index counts from the start of its build": Bug(_an_index_counts_from_the_start_of_its_build, 50),
    "rows are not acknowledged by the majority": Bug(_rows_are_not_acknowledged_by_the_majority, 200),
    "DDLs are not acknowledged by the majority": Bug(_ddls_are_not_acknowledged_by_the_majority, 90),
    "resolved is what a member has written": Bug(_resolved_is_what_a_member_has_written, 60),
    "ranges are read as far as a member has come": Bug(_ranges_are_read_as_far_as_a_member_has_come, 500),
    "ranges begin behind their start": Bug(_ranges_begin_behind_their_start, 20),
    "ranges leave out the entry at their end": Bug(_ranges_go_on_to_their_end_and_the_next_begins_behind_it, 20),
    "nobody asks whether history is whole": Bug(_nobody_asks_whether_history_is_whole, 200),
    "history is found whole before it is read": Bug(_history_is_found_whole_before_it_is_read, 400),
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
    "stragglers are taken to be at the checkpoint": Bug(_stragglers_are_taken_to_be_at_the_checkpoint, 1000),
    "drops do not wait for the node of a stopped table": Bug(_drops_do_not_wait_for_the_node_of_a_stopped_table, 1000),
    "refused DDLs hold the checkpoint": Bug(_refused_ddls_hold_the_checkpoint, 220),
    "nodes obey a stop only by their report": Bug(_nodes_obey_a_stop_only_by_their_report, 110),
    "only tables of today are expected in history": Bug(_only_tables_of_today_are_expected_in_history, 250),
    "versions are dropped up to the checkpoint": Bug(_versions_are_dropped_up_to_the_checkpoint, 230),
    "a stopped table that ends is renamed first": Bug(_a_stopped_table_that_ends_is_renamed_first, 500),
    "a table goes on when its end is released": Bug(_a_table_goes_on_when_its_end_is_released, 60),
    "copies are followed past chunks that are being read": Bug(
        _copies_are_followed_past_chunks_that_are_being_read, 500
    ),
    "deletes are held for chunks that nobody clears": Bug(
        _deletes_are_held_for_chunks_that_nobody_clears, 30, kept=True
    ),
    "chunks that nobody clears are read once": Bug(_chunks_that_nobody_clears_are_read_once, 100, kept=True),
    "the rest of a divided chunk counts as read": Bug(_the_rest_of_a_divided_chunk_counts_as_read, 30),
    "what a release creates is no straggler": Bug(_what_a_release_creates_is_no_straggler, 330),
    "a copy takes its table's place before it has caught up": Bug(
        _a_copy_takes_its_tables_place_before_it_has_caught_up, 70
    ),
    "rows of a copy go to the table that stands still": Bug(_rows_of_a_copy_go_to_the_table_that_stands_still, 60),
    "own DDLs overtake those of the source": Bug(_own_ddls_overtake_those_of_the_source, 200),
    "a table enters while its node has it": Bug(_a_table_enters_while_its_node_has_it, 120),
    "repairs count as done when they begin": Bug(_repairs_count_as_done_when_they_begin, 300),
    "transactions count when a shard logs their commit": Bug(
        _transactions_count_when_a_shard_logs_their_commit, 30, sharded=True
    ),
    "windows do not look beyond their end for commits": Bug(
        _windows_do_not_look_beyond_their_end_for_commits, 30, sharded=True
    ),
    "resolved passes undecided transactions": Bug(_resolved_passes_undecided_transactions, 100, sharded=True),
    "rows of migrations are taken": Bug(_rows_of_migrations_are_taken, 30, sharded=True),
    "an insert may come before the delete of its time": Bug(
        _an_insert_may_come_before_the_delete_of_its_time, 110, sharded=True
    ),
    "superseded drops are taken": Bug(_superseded_drops_are_taken, 30, sharded=True),
    "shards to which chunks moved are no holders": Bug(_shards_to_which_chunks_moved_are_no_holders, 200, sharded=True),
    "what is kept of folded DDLs forgets new UUIDs": Bug(
        _what_is_kept_of_folded_ddls_forgets_new_uuids, 150, sharded=True
    ),
    "a copy chooses its time before it learns the owners": Bug(
        _a_copy_chooses_its_time_before_it_learns_the_owners, 300, sharded=True
    ),
    "a removed shard that is silent is gone at once": Bug(
        _a_removed_shard_that_is_silent_is_gone_at_once, 70, sharded=True
    ),
    "a shard is quiet since its watch began": Bug(_a_shard_is_quiet_since_its_watch_began, 30, sharded=True),
    "tables of a shard that is gone go on": Bug(_tables_of_a_shard_that_is_gone_go_on, 300, sharded=True),
}
