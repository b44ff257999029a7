"""What the owner does next for one changefeed: `decide(state, ...) -> actions`. Pure.

The state consists of the records in etcd, the events that the DDL watch has shown, and the progress of this process's jobs. Actions are
carried out in the order given, and each prefix of them leaves a state from which the next decision goes on:

    LookUp              asks the source's catalog about a table; later events of the watch wait for the answer
    RecordDdls          before the barrier may pass them: a new owner finds them in etcd, wherever its watch starts
    PublishBarrier      closes the gates of new DDLs; only when nothing is released
    ReleaseDdls         done records and the barrier without them, in one transaction: no open gate without a durable DDL
    Observe, Apply      start a job in a worker thread; its outcome arrives in a later state
    RecordExecuting     before Apply may start
    Refuse              a DDL waits for a user
    Mark                a table is a straggler, before a checkpoint passes it; or its record changes
    Resume              a stopped table goes on, and its refused DDLs are tried again
    Forget              a straggler has caught up; requests are answered
    PublishStatus       the checkpoint and the lifecycle, for users and for the next owner
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from random import Random
from typing import Protocol, TypeAlias

from changefeed.config.configuration import UnsupportedDdl
from changefeed.config.tables.filter import Disposition
from changefeed.documents.document import Document
from changefeed.errors import DdlUnsupported, InvariantError
from changefeed.event import DdlEvent, DdlType
from changefeed.lifecycle import Command, ErrorReport, Event, Lifecycle, Sign, State
from changefeed.position import Position
from changefeed.records import (
    Barrier,
    ChangefeedInfo,
    ChangefeedStatus,
    DdlRecord,
    DdlState,
    DesiredState,
    LetterTotals,
    NodeId,
    PositionReport,
    Straggler,
)
from changefeed.table import TableId
from owner.ddl import barrier
from owner.ddl.scope import DdlClassifier, Tables
from owner.ddl.sightings import Sightings
from owner.ddl.steps import (
    OF_ITS_TABLES,
    Apply,
    DdlProgress,
    Failed,
    Observe,
    RecordExecuting,
    Refuse,
    ReleaseDdl,
    Step,
    next_step,
    skipped,
)
from owner.ddl.stragglers import SKIPPABLE, Waiting, brings_in, name_is_taken, named_tables, nameless, not_awaited, wait
from owner.tables.wishes import Forget, Mark, Resume, TableWishes, after_release, caught_up, wished

_MOST_RELEASED = 48
_MOST_RELEASED_BYTES = 200_000
"""Per decision, since it is one transaction: etcd accepts 128 operations and 1.5 MiB, and a DDL's record contains options and indexes."""

_MOST_STEPS = 64
_PASSING = timedelta(seconds=5)
"""How long something new at the source may take to be read, while no row flows, before it counts as lag: most often it is a no-op."""
_CURRENT_AGAIN = timedelta(seconds=10)
"""How often an owner reports again that nothing is left, though nothing else changes."""

_MOST_RECORDED = 500
"""Per decision, so that a tick stays short. The other events wait for the next decision."""


class Tip(Tables, Protocol):
    """The schema versions with every DDL seen so far, done or not."""

    def apply(self, event: DdlEvent) -> Tip: ...


