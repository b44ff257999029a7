"""Bugs of sessions, of fenced writes, and of what the owner decides."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import owner.ddl.barrier
import owner.decision.decide
import owner.decision.recopy
import owner.owner
import owner.tables.wishes
import processor.changefeed_processor
import processor.job_ends
import processor.lanes.lane_plan
from changefeed.event import DdlType
from changefeed.lifecycle import ErrorReport
from changefeed.position import Position
from changefeed.records.ddl import Barrier, DdlRecord, DdlState
from changefeed.table import TableId
from coordination.etcd.protocol import Delete
from coordination.fenced import FencedStore
from coordination.session import Session
from owner.ddl.execution import Apply, Observed, RecordExecuting, next_step
from owner.decision.decide import PublishBarrier, RecordDdls
from owner.etcd_writes import ChangefeedWriter
from owner.tables.node_standings import NodeStandings
from owner.tables.progress import Floor, NodeState, TableProgress
from owner.tables.wishes import TableWishes
from processor.etcd_view import ProcessorView
from processor.following import Following
from processor.lanes.apart_lane import SuspectLane
from processor.lanes.lanes import Lanes
from processor.lanes.windows import Pace
from sink.mongodb.ddl.ddl_effect import DdlEffect
from tests.simulation.clockwork.network import Network
from tests.simulation.planted.bug import Bug


def _writes_are_not_fenced() -> AbstractContextManager[Any]:
    def commit(self: FencedStore, ops: Sequence[Any], compares: Sequence[Any] = (), *, apart: bool = False) -> int:
        result = self._etcd.txn(tuple(compares), ops)
        if not apart:
            self._wrote(result.revision)
        return result.revision

    return patch.object(FencedStore, "commit", commit)


def _unknown_outcomes_are_not_settled() -> AbstractContextManager[Any]:
    """The state is read again, but a delayed request may still arrive."""

    def settle(self: FencedStore) -> int:
        return self._last_rev

    return patch.object(FencedStore, "settle", settle)


def _connections_deliver_what_nobody_waits_for() -> AbstractContextManager[Any]:
    """A kernel goes on sending by default, for its process or without it."""
    return patch.object(Network, "forgets", False)


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

    return patch("processor.following.plan", planned)


def _ddl_runs_before_its_tables_have_arrived() -> AbstractContextManager[Any]:
    return patch("owner.ddl.barrier._reached", lambda *_: True)


def _ddls_that_meet_run_in_any_order() -> AbstractContextManager[Any]:
    return patch("owner.ddl.barrier._first", iter)


def _ddl_runs_before_it_is_recorded_as_executing() -> AbstractContextManager[Any]:
    def stepped(record: DdlRecord, progress: Any, **rest: Any) -> Any:
        step = next_step(record, progress, **rest)
        if isinstance(step, RecordExecuting) and isinstance(progress, Observed):
            return Apply(step.record)
        return step

    return patch("owner.decision.decide.next_step", stepped)


def _ddls_are_done_again_without_a_look() -> AbstractContextManager[Any]:
    return patch("sink.mongodb.ddl.ddl_applier.effect", lambda ddl, before, now, ttl: DdlEffect.ABSENT)


def _checkpoint_passes_open_ddls() -> AbstractContextManager[Any]:
    def checkpoint(tables: Position | None, records: Any, resolved: Position, *_: Any) -> Position:
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
    return patch.object(Following, "standing_still", lambda self, orders: self.failed.keys())


def _only_tables_of_today_are_expected_in_history() -> AbstractContextManager[Any]:
    held = processor.changefeed_processor._held
    return patch(
        "processor.changefeed_processor._held", lambda stored: replace(held(stored), known_from=stored.patterns_since)
    )


def _versions_are_dropped_up_to_the_checkpoint() -> AbstractContextManager[Any]:
    return patch.object(ProcessorView, "settled_below", property(lambda self: self.checkpoint))


def _a_stopped_table_that_ends_is_renamed_first() -> AbstractContextManager[Any]:
    return patch("owner.decision.decide._as_it_can_be", lambda record, waiting, checkpoints: record)


def _a_table_goes_on_when_its_end_is_released() -> AbstractContextManager[Any]:
    def forgotten(self: ChangefeedWriter, records: Any, opened: Barrier, stragglers: Any) -> None:
        marks = [self._put_straggler(table, straggler) for table, straggler in stragglers.items()]
        ended = [Delete(self._layout.straggler(self._id, id)) for record in records for id in record.scope.ended]
        self._commit([*map(self._put_ddl, records), self._put_barrier(opened), *marks, *ended])

    return patch.object(ChangefeedWriter, "release", forgotten)


def _what_a_release_creates_is_no_straggler() -> AbstractContextManager[Any]:
    return patch("owner.decision.decide.after_release", lambda *_, **__: {})


def _own_ddls_overtake_those_of_the_source() -> AbstractContextManager[Any]:
    places = owner.decision.recopy.places
    return patch("owner.decision.recopy.places", lambda barrier, highest, recorded: places(barrier, highest, ()))


def _a_table_enters_while_its_node_has_it() -> AbstractContextManager[Any]:
    reached = owner.ddl.barrier._reached

    def without_leaving(record: DdlRecord, checkpoint_of: Any, waiting: Any) -> bool:
        return record.event.type is DdlType.ENTER or reached(record, checkpoint_of, waiting)

    return patch("owner.ddl.barrier._reached", without_leaving)


def _the_tables_of_a_window_that_fails_stay_together() -> AbstractContextManager[Any]:
    def together(following: Following, _lane: SuspectLane, error: ErrorReport) -> Following:
        return following.with_error(error, now=0.0)

    return patch("processor.job_ends._separated", together)


def _a_table_that_fails_fails_its_changefeed() -> AbstractContextManager[Any]:
    def failed(self: Following, _table: TableId, error: ErrorReport) -> Following:
        return self.with_error(replace(error, table=None), now=0.0)

    return patch.object(Following, "table_failed", failed)


def _a_table_that_fails_is_moved_again_and_again() -> AbstractContextManager[Any]:
    wished = owner.tables.wishes.wished

    def anywhere(wishes: TableWishes, *args: Any, **more: Any) -> Any:
        there = {
            table: replace(stored, record=replace(stored.record, moved_from=None))
            for table, stored in wishes.stragglers.items()
            if table not in wishes.moving
        }
        return wished(replace(wishes, stragglers={**wishes.stragglers, **there}), *args, **more)

    return patch("owner.decision.decide.wished", anywhere)


def _a_lost_table_is_copied_as_it_was_known() -> AbstractContextManager[Any]:
    return patch("owner.decision.recopy._may_lack_ddl", lambda *_: False)


OWNER_BUGS: Mapping[str, Bug] = {
    "writes are not fenced": Bug(_writes_are_not_fenced, 40),
    "unknown outcomes are not settled": Bug(_unknown_outcomes_are_not_settled, 80),
    "connections deliver what nobody waits for": Bug(_connections_deliver_what_nobody_waits_for, 200),
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
    "tables count from the start of their assignment": Bug(_tables_count_from_the_start_of_their_assignment, 700),
    "tables are taken over without waiting": Bug(_tables_are_taken_over_without_waiting, 300),
    "tables are given to nodes that are not ready": Bug(_tables_are_given_to_nodes_that_are_not_ready, 30),
    "a node that fails keeps its tables": Bug(_a_node_that_fails_keeps_its_tables, 80),
    "tables are released while at work": Bug(_tables_are_released_while_at_work, 300),
    "stragglers are taken to be at the checkpoint": Bug(_stragglers_are_taken_to_be_at_the_checkpoint, 1500),
    "drops do not wait for the node of a stopped table": Bug(_drops_do_not_wait_for_the_node_of_a_stopped_table, 1000),
    "refused DDLs hold the checkpoint": Bug(_refused_ddls_hold_the_checkpoint, 220),
    "nodes obey a stop only by their report": Bug(_nodes_obey_a_stop_only_by_their_report, 110),
    "only tables of today are expected in history": Bug(_only_tables_of_today_are_expected_in_history, 250),
    "versions are dropped up to the checkpoint": Bug(_versions_are_dropped_up_to_the_checkpoint, 230),
    "a stopped table that ends is renamed first": Bug(_a_stopped_table_that_ends_is_renamed_first, 500),
    "a table goes on when its end is released": Bug(_a_table_goes_on_when_its_end_is_released, 60),
    "what a release creates is no straggler": Bug(_what_a_release_creates_is_no_straggler, 330),
    "own DDLs overtake those of the source": Bug(_own_ddls_overtake_those_of_the_source, 300),
    "the tables of a window that fails stay together": Bug(_the_tables_of_a_window_that_fails_stay_together, 100),
    "a table that fails fails its changefeed": Bug(_a_table_that_fails_fails_its_changefeed, 100),
    "a table that fails is moved again and again": Bug(_a_table_that_fails_is_moved_again_and_again, 170),
    "a lost table is copied as it was known": Bug(_a_lost_table_is_copied_as_it_was_known, 1200),
    "a table enters while its node has it": Bug(_a_table_enters_while_its_node_has_it, 120),
}
