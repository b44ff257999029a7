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
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from random import Random

import structlog

from changefeed.capture import Capture
from changefeed.config.configuration import Configuration
from changefeed.errors import (
    ConfigurationError,
    CoordinationUnavailable,
    DdlRefused,
    FencedError,
    InvariantError,
    SluiceError,
    UpdateWaits,
)
from changefeed.event import DdlEvent, DdlType
from changefeed.lifecycle import Command, ErrorReport, Lifecycle, Sign, State
from changefeed.records.ddl import DdlRecord
from changefeed.records.node import NodeId
from changefeed.records.requests import ChangefeedId
from changefeed.records.status import ChangefeedStatus
from changefeed.source_history import SourceHistory
from changefeed.table import TableId, TableName
from coordination import failpoint
from coordination.large.large_values import LARGE_BYTES, MOST_BYTES
from coordination.mirror import View
from owner import capture_change, etcd_view
from owner.background import Background
from owner.ddl.jobs import DdlJobs
from owner.ddl.scope import DdlClassifier, not_explained, not_replicable, shown_otherwise
from owner.ddl.steps import Apply, Observe, RecordExecuting, Refuse
from owner.decision.decide import LookUp, OwnerAction, PublishBarrier, PublishStatus, RecordDdls, ReleaseDdls, decide
from owner.decision.recording import asked_about
from owner.decision.state import ChangefeedState, published
from owner.decision.status import commanded
from owner.delay import horizon
from owner.deployments.heartbeats import Heartbeats
from owner.deployments.leftovers import Leftovers
from owner.deployments.letter_count import LetterCount
from owner.deployments.lost_tables import lost_tables, others_go_on
from owner.deployments.oplog_guard import OplogGuard, OplogLeft
from owner.deployments.place_notes import PlaceNotes
from owner.deployments.principal_copy import PrincipalCopy
from owner.deployments.unfinished_copies import UnfinishedCopies
from owner.deployments.watermarks import Watermarks
from owner.etcd_view import OwnerView
from owner.etcd_writes import ChangefeedWriter
from owner.owner_memory import ErrorReports, OwnerMemory
from owner.phase import Phase, never_began, phase_of
from owner.starts.catalog_at_start import look_up
from owner.starts.table_starts import TableStarts
from owner.tables import filter_change, scheduler
from owner.tables.known_tables import KnownTables
from owner.tables.node_standings import without_nodes
from owner.tables.progress import TableProgress
from owner.tables.wishes import Forget, Mark, Resume, TableWishes
from owner.term import OwnerTerm
from schema_store.store import fold
from schema_store.versions import SchemaVersions
from sink.ddl import DdlApplier, DownstreamDdl, Routing, downstream, dropped_instead
from source.loss import Loss, ReadTable

_log = structlog.get_logger()

_HISTORY = 100
"""How many settled DDLs stay in etcd, for users who ask what was applied when."""
_CROWDED = 4
"""From this part of the room for large definitions on, none are kept for users."""


