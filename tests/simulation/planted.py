"""Bugs that somebody might write, to prove that the simulation finds them. Each replaces a part of the product while it is entered.

They are here and nowhere in the product: a switch for a bug would be a bug.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, timedelta
from functools import partial
from typing import Any
from unittest.mock import patch

import owner.changefeed
import owner.ddl_feed
import owner.owner
import processor.changefeed
import processor.changefeed_processor
import processor.lane_plan
import processor.pipeline
import processor.task_permit
import source.catalog
import source.note
from changefeed.position import Position
from changefeed.records import Barrier, DdlRecord
from changefeed.table import TableId
from coordination.fenced import FencedStore
from coordination.session import Session
from owner.changefeed import PublishBarrier, RecordDdls
from owner.changefeed_writer import ChangefeedWriter
from owner.ddl_feed import Subscription, Taken
from owner.execution import Apply, Observed, RecordExecuting, next_step
from owner.progress import Floor, Progress
from processor.job import JobOutcome
from processor.lanes import Lanes
from processor.window_task import replicate_window
from processor.windows import Pace
from sink.mongodb.ddl_applier import MongoDdlApplier
from sink.mongodb.ddl_effect import Effect
from source.resolved import resolved_after

Plant = Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True)
class Bug:
    plant: Plant
    found_within: int
    """Seeds, from 0 on."""
    rare: bool = False
    """It takes a minute or more to find it."""


def _writes_are_not_fenced() -> AbstractContextManager[Any]:
    def commit(self: FencedStore, ops: Sequence[Any], compares: Sequence[Any] = ()) -> int:
        result = self._etcd.txn(tuple(compares), ops)
        self._wrote(result.revision)
        return result.revision

    return patch.object(FencedStore, "commit", commit)


def _unknown_outcomes_are_not_settled() -> AbstractContextManager[Any]:
    """The state is read again, but a request on its way may still arrive."""

    def settle(self: FencedStore) -> int:
        return self._last_rev

    return patch.object(FencedStore, "settle", settle)


def _a_lost_session_goes_on() -> AbstractContextManager[Any]:
    stack = ExitStack()
    stack.enter_context(patch.object(Session, "alive", property(lambda self: not self._wake.is_set())))
    stack.enter_context(patch.object(Session, "lost_at", property(lambda self: self._monotonic() + 10)))
    return stack


def _gate_opens_before_the_ddl_is_durable() -> AbstractContextManager[Any]:
    def release(self: ChangefeedWriter, records: Sequence[DdlRecord], opened: Barrier) -> None:
        self._commit([self._put_barrier(opened)])
        self._commit([*map(self._put_ddl, records)])

    return patch.object(ChangefeedWriter, "release", release)


def _barrier_passes_ddls_that_are_not_recorded() -> AbstractContextManager[Any]:
    decide = owner.changefeed.decide

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
    return patch("owner.barrier._held", lambda records, resolved: {})


def _windows_pass_the_barrier() -> AbstractContextManager[Any]:
    end_of = Pace.end_of

    def beyond(self: Pace, start: Position, end: Position) -> Position:
        return end_of(self, start, Position(replace(end.ts, seconds=end.ts.seconds + 1)))

    return patch.object(Pace, "end_of", beyond)


def _lanes_forget_held_tables() -> AbstractContextManager[Any]:
    plan = processor.lane_plan.plan

    def planned(lanes: Lanes, ahead: Barrier, *rest: Any) -> Any:
        return plan(lanes, replace(ahead, held={}), *rest)

    return patch("processor.changefeed.plan", planned)


def _ddl_runs_before_its_tables_have_arrived() -> AbstractContextManager[Any]:
    return patch("owner.barrier._reached", lambda record, checkpoint_of: True)


def _ddls_that_meet_run_in_any_order() -> AbstractContextManager[Any]:
    return patch("owner.barrier._first", iter)


def _ddl_runs_before_it_is_recorded_as_executing() -> AbstractContextManager[Any]:
    def stepped(record: DdlRecord, progress: Any, **rest: Any) -> Any:
        step = next_step(record, progress, **rest)
        if isinstance(step, RecordExecuting) and isinstance(progress, Observed):
            return Apply(step.record)
        return step

    return patch("owner.changefeed.next_step", stepped)


def _ddls_are_done_again_without_a_look() -> AbstractContextManager[Any]:
    return patch("sink.mongodb.ddl_applier.effect", lambda ddl, before, now, ttl: Effect.ABSENT)


def _checkpoint_passes_open_ddls() -> AbstractContextManager[Any]:
    def checkpoint(tables: Position | None, records: Any, resolved: Position) -> Position:
        return resolved if tables is None else tables

    return patch("owner.barrier.changefeed_checkpoint", checkpoint)


def _stale_reports_count() -> AbstractContextManager[Any]:
    return patch.object(Progress, "_still_uncovered", lambda self, node, state, floor: {})


def _tables_count_from_the_start_of_their_assignment() -> AbstractContextManager[Any]:
    """Found in this product by the simulation."""
    nowhere = Position.parse("0.0")
    return patch.object(Floor, "of", lambda self, table: nowhere)


def _tables_are_taken_over_without_waiting() -> AbstractContextManager[Any]:
    return patch.dict(owner.owner.Owner.__init__.__kwdefaults__, {"margin": timedelta(0)})


def _tables_are_released_while_at_work() -> AbstractContextManager[Any]:
    def released(self: Lanes) -> Mapping[TableId, Position]:
        return {table: self.checkpoint_of(table) for table in self.leaving}

    return patch.object(Lanes, "released", released)


def _tasks_ask_for_no_permit() -> AbstractContextManager[Any]:
    return patch.object(processor.task_permit.TaskPermit, "__call__", lambda self: self._budget)


def _windows_are_reported_before_they_are_acknowledged() -> AbstractContextManager[Any]:
    def run(self: Any, shared: Any, spec: Any) -> JobOutcome:
        handle = shared.through(self._spark)
        task = partial(replicate_window, handle, spec)
        self._spark._begin(self.group(shared.context, spec), task)
        return JobOutcome()

    return patch.object(processor.pipeline.Pipeline, "run", run)


def _failed_windows_count_as_done() -> AbstractContextManager[Any]:
    failed = processor.changefeed.failed

    def done(following: Any, number: int, error: Any, **rest: Any) -> Any:
        troubled = failed(following, number, error, **rest)
        return replace(troubled, lanes=following.lanes.finished(number))

    return patch("processor.changefeed.failed", done)


def _windows_keep_the_schemas_of_before_a_ddl() -> AbstractContextManager[Any]:
    return patch.object(processor.changefeed_processor.ChangefeedProcessor, "_renew_context", lambda self: None)


def _resume_tokens_are_taken_as_inclusive() -> AbstractContextManager[Any]:
    def inclusive(before: Position, **seen: Any) -> Position:
        resolved = resolved_after(before, **seen)
        return Position(resolved.ts.next()) if resolved > before else resolved

    stack = ExitStack()
    stack.enter_context(patch("source.window_progress.resolved_after", inclusive))
    stack.enter_context(patch("source.ddl_watch.resolved_after", inclusive))
    return stack


def _an_answer_counts_for_the_moment_at_which_it_is_looked_at() -> AbstractContextManager[Any]:
    take = Subscription.take

    def late(self: Subscription) -> Taken:
        taken = take(self)
        now = vars(owner.ddl_feed)["datetime"].now(UTC)  # the simulation's
        return replace(taken, sighting=replace(taken.sighting, at=now)) if taken.sighting else taken

    return patch.object(Subscription, "take", late)


def _the_last_write_before_a_silence_counts_as_a_note() -> AbstractContextManager[Any]:
    return patch.object(source.note, "end_of_source", lambda committed_ts, _: Position(committed_ts))


def _an_index_counts_from_the_start_of_its_build() -> AbstractContextManager[Any]:
    """The catalog lists it from then on, and the build may still be given up."""
    indexes = source.catalog._list_indexes

    def listed(client: Any, name: Any) -> Any:
        return (spec.get("spec", spec) for spec in indexes(client, name))

    return patch("source.catalog._list_indexes", listed)


def _rows_are_not_acknowledged_by_the_majority() -> AbstractContextManager[Any]:
    def unconcerned(command: dict[str, Any], seconds: float) -> dict[str, Any]:
        return {name: value for name, value in command.items() if name != "writeConcern"}

    return patch("sink.mongodb.commander._bounded", unconcerned)


def _ddls_are_not_acknowledged_by_the_majority() -> AbstractContextManager[Any]:
    def answer(self: MongoDdlApplier, command: Any, permitted: float) -> Any:
        return self._client[command.db].command(dict(command.body))

    return patch.object(MongoDdlApplier, "_answer", answer)


BUGS: Mapping[str, Bug] = {
    "writes are not fenced": Bug(_writes_are_not_fenced, 40),
    "unknown outcomes are not settled": Bug(_unknown_outcomes_are_not_settled, 40),
    "a lost session goes on": Bug(_a_lost_session_goes_on, 40, rare=True),
    "gate opens before the DDL is durable": Bug(_gate_opens_before_the_ddl_is_durable, 10),
    "barrier passes DDLs that are not recorded": Bug(_barrier_passes_ddls_that_are_not_recorded, 10),
    "barrier includes its position": Bug(_barrier_includes_its_position, 10),
    "tables are not held": Bug(_tables_are_not_held, 10),
    "windows pass the barrier": Bug(_windows_pass_the_barrier, 10),
    "lanes forget held tables": Bug(_lanes_forget_held_tables, 10),
    "DDL runs before its tables have arrived": Bug(_ddl_runs_before_its_tables_have_arrived, 10),
    "DDLs that meet run in any order": Bug(_ddls_that_meet_run_in_any_order, 10),
    "DDL runs before it is recorded as executing": Bug(_ddl_runs_before_it_is_recorded_as_executing, 10),
    "DDLs are done again without a look": Bug(_ddls_are_done_again_without_a_look, 300, rare=True),
    "checkpoint passes open DDLs": Bug(_checkpoint_passes_open_ddls, 10),
    "stale reports count": Bug(_stale_reports_count, 100),
    "tables count from the start of their assignment": Bug(
        _tables_count_from_the_start_of_their_assignment, 500, rare=True
    ),
    "tables are taken over without waiting": Bug(_tables_are_taken_over_without_waiting, 300, rare=True),
    "tables are released while at work": Bug(_tables_are_released_while_at_work, 300, rare=True),
    "tasks ask for no permit": Bug(_tasks_ask_for_no_permit, 600, rare=True),
    "windows are reported before they are acknowledged": Bug(_windows_are_reported_before_they_are_acknowledged, 60),
    "failed windows count as done": Bug(_failed_windows_count_as_done, 60),
    "windows keep the schemas of before a DDL": Bug(_windows_keep_the_schemas_of_before_a_ddl, 10),
    "resume tokens are taken as inclusive": Bug(_resume_tokens_are_taken_as_inclusive, 10),
    "an answer counts for the moment at which it is looked at": Bug(
        _an_answer_counts_for_the_moment_at_which_it_is_looked_at, 10
    ),
    "the last write before a silence counts as a note": Bug(_the_last_write_before_a_silence_counts_as_a_note, 20),
    "an index counts from the start of its build": Bug(_an_index_counts_from_the_start_of_its_build, 50),
    "rows are not acknowledged by the majority": Bug(_rows_are_not_acknowledged_by_the_majority, 200, rare=True),
    "DDLs are not acknowledged by the majority": Bug(_ddls_are_not_acknowledged_by_the_majority, 50),
}
