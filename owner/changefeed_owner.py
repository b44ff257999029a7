"""`ChangefeedOwner`: carries out the decisions for one changefeed, during one owner's term.

A tick takes a view of etcd that contains this owner's own last commit, decides, and writes. It never waits for the source or the sink:
their answers arrive through the DDL feed and through jobs. When a tick fails part way, its memory is dropped, and the next tick starts
from a view, as a new owner would. An error that is neither from fencing nor from etcd belongs to the changefeed: its status shows it,
and the user's next change is still obeyed.

    no checkpoint ──begin──▶ checkpoint ──▶ a decision at every tick ──removed──▶ its keys are deleted
          ▲                                  │  ▲               │
          │                                  ▼  │               │
          │               the filter wants other tables: bases  │
          └────── restart at a user's new start: keys deleted ◀─┘
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from random import Random

import structlog

from changefeed.capture import Capture
from changefeed.config.configuration import Configuration
from changefeed.documents.document import Document
from changefeed.errors import (
    ConfigurationError,
    CoordinationUnavailable,
    FencedError,
    InvariantError,
    RetryableError,
    SluiceError,
    UpdateWaits,
)
from changefeed.event import DdlEvent, DdlType
from changefeed.lifecycle import Command, State
from changefeed.records.ddl import DdlRecord
from changefeed.records.node import NodeId
from changefeed.records.requests import ChangefeedId
from changefeed.records.status import ChangefeedStatus
from coordination import failpoint
from coordination.large_values import LARGE_BYTES, MOST_BYTES
from coordination.view import View
from owner import etcd_view
from owner.background import Background
from owner.chores import PrincipalCopy, SinkChores, SourceChores
from owner.connections import FeedPermit, OwnerTerm
from owner.ddl.execution import Apply, Observe, RecordExecuting, Refuse, translated
from owner.ddl.jobs import DdlJobs
from owner.ddl.scope import DdlClassifier
from owner.ddl.stragglers import behind
from owner.decision import capture_change
from owner.decision.decide import (
    Decision,
    LookUp,
    OwnerAction,
    PublishBarrier,
    PublishStatus,
    RecordDdls,
    ReleaseDdls,
    decide,
)
from owner.decision.state import asked_about, published
from owner.decision.status import Phase, never_began, phase_of
from owner.etcd_view import OwnerView
from owner.etcd_writes import ChangefeedWriter
from owner.owner_memory import Lifecycles, OwnerMemory
from owner.source_watch import OplogLeft, SourceWatch
from owner.state_of import Collected, state_of
from owner.sync_marking import SyncMarking
from owner.table_starts import TableStarts, look_up
from owner.tables import filter_change, scheduler
from owner.tables.known_tables import KnownTables
from owner.tables.wishes import Forget, Mark, Resume
from owner.target_changes import unfinished_copies
from schema_store.store import fold
from sink.ddl import DownstreamDdl

_log = structlog.get_logger()


class ChangefeedOwner:
    """For the owner's thread only. `close` ends what it started in other threads."""

    def __init__(
        self, id: ChangefeedId, configuration: Configuration, capture: Capture, term: OwnerTerm, *, created_rev: int
    ) -> None:
        """`configuration`: as its tables were found. `created_rev`: the revision in etcd at which the changefeed was created."""
        self.configuration = configuration
        self.capture = capture
        self._id = id
        self._term = term
        self._log = _log.bind(changefeed=id, epoch=term.store.epoch)
        self._random = Random()  # noqa: S311  # spreads retries
        self._lifecycles = Lifecycles(self._random)
        self._writer = ChangefeedWriter(term.store, term.layout, id)
        self._permit = FeedPermit(term.permit)
        self._sink = term.connections.open_sink(configuration, f"{term.layout.cluster}/{created_rev}", self._permit)
        self._source = term.connections.acquire(configuration.source, capture)
        self._background = Background(term.wake)
        self._jobs = self._new_jobs()
        self._classifier = DdlClassifier(
            filter=configuration.filter,
            routes=configuration.routes,
            background_indexes=configuration.ddl.async_indexes and not configuration.sink_traits.keeps_messages,
            shard_keys=capture is not Capture.SHARD_OPLOGS or self._sink.every_change,
        )
        self._memory = OwnerMemory()
        self._gone_at: dict[NodeId, float] = {}
        self._run, self.calm = 0, False
        self._watch = SourceWatch(id, self._source, self._background, self._lifecycles)
        self._source_chores = SourceChores(id, f"{term.layout.cluster}/{id}", self._source, self._background)
        self._sink_chores = SinkChores(id, self._sink, self._background)
        self._sync = SyncMarking(id, configuration, self._sink, self._background, self._writer, term.compare)
        self._principals: PrincipalCopy | None = None
        if configuration.users and (target := self._sink.principals()) is not None:
            self._principals = PrincipalCopy(id, self._background, self._source.read_principals, target)
        self._table_starts = TableStarts(
            configuration, self._source, self._sink, self._writer, self._background, self._lifecycles
        )

    def _new_jobs(self) -> DdlJobs:
        in_flight = partial(self._term.in_flight.call, self._id)
        return DdlJobs(self._sink.ddl, self._translated, self._term.wake, in_flight)

    def _translated(self, record: DdlRecord) -> DownstreamDdl:
        assert self._memory.tables is not None
        return translated(record, self._memory.tables.tip, self.configuration, self.capture)

    @property
    def oplog_left(self) -> OplogLeft | None:
        """None until it is known."""
        return self._watch.oplog_left

    def close(self) -> None:
        """To be called once."""
        self._permit.ended = True
        self._background.close()
        self._jobs.close()
        self._sync.close()
        self._memory.leave_feed()
        self._term.connections.release(self.configuration.source, self.capture)

    def tick(self, view: View) -> None:
        """Raises errors that concern the whole term (fencing, etcd), and errors of unreadable records, without which no status can be written."""
        known = etcd_view.read(self._term.reader, view, self._term.layout, self._id)
        if known is None:
            return
        self._gone_at = known.gone_at(self._gone_at, time.monotonic())
        self._lifecycles.next_tick()
        self.calm = False
        try:
            self._step(known)
        except (FencedError, CoordinationUnavailable):
            self._forget()
            raise
        except Exception as error:  # noqa: BLE001  # an error of one changefeed affects no other: its status shows it
            self._forget()
            self._fail(known, error)

    def _step(self, known: OwnerView) -> None:
        status = known.status or self._unbegun(known)
        to_run = self._lifecycles.commanded(known.info, status).running
        begun = status.checkpoint is not None
        takes_names = begun and filter_change.may_take_names(known.records.values(), published(status, known.barrier))
        asked = known.info.configuration
        blocked = begun and not status.follows(asked) and self._table_starts.waits(known, status)
        match phase_of(known.info, status, asked, to_run=to_run, takes_names=takes_names, blocked=blocked):
            case Phase.REMOVE:
                self._remove(known, status)
            case Phase.BEGIN:
                self._table_starts.begin(known, status)
            case Phase.RESTART:
                self._restart(known, status)
            case Phase.RECAPTURE:
                self._change_capture(known, status)
            case Phase.REFILTER:
                renaming = not status.lifecycle.running and (status.reroutes(asked) or known.renames)
                if (not renaming or self._stands_still(known)) and self._table_starts.change_tables(known, status):
                    self._begin_anew()
            case Phase.RUN:
                self._go_on(known, status)

    def _remove(self, known: OwnerView, status: ChangefeedStatus) -> None:
        beats = self.capture is Capture.CHANGE_STREAM and not never_began(known.info, status)
        if not self._stands_still(known) or (beats and not self._source_chores.heartbeat_ended()):
            return
        if self._left_no_copies(known):
            self._writer.remove()

    def _left_no_copies(self, known: OwnerView) -> bool:
        """DDLs that the schemas cannot explain may not keep a changefeed from being removed, either."""
        try:
            copies = unfinished_copies(known.bases.values(), known.records.values())
        except InvariantError as error:
            self._log.warning("unfinished_copies_unknown", error=str(error))
            return True
        return self._sink_chores.dropped(copies)

    def _unbegun(self, known: OwnerView) -> ChangefeedStatus:
        """The status before the user's first command, which may be a pause, is obeyed."""
        return ChangefeedStatus(
            info_version=known.info.version - 1, epoch=self._writer.epoch, capture=known.info.capture
        )

    def _stands_still(self, known: OwnerView) -> bool:
        """Whether no pipeline runs any more. Writes the barrier again if nodes' reports may be from before the last start."""
        if known.barrier is not None and known.reports_may_be_old:
            self._writer.barrier_again(known.barrier)
        return known.stands_still(self._gone_at, self._gone_before)

    @property
    def _gone_before(self) -> float:
        """A node that is gone may still write for the margin."""
        return time.monotonic() - self._term.margin.total_seconds()

    def _restart(self, known: OwnerView, status: ChangefeedStatus) -> None:
        if status.lifecycle.running:
            stopped = self._lifecycles.after(status.lifecycle, Command.PAUSE)
            self._writer.status(replace(status, lifecycle=stopped, epoch=self._writer.epoch), status)
        elif self._stands_still(known) and self._left_no_copies(known):
            self._writer.restart(self._table_starts.fresh_status(known, run=status.run + 1))
            self._begin_anew()

    def _change_capture(self, known: OwnerView, status: ChangefeedStatus) -> None:
        """Nothing runs before it is done. The request was checked for obstacles, and nothing has moved since."""
        standing = known.standing()
        assert standing is not None
        if (in_the_way := capture_change.obstacle(standing)) is not None:
            raise ConfigurationError([f"capture: {in_the_way}"])
        changed = replace(status, capture=known.info.capture, checkpoint=standing.at, epoch=self._writer.epoch)
        self._writer.capture(fold(known.bases, known.records.values(), standing.at), changed)
        self._begin_anew()

    def _begin_anew(self) -> None:
        """Drops the jobs and the memory, since they concern the tables as they were."""
        self._jobs.close()
        self._jobs = self._new_jobs()
        self._forget()

    def _fail(self, known: OwnerView, error: Exception) -> None:
        if not isinstance(error, SluiceError):
            self._log.error("changefeed_tick_broke", exc_info=error)
            error = InvariantError(repr(error))
        status = known.status or self._unbegun(known)
        lifecycle = self._lifecycles.commanded(known.info, status)
        if lifecycle.state is not State.REMOVED:
            lifecycle = self._lifecycles.after(lifecycle, error)
        run = status.run + (lifecycle.running and not status.lifecycle.running)
        failed = replace(
            status,
            lifecycle=lifecycle,
            behind=True,
            run=run,
            info_version=known.info.version,
            epoch=self._writer.epoch,
            still=status.still and lifecycle.resting,
        )
        if failed != known.status:
            self._writer.status(failed, known.status)

    def _go_on(self, known: OwnerView, status: ChangefeedStatus) -> None:
        memory = self._memory
        self._writer.large.collect(known.large)
        if status.run != self._run:
            self._jobs.forget_failures()
            self._run = status.run
        tables = memory.follow(known, status, self._gone_at, time.monotonic())
        self._do_chores(known, status, tables)
        collected = self._collect(known, status)
        state = state_of(known, status, memory, self.configuration, self._writer.epoch, collected)
        now, monotonic = datetime.now(UTC), time.monotonic()
        decision = decide(state, self._classifier, now=now, monotonic=monotonic, random=self._random)
        self._carry_out(decision, known)
        self._sync.tick(known, status, memory)
        tables.seen(decision.tip)
        memory.arrived = list(decision.waiting)
        if status.lifecycle.running:
            self._schedule(known)
            self._fold(known, status, tables)
        self.calm = decision.calm and not self._gone_at

    def _do_chores(self, known: OwnerView, status: ChangefeedStatus, tables: KnownTables) -> None:
        """What needs no decision."""
        assert status.checkpoint is not None
        if self.capture is Capture.CHANGE_STREAM:
            self._source_chores.beat(status.checkpoint)
        missing = behind(known.stragglers, known.records.values(), status.checkpoint)
        names, target = tables.names, self.configuration.routes.target
        self._sink_chores.mark(status.checkpoint, missing, lambda: map(target, names()), known.reports.values())
        self._sink_chores.sweep(known.gone)
        if status.lifecycle.resting and not status.still:
            self._stands_still(known)
        if self._principals is not None and status.lifecycle.running:
            to_record = self._principals.tick(known.principals)
            if to_record is not None:
                self._writer.principals(to_record)

    def _collect(self, known: OwnerView, status: ChangefeedStatus) -> Collected:
        """Writes nothing."""
        unwritten = self._principals.error if self._principals is not None else None
        waits = self._table_starts.update_waits(known, status)
        source = self._watch.look(known, status, self._memory, [waits, unwritten])
        return Collected(
            source=source,
            sync_place=self._sync.aim(known, status, self._memory, source.resolved),
            letters=self._sink_chores.letters(status.letters, known.all_rows.rejected),
            executions=self._jobs.progress,
            room=self._room(),
            still=status.lifecycle.resting and (status.still or known.stands_still(self._gone_at, self._gone_before)),
            now=time.monotonic(),
        )

    def _room(self) -> int:
        large = any(len(event.description.raw) > LARGE_BYTES for event in self._memory.arrived)
        return self._writer.large.room if large else MOST_BYTES

    def _carry_out(self, decision: Decision, known: OwnerView) -> None:
        for action in decision.actions:
            self._act(action, known)
        self._record_executing([action.record for action in decision.actions if isinstance(action, RecordExecuting)])
        self._source_chores.note(wanted=decision.lacks_place or self._sync.wants_note)

    def _act(self, action: OwnerAction, known: OwnerView) -> None:
        match action:
            case LookUp(event):
                self._look_up(event)
            case RecordDdls(records, answers):
                self._writer.ddls(records, answers, known.request_revs)
                _reach("ddl_recorded", records)
            case PublishBarrier(barrier):
                self._writer.barrier(barrier, known.barrier, flowing=known.flowing)
            case ReleaseDdls(records, barrier, stragglers):
                self._writer.release(records, barrier, stragglers)
                _reach("ddl_released", records)
                self._jobs.forget(record.position for record in records)
                self._term.wake()  # the next DDL of their tables may run, and new tables want nodes
            case Refuse(record):
                self._writer.ddls([record])
                self._jobs.forget([record.position])
            case Mark() | Resume() | Forget():
                self._writer.wish(action, known.request_revs)
            case Observe() | Apply():
                self._jobs.start(action)
            case PublishStatus(status):
                self._writer.status(status, known.status)
            case RecordExecuting():
                pass  # after all others, and together

    def _record_executing(self, records: Sequence[DdlRecord]) -> None:
        _reach("ddl_observed", records)
        kept = [record for record in records if self._is_kept(record)]
        self._writer.ddls(kept)
        _reach("ddl_executing_recorded", kept)
        for record in kept:
            self._jobs.start(Apply(record))

    def _is_kept(self, record: DdlRecord) -> bool:
        error = self._writer.keep(record)
        if error is not None:
            self._jobs.fail(record, error)
        return error is None

    def _look_up(self, event: DdlEvent) -> None:
        found: Document | SluiceError | None
        try:
            found = self._background.take(asked_about(event), lambda: look_up(self._source, event))
        except SluiceError as error:
            found = error
        waits = isinstance(found, SluiceError) and event.type is DdlType.ENTER
        self._memory.error = UpdateWaits(f"{event.table} is not copied anew: {found}") if waits else None
        if isinstance(found, RetryableError):
            self._memory.error = found
        elif found is not None:
            self._memory.entered[asked_about(event)] = found

    def _schedule(self, known: OwnerView) -> None:
        actions = scheduler.decide(self._memory.progress, known.moves, now=time.monotonic(), margin=self._term.margin)
        before = {node: assigned.record for node, assigned in known.assignments.items()}
        self._writer.end_copies(actions)
        self._writer.schedule(before, scheduler.assignments_after(before, actions))
        self._writer.forget(actions, known.reports, known.rows)

    def _fold(self, known: OwnerView, status: ChangefeedStatus, tables: KnownTables) -> None:
        assert status.checkpoint is not None
        below = self._writer.fold_settled(known.bases, known.records, status.checkpoint)
        if below is not None:
            tables.gc(min([below, *(record.position for record in known.records.values() if record.open)]))

    def _forget(self) -> None:
        self._memory.leave_feed()
        self._memory = OwnerMemory()


def _reach(point: str, records: Iterable[DdlRecord]) -> None:
    for record in records:
        failpoint.reach(point, record.event.type)
