"""`check_lifecycle`, `check_status`, `check_barrier`, `check_lanes`: what holds in each state of the pure cores. Tests call them after each step."""

from __future__ import annotations

from collections.abc import Iterable

from changefeed.errors import InvariantError
from changefeed.lifecycle import Lifecycle, State
from changefeed.records.ddl import DdlRecord
from changefeed.records.status import ChangefeedStatus
from owner.ddl.barrier import BarrierDecision
from owner.ddl.stragglers import NOTHING, CheckpointOf, Waiting
from processor.lanes.lanes import Lanes


def check_lifecycle(lifecycle: Lifecycle) -> None:
    state = lifecycle.state
    assert (lifecycle.retry_at is not None) == (state is State.PENDING), lifecycle
    assert (lifecycle.attempts > 0) or state is not State.PENDING, lifecycle
    assert lifecycle.attempts == 0 or state in (State.WARNING, State.PENDING), lifecycle
    if state in (State.WARNING, State.PENDING, State.FAILED):
        assert lifecycle.error is not None, lifecycle
    if state in (State.NORMAL, State.FINISHED, State.REMOVED):
        assert lifecycle.error is None, lifecycle


def check_status(before: ChangefeedStatus, after: ChangefeedStatus) -> None:
    """For each status that replaces another one of the same start."""
    if before.checkpoint is not None and (after.checkpoint is None or after.checkpoint < before.checkpoint):
        raise InvariantError(f"the checkpoint went back from {before.checkpoint} to {after.checkpoint}")
    if before.resolved is not None and (after.resolved is None or after.resolved < before.resolved):
        raise InvariantError(f"resolved went back from {before.resolved} to {after.resolved}")
    if after.checkpoint is not None and (after.resolved is None or after.checkpoint > after.resolved):
        raise InvariantError(f"checkpoint {after.checkpoint} is past resolved {after.resolved}")
    if (
        after.lifecycle.state is State.REMOVED
        and before.lifecycle.state is not State.REMOVED
        and after.run != before.run
    ):
        raise InvariantError("a removal started a run")
    if after.still and not after.lifecycle.resting:
        raise InvariantError(f"pipelines are marked as stopped in state {after.lifecycle.state}")


def check_barrier(
    gate: BarrierDecision, records: Iterable[DdlRecord], checkpoint_of: CheckpointOf, waiting: Waiting = NOTHING
) -> None:
    open_records = [record for record in records if record.open]
    for table, position in gate.held.items():
        if position >= gate.position:
            raise InvariantError(f"table {table} is held at {position}, which is not below the barrier {gate.position}")
        if not any(table in record.scope.tables for record in open_records):
            raise InvariantError(f"table {table} is held at {position}, but no open DDL touches it")
    for record in open_records:
        for table in record.scope.tables:
            barrier = gate.held.get(table, gate.position)
            if not record.background and barrier > record.position:
                raise InvariantError(f"barrier {barrier} of table {table} is past {record.event}, which is not done")
    for record in gate.runnable:
        for table in record.scope.tables:
            checkpoint = checkpoint_of(table)
            reached = checkpoint == record.position or (checkpoint is not None and record.background)
            if not reached and not waiting.passes(record, table):
                raise InvariantError(f"{record.event} may run, but table {table} is at {checkpoint}")


def check_lanes(lanes: Lanes) -> None:
    for number, job in enumerate(lanes.running):
        for table in lanes.tables & (job.tables | job.own_windows.keys()):
            window = job.of(table)
            if window and window.start != lanes.checkpoint_of(table):
                raise InvariantError(
                    f"job {job.number}, table {table}: expected a window from its checkpoint, observed one from {window.start}"
                )
            if window and any(other.of(table) for other in lanes.running[:number]):
                raise InvariantError(f"table {table} is in two running jobs")
    apart = [table for lane in lanes.apart for table in lane.tables]
    if len(apart) != len(set(apart)):
        raise InvariantError("apart lanes: expected no table in two of them")
    named = lanes.exceptions.keys() | lanes.leaving | lanes.own_replay.keys() | lanes.reach.keys()
    if not lanes.tables >= (named | set(apart)):
        raise InvariantError("named tables: expected assigned tables only, observed one that is not assigned")
