"""What the owner does next for one changefeed: `decide(state, ...) -> actions`. Pure.

The state consists of the records in etcd, the events that the DDL watch has shown, and the progress of this process's jobs. Actions are
carried out in the order given, and each prefix of them leaves a state from which the next decision goes on:

    LookUp              asks the source's catalog about a table; later events of the watch wait for the answer
    RecordDdls          before the barrier may pass them: a new owner finds them in etcd, wherever its watch starts
    PublishBarrier      closes the gates of new DDLs; only when nothing is released
    ReleaseDdls         done records and the barrier, in one transaction: no open gate without a durable DDL
    Observe, Apply      start a job in a worker thread; its outcome arrives in a later state
    RecordExecuting     then Apply: once etcd has the record
    Refuse              a DDL waits for a user
    Mark                a table is a straggler, before a checkpoint passes it; or its record changes
    Resume              a stopped table goes on, and its refused DDLs are tried again
    Forget              a straggler has caught up; requests are answered
    PublishStatus       the checkpoint and the lifecycle, for users and for the next owner
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from random import Random
from typing import TypeAlias

from changefeed.event import DdlEvent
from changefeed.lifecycle import ErrorReport
from changefeed.position import Position
from changefeed.records.ddl import Barrier, DdlRecord, held_by
from changefeed.records.requests import TableVerb
from changefeed.records.status import ChangefeedStatus, Straggler
from changefeed.table import TableId
from owner.ddl import barrier
from owner.ddl.scope import DdlClassifier
from owner.ddl.steps import Apply, Observe, RecordExecuting, Refuse, ReleaseDdl
from owner.ddl.stragglers import Waiting, not_awaited, wait
from owner.decision.ddl_steps import ddl_steps, dropped_without_name, released_together
from owner.decision.recording import Seen, take_in, to_recopy
from owner.decision.state import ChangefeedState, bound_of, checkpoint_now, published
from owner.decision.status import newest_status
from owner.tables import recopy
from owner.tables.outgrown import outgrown
from owner.tables.wishes import Forget, Mark, Resume, after_release, caught_up, wished
from schema_store.versions import SchemaVersions


@dataclass(frozen=True, slots=True)
class LookUp:
    """Ask the source's catalog about a table that enters the filter."""

    event: DdlEvent


@dataclass(frozen=True, slots=True)
class RecordDdls:
    """`answers`: the tables that users asked to be copied anew; their requests are deleted with it."""

    records: tuple[DdlRecord, ...]
    answers: frozenset[TableId] = frozenset()


@dataclass(frozen=True, slots=True)
class PublishBarrier:
    barrier: Barrier


@dataclass(frozen=True, slots=True)
class ReleaseDdls:
    """`stragglers`: those whose records change with it."""

    records: tuple[DdlRecord, ...]
    barrier: Barrier
    stragglers: Mapping[TableId, Straggler] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PublishStatus:
    status: ChangefeedStatus