class TableCheckpoints(Protocol):
    """The checkpoints of the tables, as far as the owner can be sure of them."""

    def of(self, table: TableId) -> Position | None:
        """None while no node has the table."""

    def least(self, but: AbstractSet[TableId] = frozenset()) -> Position | None:
        """The least checkpoint of all tables, including those without a node, except some. None if no tables are left."""

    def obeys(self, table: TableId, stop_rev: int) -> bool:
        """Whether nothing of the table is being written, under its stop of that revision."""

    def failed(self, run: int) -> Iterable[tuple[TableId, NodeId, ErrorReport]]:
        """The tables that cannot go on in this run."""

    def retried(self, run: int) -> Iterable[tuple[TableId, NodeId, ErrorReport]]:
        """The tables that fail again and again while others of their nodes go on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangefeedState:
    epoch: int
    info: ChangefeedInfo
    status: ChangefeedStatus
    barrier: Barrier | None
    records: Mapping[Position, DdlRecord]
    wishes: TableWishes = field(default_factory=TableWishes)
    reports: Sequence[PositionReport] = ()
    """Of the live processors."""
    node_errors: Sequence[ErrorReport] = ()
    """What nodes with tables report in this run, each with its node's name."""
    checkpoints: TableCheckpoints
    tip: Tip
    arrived: Sequence[DdlEvent]
    """Shown by the watch and not recorded yet, in stream order; none is at or past `resolved`."""
    resolved: Position
    sightings: Sightings = field(default_factory=Sightings)
    """Empty while the changefeed does not run."""
    watching: bool = True
    """The watch has no error."""
    executions: Mapping[Position, DdlProgress]
    isolates: bool = True
    """Whether tables may become stragglers. As long as a node of an earlier release lives, their trouble is the changefeed's."""
    still: bool = False
    """No pipeline of its last run is running any more. Determined only while the changefeed rests."""
    copying: bool = False
    """The initial copy of some table has not ended. Determined only for a changefeed with a target."""
    entered: Mapping[Position, Document] = field(default_factory=dict)
    """What the source's catalog says about tables that a rename brought into the filter, by the rename's position."""
    letters: LetterTotals | None = None
    """None: not counted yet."""
    errors: Sequence[ErrorReport] = ()
    """Errors of the owner's own work for this changefeed: the DDL watch, the look-ups in the catalog, the oplog guard."""


@dataclass(frozen=True, slots=True)
class LookUp:
    """Ask the source's catalog about a table that enters the filter."""

    event: DdlEvent


@dataclass(frozen=True, slots=True)
class RecordDdls:
    records: tuple[DdlRecord, ...]


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
    tip: Tip
    waiting: tuple[DdlEvent, ...] = ()
    """Events to be passed in again with the next state."""


def decide(
    state: ChangefeedState, classifier: DdlClassifier, *, now: datetime, monotonic: float, random: Random
) -> Decision:
    """The checkpoint does not pass what is released: the checkpoint of a created table counts only once the DDL is durable."""
    seen = (
        _record(state, classifier, now)
        if state.status.lifecycle.running
        else _Seen(state.tip, published(state.status, state.barrier))
    )
    recorded, tip, resolved = tuple(seen.records), seen.tip, _resolved(state, seen)
    records = {**state.records, **{record.position: record for record in recorded}}
    checkpoints, stragglers = state.checkpoints, state.wishes.stragglers
    waiting = wait(stragglers, checkpoints.obeys, records.values(), resolved, checkpoints.of)
    if dropped := {record.position: record for record in _dropped_without_name(records.values(), waiting)}:
        records |= dropped
        waiting = wait(stragglers, checkpoints.obeys, records.values(), resolved, checkpoints.of)
    gate = barrier.decide(resolved, records.values(), checkpoints.of, waiting)
    steps = _steps(state, gate, waiting, classifier, now, monotonic)
    released = {step.record.position: step.record for step in steps if isinstance(step, ReleaseDdl)}
    checkpoint = _checkpoint(state, records.values(), waiting, resolved, released.keys())
    gate = barrier.decide(resolved, (records | released).values(), checkpoints.of, waiting)
    actions: list[OwnerAction] = [LookUp(seen.unknown)] if seen.unknown else []
    actions += [RecordDdls(recorded)] if recorded else []
    changed = after_release(released.values(), stragglers, waiting, _passed(state), now)
    actions += _gate_actions(state, gate, tuple(released.values()), changed)
    actions += [step for step in steps if not isinstance(step, ReleaseDdl)]
    if state.isolates:
        actions += wished(
            state.wishes, records, waiting, checkpoints, _passed(state), but=changed.keys(), run=_run(state), now=now
        )
    status = _status(state, checkpoint, resolved, now, random, awaits=_awaits(state, waiting))
    if status != state.status:
        actions.append(PublishStatus(status))
    return Decision(actions=tuple(actions), tip=tip, waiting=seen.waiting)


