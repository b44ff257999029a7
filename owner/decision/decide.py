"""What the owner does next for one changefeed: `decide(state, ...) -> actions`. Pure.

The state consists of the records in etcd, the events that the DDL watch has shown, and the progress of this process's jobs. Actions are
carried out in the order given, RecordExecuting after all others, and each prefix of them leaves a state from which the next decision goes on:

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

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from random import Random
from typing import TypeAlias

from changefeed.config.configuration import UnsupportedDdl
from changefeed.config.tables.filter import Disposition
from changefeed.errors import DdlUnsupported
from changefeed.event import DdlEvent, DdlType
from changefeed.lifecycle import State
from changefeed.position import Position
from changefeed.records.ddl import Barrier, DdlRecord, DdlState, held_by
from changefeed.records.status import ChangefeedStatus, Straggler
from changefeed.table import TableId
from owner.ddl import barrier
from owner.ddl.execution import Apply, Observe, RecordExecuting, Refuse, ReleaseDdl, Step, next_step, skipped
from owner.ddl.scope import DdlClassifier
from owner.ddl.stragglers import SKIPPABLE, Waiting, brings_in, name_is_taken, not_awaited, wait
from owner.decision import recopy
from owner.decision.recording import Seen, take_in
from owner.decision.state import ChangefeedState, bound_of, checkpoint_now, published
from owner.decision.status import newest_status
from owner.tables.progress import TableProgress
from owner.tables.wishes import Forget, Mark, Resume, after_release, caught_up, outgrown, wished
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
    calm: bool = False
    """At most rows flow: nothing waits for what nodes report."""


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
    if impossible := recopy.impossible(state):
        actions.append(Forget(requests=impossible))
    given_up = outgrown(records.values(), stragglers, waiting, partial(recopy.possible, state), now)
    actions += wished(
        replace(state.wishes, lost={**given_up, **state.wishes.lost}),
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
    calm = not seen.waiting and _is_calm(state, actions)
    return Decision(actions=tuple(actions), tip=tip, waiting=seen.waiting, lacks_place=lacks_place, calm=calm)


def _is_calm(state: ChangefeedState, actions: Iterable[OwnerAction]) -> bool:
    configuration, wishes = state.info.configuration, state.wishes
    ddl = any(record.open for record in state.records.values())
    steps = any(not isinstance(action, PublishBarrier | PublishStatus) for action in actions)
    tables = state.copying or wishes.stragglers or wishes.requests or wishes.moving
    held = configuration.sync_points or configuration.delay
    return state.status.lifecycle.state is State.NORMAL and not (ddl or steps or tables or held)


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


_MOST_TOGETHER = 48
_MOST_BYTES_TOGETHER = 200_000
"""Of one transaction: etcd accepts 128 operations and 1.5 MiB, and a DDL's record contains options and indexes."""
_MOST_BEGUN = 512
"""Observed, and applied, per decision: after dropDatabase each table of the database has a DDL that may run."""


def ddl_steps(
    state: ChangefeedState,
    gate: barrier.BarrierDecision,
    waiting: Waiting,
    classifier: DdlClassifier,
    now: datetime,
    monotonic: float,
) -> list[Step]:
    """A changefeed that does not run starts no step, but the DDLs that have been applied are still released."""
    releases = [
        ReleaseDdl(skipped(record, why, now))
        for record in state.records.values()
        if record.open and (why := _goes_on_without(record, state, waiting, classifier))
    ]
    released = {step.record.position for step in releases}
    others: list[Step] = []
    begun = Counter[DdlState]()
    for record in gate.runnable:
        progress = state.executions.get(record.position)
        too_many = progress is None and begun[record.state] == _MOST_BEGUN
        if record.position not in state.records or record.position in released or too_many:
            continue
        step = next_step(
            _as_it_can_be(_as_wished_now(record, classifier), waiting, state.checkpoints),
            progress,
            skip_unsupported=_skips_unsupported(state),
            monotonic=monotonic,
            now=now,
        )
        if isinstance(step, ReleaseDdl):
            releases.append(step)
        elif step is not None:
            begun[record.state] += progress is None
            others.append(step)
    started = others if state.status.lifecycle.running else []
    return [*releases, *started]


def released_together(released: Iterable[DdlRecord]) -> Iterator[tuple[DdlRecord, ...]]:
    """In their order, as many as one transaction holds."""
    together: list[DdlRecord] = []
    size = 0
    for record in sorted(released, key=lambda record: record.position.order):
        size += (more := _bytes(record))
        if together and (len(together) == _MOST_TOGETHER or size > _MOST_BYTES_TOGETHER):
            yield tuple(together)
            together, size = [], more
        together.append(record)
    if together:
        yield tuple(together)


def _bytes(record: DdlRecord) -> int:
    """Of BSON. As Extended JSON it is several times larger."""
    seen = record.before.tables.values() if record.before else ()
    parts = [document for table in seen if table is not None for document in (table.options, *table.indexes)]
    return sum(len(part.raw) for part in (record.event.description, *parts))


def _goes_on_without(record: DdlRecord, state: ChangefeedState, waiting: Waiting, classifier: DdlClassifier) -> str:
    """Why a DDL that waits is skipped. Empty: it is not."""
    refused = record.refused
    if record.position in waiting.needless:
        return "its table ends later" + (f"; {refused.message}" if refused is not None else "")
    if refused is None or record.taken:
        return ""
    if record.position in state.wishes.skips and record.event.type in SKIPPABLE:
        return f"a user skipped it; {refused.message}"
    if _as_wished_now(record, classifier).disposition is Disposition.SCHEMA_ONLY:
        return "the filter keeps it from the target"
    if refused.code == DdlUnsupported.code and _skips_unsupported(state):
        return refused.message
    return ""


def dropped_without_name(records: Iterable[DdlRecord], waiting: Waiting) -> Iterator[DdlRecord]:
    """The taken renames of tables that end later, and of which nothing is being written: what has the old name is dropped."""
    for record in records:
        if record.open and name_is_taken(record) and not brings_in(record) and record.event.id in waiting.passed:
            yield replace(record, refused=None, drops=True)


def _as_it_can_be(record: DdlRecord, waiting: Waiting, checkpoints: TableProgress) -> DdlRecord:
    """A table that is not awaited may not even exist downstream, so it is not renamed before it ends. One that shares its name decides nothing."""
    if record.event.type is not DdlType.RENAME or record.state is not DdlState.PENDING or record.taken:
        return record
    behind = {table for table in record.scope.tables & {record.event.id} if checkpoints.of(table) != record.position}
    return replace(record, drops=bool(behind)) if waiting.passed else record


def _as_wished_now(record: DdlRecord, classifier: DdlClassifier) -> DdlRecord:
    """A user can skip a DDL that the target refuses by a filter that ignores it from now on."""
    ignored = classifier.filter.ddl(record.event) is Disposition.SCHEMA_ONLY
    return replace(record, disposition=Disposition.SCHEMA_ONLY) if ignored else record


def _skips_unsupported(state: ChangefeedState) -> bool:
    return state.info.configuration.ddl.unsupported is UnsupportedDdl.SKIP