OwnerAction: TypeAlias = (
    LookUp
    | RecordDdls
    | PublishBarrier
    | ReleaseDdls
    | PublishStatus
    | Observe
    | Apply
    | RecordExecuting
    | Refuse
    | Mark
    | Resume
    | Forget
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    actions: tuple[OwnerAction, ...]
    tip: SchemaVersions
    waiting: tuple[DdlEvent, ...] = ()
    """Events to be passed in again with the next state."""
    lacks_place: bool = False
    """The source should write something: a DDL of Sluice's own waits for a place."""


def decide(
    state: ChangefeedState, classifier: DdlClassifier, *, now: datetime, monotonic: float, random: Random
) -> Decision:
    """The checkpoint does not pass what is released: the checkpoint of a created table counts only once the DDL is durable."""
    seen = (
        take_in(state, classifier, now)
        if state.status.lifecycle.running
        else Seen(state.tip, published(state.status, state.barrier))
    )
    recorded, tip, resolved = tuple(seen.records), seen.tip, _resolved(state, seen)
    records = {**state.records, **{record.position: record for record in recorded}}
    checkpoints, stragglers = state.checkpoints, state.wishes.stragglers
    waiting = wait(stragglers, checkpoints.obeys, records.values(), resolved, checkpoints.of)
    if dropped := {record.position: record for record in dropped_without_name(records.values(), waiting)}:
        records |= dropped
        waiting = wait(stragglers, checkpoints.obeys, records.values(), resolved, checkpoints.of)
    gate = barrier.decide(resolved, records.values(), checkpoints.of, waiting)
    steps = ddl_steps(state, gate, waiting, classifier, now, monotonic)
    released = {step.record.position: step.record for step in steps if isinstance(step, ReleaseDdl)}
    checkpoint = _checkpoint(state, records.values(), waiting, resolved, released.keys())
    held = held_by((records | released).values(), resolved) if released else gate.held
    actions: list[OwnerAction] = [LookUp(seen.unknown)] if seen.unknown else []
    actions += [RecordDdls(recorded, seen.answers)] if recorded else []
    lost = state.wishes.lost_from_the_start
    changes = partial(
        after_release, stragglers=stragglers, waiting=waiting, passed=checkpoint_now(state), now=now, lost=lost
    )
    together = [(batch, changes(batch)) for batch in released_together(released.values())]
    changed = {table for _, stragglers_then in together for table in stragglers_then}
    actions += _gate_actions(state, resolved, held, together)
    actions += [step for step in steps if not isinstance(step, ReleaseDdl)]
    recopied = {table for table, verb in state.wishes.requests.items() if verb is TableVerb.RECOPY}
    if recopied and (impossible := recopied - seen.answers - set(to_recopy(state))):
        actions.append(Forget(requests=frozenset(impossible)))
    actions += wished(
        replace(state.wishes, lost={**_outgrown(state, records.values(), waiting, now), **state.wishes.lost}),
        records | released,
        waiting,
        checkpoints,
        checkpoint_now(state),
        but=changed,
        run=_run(state),
        now=now,
    )
    status = newest_status(state, checkpoint, resolved, now, random, awaits=_awaits(state, waiting))
    if status != state.status:
        actions.append(PublishStatus(status))
    lacks_place = seen.lacks_place and state.watching
    return Decision(actions=tuple(actions), tip=tip, waiting=seen.waiting, lacks_place=lacks_place)


def _outgrown(
    state: ChangefeedState, records: Iterable[DdlRecord], waiting: Waiting, now: datetime
) -> Mapping[TableId, ErrorReport]:
    def can_be_copied(table: TableId) -> bool:
        schema = state.tip.latest(table)
        return schema is not None and not recopy.obstacle(schema, state.info.configuration)

    return outgrown(records, state.wishes.stragglers, waiting, can_be_copied, now)


def _checkpoint(
    state: ChangefeedState,
    records: Collection[DdlRecord],
    waiting: Waiting,
    resolved: Position,
    released: AbstractSet[Position],
) -> Position:
    """Passes a table only if etcd says that it is a straggler, and no DDL that is being released."""
    passed, stragglers = checkpoint_now(state), state.wishes.stragglers
    behind = stragglers.keys() - caught_up(stragglers, waiting, state.checkpoints, passed)
    least = state.checkpoints.least(behind)

    def counts(table: TableId) -> bool:
        return table in state.wishes.replicated and table not in behind

    passing = not_awaited(records, counts, waiting, passed) - released
    return barrier.changefeed_checkpoint(least, records, resolved, passing)


def _awaits(state: ChangefeedState, waiting: Waiting) -> bool:
    """Whether a changefeed that is at its end waits for stragglers: for all, unless a user said to leave those that stand still."""
    if state.info.leaves_stopped:
        return not state.wishes.stragglers.keys() <= waiting.standing
    return bool(state.wishes.stragglers or waiting.blocked)


def _resolved(state: ChangefeedState, seen: Seen) -> Position:
    """Never goes back, and does not pass the changefeed's end, nor what is too new."""
    end = bound_of(state)
    resolved = max(seen.resolved, published(state.status, state.barrier))
    return resolved if end is None else min(resolved, end)


def _gate_actions(
    state: ChangefeedState,
    resolved: Position,
    held: Mapping[TableId, Position],
    released: Sequence[tuple[tuple[DdlRecord, ...], Mapping[TableId, Straggler]]],
) -> list[OwnerAction]:
    """Each part of what is released opens its own gates, since what is held follows from the records that are open."""
    before = state.barrier
    moves = before is None or before.position != resolved
    known = before.history if before is not None else None
    history = state.history.after(known) if moves and state.history is not None else known
    newest = Barrier(epoch=state.epoch, position=resolved, history=history, held=held)
    if released:
        return [ReleaseDdls(records, newest, stragglers) for records, stragglers in released]
    if newest != state.barrier and state.status.lifecycle.running:
        return [PublishBarrier(newest)]
    return []


def _run(state: ChangefeedState) -> int | None:
    return state.status.run if state.status.lifecycle.running else None