def _passed(state: ChangefeedState) -> Position:
    assert state.status.checkpoint is not None, "expected a changefeed that has begun"
    return state.status.checkpoint


def _checkpoint(
    state: ChangefeedState,
    records: Collection[DdlRecord],
    waiting: Waiting,
    resolved: Position,
    released: AbstractSet[Position],
) -> Position:
    """Passes a table only if etcd says that it is a straggler, and no DDL that is being released."""
    passed, stragglers = _passed(state), state.wishes.stragglers
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


def _resolved(state: ChangefeedState, seen: _Seen) -> Position:
    """Never goes back, and does not pass the changefeed's end."""
    end = _end(state)
    resolved = max(seen.resolved, published(state.status, state.barrier))
    return resolved if end is None else min(resolved, end)


def _end(state: ChangefeedState) -> Position | None:
    """Where all tables end: at the user's target, or at the published position if that is further. None: no end yet.

    A running copy reads changes later than the target, and ends only when the barrier has passed everything that it read.
    """
    target = state.info.configuration.target
    if target is None or state.copying:
        return None
    return max(Position(target), published(state.status, state.barrier))


def published(status: ChangefeedStatus, barrier: Barrier | None) -> Position:
    """Every DDL below it is recorded, according to the status, or to a barrier that was published after the status."""
    assert status.resolved is not None, "expected a changefeed that has begun"
    return max(status.resolved, barrier.position) if barrier else status.resolved


@dataclass(slots=True)
class _Seen:
    """The result for the arrived events: all events below `resolved` are recorded, or do not concern this changefeed."""

    tip: Tip
    resolved: Position
    records: list[DdlRecord] = field(default_factory=list)
    waiting: tuple[DdlEvent, ...] = ()
    unknown: DdlEvent | None = None
    """The first waiting event, if it brings an unknown table."""

    def wait(self, events: Sequence[DdlEvent]) -> None:
        self.resolved, self.waiting = events[0].position, tuple(events)


def _record(state: ChangefeedState, classifier: DdlClassifier, now: datetime) -> _Seen:
    seen = _Seen(state.tip, state.resolved)
    known_below, end = published(state.status, state.barrier), _end(state)
    without_name = set(nameless(state.records.values()))
    for index, event in enumerate(state.arrived):
        if event.position in state.records or event.position < known_below:
            continue
        if end is not None and event.position >= end:
            seen.wait(state.arrived[index:])
            break
        entering = classifier.enters(event)
        unknown = entering and event.position not in state.entered
        if unknown or len(seen.records) == _MOST_RECORDED:
            seen.wait(state.arrived[index:])
            seen.unknown = event if unknown else None
            break
        known = replace(event, description=state.entered[event.position]) if entering else event
        record = classifier.classify(known, seen.tip, now, without_name)
        if record is not None:
            seen.records.append(record)
            without_name |= named_tables(record) if record.taken else set()
            seen.tip = seen.tip.apply(record.event)
    return seen


def _gate_actions(
    state: ChangefeedState,
    gate: barrier.BarrierDecision,
    released: tuple[DdlRecord, ...],
    stragglers: Mapping[TableId, Straggler],
) -> list[OwnerAction]:
    newest = Barrier(epoch=state.epoch, position=gate.position, held=gate.held)
    if released:
        return [ReleaseDdls(released, newest, stragglers)]
    if newest != state.barrier and state.status.lifecycle.running:
        return [PublishBarrier(newest)]
    return []


def _run(state: ChangefeedState) -> int | None:
    return state.status.run if state.status.lifecycle.running else None


def _steps(
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
        if record.refused is not None and (why := _goes_on_without(record, record.refused, state, waiting, classifier))
    ]
    others: list[Step] = []
    for record in gate.runnable:
        if record.position not in state.records:
            continue
        step = next_step(
            _as_it_can_be(_as_wished_now(record, classifier), waiting, state.checkpoints),
            state.executions.get(record.position),
            skip_unsupported=_skips_unsupported(state),
            monotonic=monotonic,
            now=now,
        )
        if isinstance(step, ReleaseDdl):
            releases.append(step)
        elif step is not None and (state.isolates or not isinstance(step, Refuse)):
            others.append(step)
    started = others[:_MOST_STEPS] if state.status.lifecycle.running else []
    return [*_together(releases), *started]