class ChangefeedOwner:
    """For the owner's thread only. `close` ends what it started in other threads."""

    def __init__(
        self, id: ChangefeedId, configuration: Configuration, capture: Capture, term: OwnerTerm, *, created_rev: int
    ) -> None:
        """`configuration`: as its tables were found. `created_rev`: the revision in etcd at which the changefeed was created."""
        self.configuration = configuration
        self._life = f"{term.layout.cluster}/{created_rev}"
        self.capture = capture
        self._id = id
        self._term = term
        self._log = _log.bind(changefeed=id, epoch=term.store.epoch)
        self._random = Random()  # noqa: S311  # spreads retries
        self._writer = ChangefeedWriter(term.store, term.layout, id)
        self._source = term.clusters.acquire(configuration.source, capture)
        self._background = Background(term.wake)
        self._jobs = self._new_jobs()
        self._classifier = DdlClassifier(
            filter=configuration.filter,
            routes=configuration.routes,
            background_indexes=configuration.ddl.async_indexes and not configuration.sink_can.keeps_order,
        )
        self._memory = OwnerMemory()
        self._gone_at: dict[NodeId, float] = {}
        self._run = 0
        self._guard = OplogGuard(id, self._background, self._source.oplog_window)
        self._losses = self._source.losses(self._background)
        self._heartbeats = Heartbeats(f"{term.layout.cluster}/{id}", self._background, self._source)
        self._notes = PlaceNotes(id, self._background, self._source.move_on)
        self._unfinished = UnfinishedCopies(id, self._background, self._open_sink)
        count = partial(term.clusters.open_letters, configuration)
        self._letters = LetterCount(id, self._background, count)
        self._principals = (
            PrincipalCopy(
                id, self._background, self._source.read_principals, term.clusters.principals_of(configuration)
            )
            if configuration.users
            else None
        )
        self._watermarks = Watermarks(
            id, self._background, partial(term.clusters.open_marks, configuration, self._life)
        )
        self._leftovers = Leftovers(id, self._background, term.clusters.open_sweeper(configuration, self._life))
        self._reports = ErrorReports()
        self._table_starts = TableStarts(
            configuration,
            self._source,
            self._open_sink,
            partial(term.clusters.claim_sink, configuration, self._life),
            self._writer,
            self._background,
            self._reports,
            self._random,
        )

    def _new_jobs(self) -> DdlJobs:
        in_flight = partial(self._term.in_flight.call, self._id)
        return DdlJobs(self._open_sink, self._downstream, self._term.wake, in_flight)

    def _open_sink(self) -> DdlApplier:
        return self._term.clusters.open_sink(self.configuration, self._life)

    @property
    def oplog_left(self) -> OplogLeft | None:
        """None until it is known."""
        return self._guard.left

    def close(self) -> None:
        """To be called once."""
        self._background.close()
        self._jobs.close()
        self._memory.leave_feed()
        self._term.clusters.release(self.configuration.source, self.capture)

    def tick(self, view: View) -> None:
        """Raises errors that concern the whole term (fencing, etcd), and errors of unreadable records, without which no status can be written."""
        known = etcd_view.read(self._term.reader, view, self._term.layout, self._id)
        if known is None:
            return
        now = time.monotonic()
        self._gone_at = {node: self._gone_at.get(node, now) for node in known.left_behind}
        self._reports.next_tick()
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
        to_run = commanded(known.info, status, now=datetime.now(UTC), random=self._random).running
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
        heartbeat_gone = never_began(known.info, status) or not self._beats
        if self._stands_still(known) and (heartbeat_gone or self._heartbeats.ended()) and self._left_no_copies(known):
            self._writer.remove()

    def _left_no_copies(self, known: OwnerView) -> bool:
        return self._unfinished.dropped(known.bases.values(), known.records.values())

    def _unbegun(self, known: OwnerView) -> ChangefeedStatus:
        """The status before the user's first command, which may be a pause, is obeyed."""
        return ChangefeedStatus(
            info_version=known.info.version - 1, epoch=self._writer.epoch, capture=known.info.capture
        )

    def _stands_still(self, known: OwnerView) -> bool:
        """Whether each living node reports that its pipelines have stopped, and the margin of each gone node is over.

        A node may report this before it has seen the last start. So the barrier is written again after the status that ended the run,
        and a report counts once its node has seen that barrier.
        """
        if known.barrier is not None and known.barrier_rev < known.status_rev:
            self._writer.barrier_again(known.barrier)
            return False
        over = time.monotonic() - self._term.margin.total_seconds()
        busy = {node for node, assigned in known.assignments.items() if assigned.record.tables}
        for node in busy | known.reports.keys():
            report = known.reports.get(node)
            if node not in known.processors:
                still = self._gone_at[node] <= over
            else:
                still = report is not None and report.run == 0 and report.barrier_rev >= known.barrier_rev
            if not still:
                return False
        return True

    def _restart(self, known: OwnerView, status: ChangefeedStatus) -> None:
        if status.lifecycle.running:
            stopped = status.lifecycle.after(Command.PAUSE, now=datetime.now(UTC), random=self._random)
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
        lifecycle = commanded(known.info, status, now=datetime.now(UTC), random=self._random)
        if lifecycle.state is not State.REMOVED:
            lifecycle = self._lifecycle(lifecycle, self._reports.of(error))
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

    def _lifecycle(self, lifecycle: Lifecycle, event: Sign | ErrorReport) -> Lifecycle:
        return lifecycle.after(event, now=datetime.now(UTC), random=self._random)

    @property
    def _beats(self) -> bool:
        return self.capture is Capture.CHANGE_STREAM

    def _go_on(self, known: OwnerView, status: ChangefeedStatus) -> None:
        memory = self._memory
        self._writer.large.collect(known.large)
        if self._beats and status.checkpoint is not None:
            self._heartbeats.tick(status.checkpoint)
        if status.run != self._run:
            self._jobs.forget_failures()
            self._run = status.run
        if memory.tables is None:
            memory.tables = KnownTables(known.bases, known.records.values())
        memory.tables.take(known.records.values())
        assert status.checkpoint is not None
        behind = {table: stored.record.at for table, stored in known.stragglers.items()}
        names, target = memory.tables.names, self.configuration.routes.target
        self._watermarks.look(status.checkpoint, behind, lambda: map(target, names()))
        self._leftovers.look(known.gone)
        floor = known.floor(status.checkpoint)
        nodes = known.nodes(self._gone_at, memory.standings.failing(known.processors))
        memory.progress = memory.progress.next(memory.tables.replicated, nodes, floor)
        memory.standings = memory.standings.next(nodes, status.run, time.monotonic())
        decision = decide(
            self._state(known, status, memory.tables),
            self._classifier,
            now=datetime.now(UTC),
            monotonic=time.monotonic(),
            random=self._random,
        )
        executing = [action.record for action in decision.actions if isinstance(action, RecordExecuting)]
        for action in decision.actions:
            if not isinstance(action, RecordExecuting):
                self._carry_out(action, known)
        self._record_executing(executing)
        self._notes.look(wanted=decision.lacks_place)
        assert isinstance(decision.tip, SchemaVersions)
        memory.tables.seen(decision.tip)
        memory.arrived = list(decision.waiting)
        if status.lifecycle.running:
            self._schedule(known)
            self._fold(known, status, memory.tables)

    def _state(self, known: OwnerView, status: ChangefeedStatus, tables: KnownTables) -> ChangefeedState:
        errors: list[SluiceError] = []
        loss = Loss()
        resolved = status.resolved
        assert resolved is not None
        assert status.checkpoint is not None
        if status.lifecycle.running:
            lost = self._guard.look(status.checkpoint)
            errors += [lost] if lost and not others_go_on(known, self._memory.progress, self._guard.window) else []
            if self._memory.subscription is None:
                start = max(resolved, known.barrier.position) if known.barrier else resolved
                self._memory.subscription = self._source.feed.subscribe(start, self._term.wake)
            taken = self._memory.subscription.take()
            loss = self._look_for_loss(taken.history, known, tables)
            self._memory.take(taken, hold=loss.hold)
            resolved = resolved if loss.hold else taken.resolved
            nobody = without_nodes(known.processors) if tables.replicated else None
            unwritten = self._copy_principals(known)
            errors += self._update_waits(known, status)
            also = (taken.error, self._memory.error, loss.error, nobody, unwritten)
            errors += [error for error in also if error is not None]
        else:
            self._memory.leave_feed()
        return ChangefeedState(
            epoch=self._writer.epoch,
            info=replace(known.info, configuration=status.as_found(known.info.configuration)),
            status=status,
            barrier=known.barrier,
            records=known.records,
            wishes=TableWishes(
                stragglers=known.stragglers,
                requests=known.requests,
                repairs=known.repairs.keys(),
                skips=known.skips,
                lost=self._told({**lost_tables(known, self._memory.progress, self._guard.window), **loss.lost}),
                lost_from_the_start=self._told(loss.begin_lost),
                replicated=tables.replicated.keys(),
                processors={node for node, state in self._memory.progress.nodes.items() if state.takes_tables},
                moving=known.moving,
            ),
            beside=tables.beside & known.copied,
            reports=[report for node, report in known.reports.items() if node in known.processors],
            node_errors=self._memory.standings.errors(self._memory.progress.nodes, status.run, time.monotonic()),
            checkpoints=self._memory.progress,
            tip=tables.tip,
            arrived=self._memory.arrived,
            room=self._room(),
            resolved=resolved,
            history=self._memory.history and self._memory.history.after(_read_by(known)).without(loss.gone),
            horizon=horizon(
                known.info.configuration,
                status,
                resolved,
                lambda start: tables.copied_from(start) - known.copied - known.stragglers.keys(),
            ),
            sightings=self._memory.sightings,
            watching=self._memory.watching,
            executions=self._jobs.progress,
            still=status.lifecycle.resting and (status.still or self._stands_still(known)),
            copying=self.configuration.target is not None and bool(tables.beside or tables.to_copy - known.copied),
            entered=self._memory.entered,
            letters=self._letters.look(status.letters, known.all_rows.rejected),
            errors=[self._reports.of(error) for error in errors],
        )

    def _room(self) -> int:
        large = any(len(event.description.raw) > LARGE_BYTES for event in self._memory.arrived)
        return self._writer.large.room if large else MOST_BYTES

    def _told(self, errors: Mapping[TableId, SluiceError]) -> dict[TableId, ErrorReport]:
        return {table: self._reports.of(error) for table, error in errors.items()}

    def _look_for_loss(self, shown: SourceHistory | None, known: OwnerView, tables: KnownTables) -> Loss:
        lost = {table for table, stored in known.stragglers.items() if stored.lost}
        open_ = [record for record in known.records.values() if record.open]
        least = self._memory.progress.least(lost)
        begins = min((record.position for record in open_), default=least)
        return self._losses.look(
            shown,
            _read_by(known),
            min(least, begins) if least and begins else None,
            partial(_read_tables, tables, self._memory.progress, lost, open_),
        )

    def _update_waits(self, known: OwnerView, status: ChangefeedStatus) -> list[UpdateWaits]:
        """Told only if it waits for a user."""
        blocking = [] if status.follows(known.info.configuration) else self._table_starts.blocking(known, status)
        refused = [record for record in blocking if record.refused is not None]
        return [UpdateWaits(filter_change.waits_for(refused))] if refused else []

    def _copy_principals(self, known: OwnerView) -> SluiceError | None:
        if self._principals is None:
            return None
        to_record = self._principals.tick(known.principals)
        if to_record is not None:
            self._writer.principals(to_record)
        return self._principals.error

    def _carry_out(self, action: OwnerAction, known: OwnerView) -> None:
        match action:
            case LookUp(event):
                self._look_up(event)
            case RecordDdls(records, answers):
                self._writer.ddls(records, answers)
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
                self._writer.wish(action)
            case Observe() | Apply():
                self._jobs.start(action)
            case PublishStatus(status):
                self._writer.status(status, known.status)

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
        try:
            found = self._background.take(asked_about(event), lambda: look_up(self._source, event))
        except SluiceError as error:
            self._memory.error = error
            return
        self._memory.error = None
        if found is not None:
            self._memory.entered[asked_about(event)] = found

    def _downstream(self, record: DdlRecord) -> DownstreamDdl:
        def route(name: TableName) -> TableName | None:
            wanted = self.configuration.filter.wants_table(name)
            return self.configuration.routes.target(name) if wanted else None

        assert self._memory.tables is not None
        tip = self._memory.tables.tip
        touched = record.scope.tables | record.scope.apart
        before = {table: tip.before(table, record.position) for table in touched}
        names = {table: schema.name for table, schema in before.items() if schema is not None}
        beside = {schema.name: schema.beside.name for schema in before.values() if schema and schema.beside}
        if record.event.type is DdlType.DROP_DATABASE:
            named = record.scope.names  # a table without a name downstream is not among them
            names = {table: name for table, name in names.items() if self.configuration.routes.target(name) in named}
        if (refused := shown_otherwise(record.event, self.configuration)) and not record.drops:
            raise DdlRefused(refused)
        if refused := not_explained(record.event) or not_replicable(record.event, self.configuration, self.capture):
            raise DdlRefused(refused)
        translate = dropped_instead if record.drops else downstream
        event = replace(record.event, drop_target=None) if record.taken else record.event
        return translate(event, Routing(route=route, tables=names, beside=beside))

    def _schedule(self, known: OwnerView) -> None:
        actions = scheduler.decide(self._memory.progress, known.moves, now=time.monotonic(), margin=self._term.margin)
        before = {node: assigned.record for node, assigned in known.assignments.items()}
        self._writer.end_copies(actions)
        self._writer.schedule(before, scheduler.assignments_after(before, actions))
        self._writer.forget(actions, known.reports, known.rows)

    def _fold(self, known: OwnerView, status: ChangefeedStatus, tables: KnownTables) -> None:
        """Folds the oldest settled DDLs into the bases, once there are twice as many as are kept for users; all, if they are large."""
        settled = sorted(position for position, record in known.records.items() if not record.open)
        crowded = self._writer.large.size > MOST_BYTES // _CROWDED
        if not settled or status.checkpoint is None or (len(settled) <= 2 * _HISTORY and not crowded):
            return
        below = status.checkpoint if crowded else min(status.checkpoint, settled[-_HISTORY])
        if settled[0] >= below:
            return
        step = next(fold(known.bases, known.records.values(), below), None)
        if step is not None:
            self._writer.fold(step)
            tables.gc(min([below, *(record.position for record in known.records.values() if record.open)]))

    def _forget(self) -> None:
        self._memory.leave_feed()
        self._memory = OwnerMemory()


def _read_by(known: OwnerView) -> SourceHistory | None:
    """What nodes read windows by."""
    return known.barrier.history if known.barrier is not None else None


def _read_tables(
    known: KnownTables, progress: TableProgress, lost: AbstractSet[TableId], open_records: Iterable[DdlRecord]
) -> dict[TableId, ReadTable]:
    uuids: dict[TableId, list[TableId]] = {}
    for uuid, table in known.tip.by_uuid().items():
        uuids.setdefault(table, [table]).append(uuid)
    tables = {
        schema.id: ReadTable(name=schema.name, at=progress.of(schema.id), uuids=uuids.get(schema.id, [schema.id]))
        for _, schema in known.settled
        if schema.id in known.replicated and schema.id not in lost
    }
    for record in open_records:
        event = record.event
        if event.type is DdlType.CREATE and event.table is not None and event.id is not None:
            tables[event.id] = ReadTable(
                name=event.table, at=event.position, uuids=uuids.get(event.id, [event.id]), there=False
            )
    return tables


def _reach(point: str, records: Iterable[DdlRecord]) -> None:
    for record in records:
        failpoint.reach(point, record.event.type)