def _together(releases: Iterable[ReleaseDdl]) -> Iterator[ReleaseDdl]:
    """The first ones, as far as one transaction holds them."""
    size = 0
    for count, release in enumerate(releases):
        size += _bytes(release.record)
        if count == _MOST_RELEASED or (count and size > _MOST_RELEASED_BYTES):
            return
        yield release


def _bytes(record: DdlRecord) -> int:
    """Of BSON. As Extended JSON it is several times larger."""
    seen = record.before.tables.values() if record.before else ()
    parts = [document for table in seen if table is not None for document in (table.options, *table.indexes)]
    return sum(len(part.raw) for part in (record.event.description, *parts))


def _goes_on_without(
    record: DdlRecord, refused: ErrorReport, state: ChangefeedState, waiting: Waiting, classifier: DdlClassifier
) -> str:
    """Why a refused DDL is skipped. Empty: it is not."""
    if record.position in waiting.needless:
        return f"its table is dropped later; {refused.message}"
    if record.taken:
        return ""
    if record.position in state.wishes.skips and record.event.type in SKIPPABLE:
        return f"a user skipped it; {refused.message}"
    if _as_wished_now(record, classifier).disposition is Disposition.SCHEMA_ONLY:
        return "the filter keeps it from the target"
    if refused.code == DdlUnsupported.code and _skips_unsupported(state):
        return refused.message
    return ""


def _dropped_without_name(records: Iterable[DdlRecord], waiting: Waiting) -> Iterator[DdlRecord]:
    """The taken renames of tables that end later, and of which nothing is being written: what has the old name is dropped."""
    for record in records:
        if record.open and name_is_taken(record) and not brings_in(record) and record.event.id in waiting.passed:
            yield replace(record, refused=None, drops=True)


def _as_it_can_be(record: DdlRecord, waiting: Waiting, checkpoints: TableCheckpoints) -> DdlRecord:
    """A table that is not awaited may not even exist downstream, so it is not renamed before it ends."""
    if record.event.type is not DdlType.RENAME or record.state is not DdlState.PENDING or record.taken:
        return record
    renamed = record.scope.tables - record.scope.ended
    behind = {table for table in renamed if checkpoints.of(table) != record.position}
    return replace(record, drops=bool(behind)) if waiting.passed else record


def _as_wished_now(record: DdlRecord, classifier: DdlClassifier) -> DdlRecord:
    """A user can skip a DDL that the target refuses by a filter that ignores it from now on."""
    ignored = classifier.filter.ddl(record.event) is Disposition.SCHEMA_ONLY
    return replace(record, disposition=Disposition.SCHEMA_ONLY) if ignored else record


def _skips_unsupported(state: ChangefeedState) -> bool:
    return state.info.configuration.ddl.unsupported is UnsupportedDdl.SKIP


def _status(
    state: ChangefeedState,
    checkpoint: Position,
    resolved: Position,
    now: datetime,
    random: Random,
    *,
    awaits: bool,
) -> ChangefeedStatus:
    status = state.status
    assert status.checkpoint is not None
    checkpoint = max(checkpoint, status.checkpoint)
    lifecycle = _lifecycle(state, checkpoint, now, random, awaits=awaits)
    current_at = _current_at(state, checkpoint, now)
    latest = state.sightings.latest
    newest = ChangefeedStatus(
        lifecycle=lifecycle,
        start=status.start,
        copied_from=status.copied_from,
        taken_in_at=status.taken_in_at,
        tables=status.tables,
        routes=status.routes if status.routes is not None else state.info.configuration.routes,
        checkpoint=checkpoint,
        resolved=resolved,
        current_at=current_at,
        seen_at=latest.at if latest else status.seen_at,
        behind=_behind(state, checkpoint, current_at),
        run=status.run + (lifecycle.running and not status.lifecycle.running),
        info_version=state.info.version,
        epoch=state.epoch,
        capture=status.capture,
        still=lifecycle.resting and (status.still or state.still),
        copying_since=(status.copying_since or now) if _in_copy(state) else None,
        letters=status.letters if state.letters is None else state.letters,
    )
    return status if _says_the_same(status, newest) else newest


def _current_at(state: ChangefeedState, checkpoint: Position, now: datetime) -> datetime:
    """Uses the source's own time, which is on another clock, only while the checkpoint is older than this owner's sightings."""
    before = state.status.current_at
    if before is not None and _in_copy(state):
        return before
    reached = state.sightings.reached(checkpoint)
    found = reached.at if reached else min(checkpoint.ts.to_datetime(), now)
    return max(found, before or found)


def _in_copy(state: ChangefeedState) -> bool:
    return any(report.copies for report in state.reports)


def _behind(state: ChangefeedState, checkpoint: Position, current_at: datetime) -> bool:
    latest = state.sightings.latest
    if latest is None or not state.watching or _in_copy(state):
        return True
    flowing = any(report.flowing for report in state.reports)
    return checkpoint < latest.end and (flowing or latest.at - current_at >= _PASSING)


def _says_the_same(before: ChangefeedStatus, after: ChangefeedStatus) -> bool:
    if before.current_at is None or after.current_at is None or after.current_at - before.current_at > _CURRENT_AGAIN:
        return False
    return replace(after, current_at=before.current_at, seen_at=before.seen_at) == before


def _lifecycle(
    state: ChangefeedState, checkpoint: Position, now: datetime, random: Random, *, awaits: bool
) -> Lifecycle:
    """`awaits`: it does not finish yet, since stragglers are behind."""
    status = state.status
    lifecycle = commanded(state.info, status, now=now, random=random)
    if lifecycle.state is not status.lifecycle.state:
        return lifecycle
    end = _end(state)
    progress = status.checkpoint is not None and checkpoint > status.checkpoint
    events: list[Event] = [
        Sign.TICK,
        *([Sign.PROGRESS] if progress else []),
        *_errors(state),
        *([Sign.TARGET_REACHED] if end is not None and checkpoint >= end and not awaits else []),
    ]
    for event in events:
        lifecycle = lifecycle.after(event, now=now, random=random)
    for failure in _ddl_failures(state):
        if not (failure.retryable and lifecycle.state is State.WARNING):
            lifecycle = lifecycle.after(failure, now=now, random=random)
    return lifecycle


def commanded(info: ChangefeedInfo, status: ChangefeedStatus, *, now: datetime, random: Random) -> Lifecycle:
    """The lifecycle after the user's newest change. Each change is obeyed once."""
    if info.version == status.info_version:
        return status.lifecycle
    match info.desired:
        case DesiredState.PAUSED:
            command = Command.PAUSE
        case DesiredState.REMOVED:
            command = Command.REMOVE
        case DesiredState.RUNNING:
            command = Command.RESUME
    return status.lifecycle.after(command, now=now, random=random)


def _errors(state: ChangefeedState) -> list[ErrorReport]:
    """The errors of this run, without those that another error explains. Those that may lead to a pause are not hidden by others."""
    errors = [*state.errors, *state.node_errors]
    if not state.isolates:
        errors += [error for _, _, error in state.checkpoints.failed(state.status.run)]
    errors = [error for error in errors if not any(other.explains(error) for other in errors)]
    return [error for error in errors if not error.keeps_running] or errors


def _ddl_failures(state: ChangefeedState) -> list[ErrorReport]:
    """A failure that is retried gives a warning and nothing worse, however long it lasts: the DDL holds only its own tables."""
    return [
        ErrorReport.of(progress.error, progress.failed_at)
        for _, progress in sorted(state.executions.items())
        if isinstance(progress, Failed) and not (state.isolates and isinstance(progress.error, OF_ITS_TABLES))
    ]


def check_invariants(before: ChangefeedStatus, after: ChangefeedStatus) -> None:
    """The tests call this for each status that replaces another one of the same start."""
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
