"""`ChangefeedProcessor`: carries out the decisions for one changefeed, on one node, during one session.

A tick takes a view of etcd, collects the outcomes of finished jobs, decides, starts jobs in worker threads, and reports. It never
waits for the source, the sink or Spark.

The order matters: a job's outcome says that its window is durable. Only then do the checkpoints of its tables move, and only then
are they reported. A failed job moves nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import Executor, Future
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Protocol

import structlog

from changefeed.config.configuration import OnDivergence, OnRejected
from changefeed.errors import (
    ConflictError,
    Divergence,
    FencedError,
    InvariantError,
    RetryableError,
    RowRejected,
    SluiceError,
)
from changefeed.event import DdlType
from changefeed.lifecycle import ErrorReport
from changefeed.position import Position
from changefeed.records.ddl import DdlRecord
from changefeed.records.node import NodeId, PositionReport
from changefeed.records.requests import ChangefeedId, RepairRequest
from changefeed.table import TableId, TableSchema
from coordination.decoded import StoredRecord
from coordination.etcd.config import EtcdConfig
from coordination.etcd.protocol import CreateRevIs, Delete
from coordination.fenced import FencedStore
from coordination.layout import Layout, child
from coordination.mirror import View
from coordination.task_fence import Fence
from credentials.redaction import redacted
from credentials.secrets import allowed
from processor import job_ends
from processor.commits import Commits
from processor.copy.steps import CopyAnswers, CopyChunk, CopyStep
from processor.copy.table_copies import TableCopies
from processor.etcd_view import ProcessorView
from processor.following import Following, Orders
from processor.job_watch import JobWatch, RunningCopy, RunningWindow
from processor.lanes.commit_pace import unhurried
from processor.lanes.lane_plan import LaneLimits
from processor.lanes.lanes import LaneJob, Lanes
from processor.lanes.windows import WindowLimits
from processor.limits.limit_share import LimitShares
from processor.node_reports import NodeReports
from processor.spark.attempts import Attempts
from processor.spark.pipeline import SharedBase, SharedContext
from processor.strangers import Strangers
from processor.task.job import Held, JobOutcome, JobSpec
from processor.task.job_context import JobContext
from processor.task.table_set import TableSet
from schema_store.definition import new_uuid
from schema_store.store import SchemaStore
from sink.opening import event_sink

_REPORT_EVERY = 0.1
_MANY = 1_000
"""Changed bases for which deriving everything from scratch costs no more."""

_log = structlog.get_logger()


class Jobs(Protocol):
    """Runs windows and copy steps: `Pipeline`. Its methods may be called from any thread."""

    def run(self, shared: SharedContext, spec: JobSpec) -> JobOutcome: ...

    def copy(self, shared: SharedContext, steps: Sequence[CopyStep], attempt: str) -> CopyAnswers: ...

    def look(self, shared: SharedContext, attempt: str) -> ErrorReport | None:
        """Whether a task reaches everything that the changefeed's windows need."""
        ...

    def cancel(self, shared: SharedContext, spec: JobSpec) -> None:
        """Spark ends the window's tasks, and kills the Python workers that do not end by themselves."""
        ...

    def cancel_copy(self, shared: SharedContext, attempt: str) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorSession:
    """Shared by all changefeeds of a node during one session."""

    store: FencedStore
    node: NodeId
    layout: Layout
    etcd: EtcdConfig
    jobs: Jobs
    attempts: Attempts
    threads: Executor
    wake: Callable[[], None]
    windows: WindowLimits
    lanes: LaneLimits
    committed: Callable[[ChangefeedId, timedelta], None] = lambda _, __: None
    """Told how long it took to commit a window."""


@dataclass(slots=True)
class _Look:
    """Whether an error is over."""

    shared: SharedContext
    future: Future[ErrorReport | None]


class ChangefeedProcessor:
    """For the processor's thread only. A changefeed that is restarted or created again gets a new one."""

    def __init__(self, id: ChangefeedId, stored: ProcessorView, session: ProcessorSession) -> None:
        self._id = id
        self._life = stored.orders.life
        self._configuration = stored.configuration
        self._capture = stored.capture
        self._session = session
        self._info_rev = stored.info_rev
        self._life_of_feed = f"{session.layout.cluster}/{stored.info_rev}"
        self._commits = self._open_commits()
        self._last_commit_began = float("-inf")
        self._waits_until: float | None = None
        self._log = _log.bind(changefeed=id, node=session.node)
        self._orders = stored.orders
        self._following = Following(lanes=Lanes.empty(stored.orders.barrier.position))
        self._copies = TableCopies(id, session.layout, session.lanes)
        self._copies_written = False
        self._schemas = SchemaStore()
        self._strangers = Strangers()
        self._records: Mapping[str, StoredRecord[DdlRecord]] = {}
        self._bases: Mapping[str, StoredRecord[TableSchema]] = {}
        self._contexts = 0
        self._lane_attempt = session.attempts.new()
        """Shared by the default lane's windows. They run one after another, so at most one window of the attempt is ever running."""
        self._base: SharedBase | None = None
        self._lane_tables: frozenset[TableId] = frozenset()
        self._tables = TableSet()
        """The tables of the default lane when the last context was made, twice: `_lane_tables` as the lanes have them."""
        self._shared: SharedContext | None = None
        self._retired: list[SharedContext] = []
        self._running: dict[int, RunningWindow] = {}
        self._copying: list[RunningCopy] = []
        self._watch = JobWatch(session.jobs, self._log)
        self._look: _Look | None = None
        self._repaired: set[str] = set()
        """The repair requests that were carried out, as long as they are in etcd."""
        self._reports = NodeReports(session.store, session.layout, id, session.node)
        self._reported: PositionReport | None = None
        self._reported_at = float("-inf")
        self._unreported = True
        self._arrived: Mapping[TableId, Position] = {}
        """What was reported of it."""

    def _open_commits(self) -> Commits | None:
        sink = event_sink(self._configuration)
        if sink is None or sink.commit_seconds is None:
            return None
        committer = sink.committer(self._life_of_feed, self._session.store.epoch)
        return Commits(committer, every_seconds=sink.commit_seconds)

    def serves(self, stored: ProcessorView) -> bool:
        """False once the changefeed was restarted or created again: state from before does not count for it."""
        return stored.orders.life == self._life

    def wound_up(self) -> bool:
        """Cancels the running jobs. Returns whether all jobs and copy tasks have ended."""
        self.cancel()
        return all(running.future.done() for running in self._running.values()) and not self._copies.has_running

    def due(self, now: float) -> bool:
        """Whether a tick is needed although nothing changed in etcd."""
        if (
            self._unreported
            or self._copies_written
            or self._copies.has_finished
            or (self._look is not None and self._look.future.done())
            or any(running.future.done() for running in self._running.values())
        ):
            return True
        if self._look is None and self._following.may_look(self._orders, now=now):
            return True
        moments = (self._following.retry_at, self._waits_until, self._watch.next_at)
        return any(at is not None and now >= at for at in moments)

    def cancel(self) -> None:
        """Asks Spark to end the running jobs. Does not wait for them."""
        for running in self._running.values():
            self._session.jobs.cancel(running.shared, running.spec)
        for copying in self._copying:
            if not copying.future.done() and not copying.indexes:
                self._session.jobs.cancel_copy(copying.shared, copying.attempt)

    def tick(self, view: View, stored: ProcessorView) -> None:
        """Raises errors that concern the whole session: fencing and etcd. Errors of the changefeed itself are reported."""
        now = time.monotonic()
        self._take_look(stored.orders, now)
        self._take_finished(now)
        try:
            self._go_on(view, stored, now)
        except (FencedError, RetryableError, ConflictError):
            raise
        except SluiceError as error:
            self._log.exception("changefeed_cannot_go_on", code=error.code)
            report = ErrorReport.of(error, datetime.now(UTC))
            self._following = self._following.with_error(report, now=now)
        self._copying = [copying for copying in self._copying if not copying.future.done()]
        self._watch.look(
            self._running.values(), self._copying, self._following, self._orders, self._schemas.versions, now
        )
        self._retire_contexts()
        self._report(stored, now)

    def _go_on(self, view: View, stored: ProcessorView, now: float) -> None:
        self._orders = stored.orders
        self._derive_schemas(stored)
        if (stored.configuration, stored.capture) != (self._configuration, self._capture):
            self._configuration, self._capture = stored.configuration, stored.capture
            self._renew_context()
        self._following = self._following.follow(stored.orders, self._copies.tables_with_tasks)
        if stored.repairs:
            self._answer_repairs(stored)
        limits = self._tick_copies(view, stored, now)
        self._following = self._following.rested(now)
        self._begin_jobs(stored, now, {**limits, **self._ended()})
        if self._look is None and self._following.may_look(stored.orders, now=now):
            self._begin_look(stored)

    def _ended(self) -> Mapping[TableId, Position]:
        """Tables that the assignment names but that do not exist at their checkpoint. They stop there: a table that comes back is assigned again."""
        versions, lanes = self._schemas.versions, self._following.lanes
        self._strangers = self._strangers.follow(versions.base, lanes.tables)
        changed = {table for table in versions.changed if table in lanes.tables}
        found = versions.interrupted(self._strangers.tables | changed)
        checkpoints = {table: lanes.checkpoint_of(table) for table in found}
        return {table: at for table, at in checkpoints.items() if versions.at(table, at) is None}

    def _derive_schemas(self, stored: ProcessorView) -> None:
        """Derives the schema versions from the bases and the settled DDL records. The barrier of the same view lets no event pass
        that needs an open record.

        Where bases have changed or records are gone, the versions are derived again: a node that did not look for a while has missed
        records that were settled and folded into the bases, a changed filter adds tables to the bases and removes them, and the bases
        contain nothing of a table that was created and dropped. Most often this leaves everything as it was, and so the context.
        """
        if self._records is stored.records and self._bases is stored.bases:
            return
        before, since, records = self._schemas, stored.settled_below, stored.ddls()
        changed = _changed_bases(self._bases, stored.bases)
        gone = [self._records[position].record for position in self._records.keys() - stored.records.keys()]
        floor = before.versions.floor
        if not self._bases or len(changed) > _MANY + len(stored.bases) // 4 or (floor is not None and since < floor):
            self._schemas = SchemaStore.from_records(stored.tables(), records)
        elif changed or gone:
            self._schemas = before.with_bases(changed, gone, partial(self._base_schema, stored), records)
        else:
            self._schemas = before.take(records)
        if self._schemas is not before:
            self._schemas = self._schemas.gc(since)
            if not self._schemas.versions.agrees(before.versions, since):
                self._renew_context()
        self._records, self._bases = stored.records, stored.bases

    def _base_schema(self, stored: ProcessorView, table: TableId) -> TableSchema | None:
        layout = self._session.layout
        base = stored.bases.get(child(layout.schema(self._id, table), layout.schemas(self._id)))
        return base.record if base is not None else None

    def _tick_copies(self, view: View, stored: ProcessorView, now: float) -> Mapping[TableId, Position]:
        """Returns how far each table in copy may go."""
        submit = partial(self._submit_copy, stored)
        begins = self._following.may_begin(stored.orders, now=now)
        lanes = self._following.lanes
        still = self._following.standing_still(stored.orders)
        tick = self._copies.tick(view, stored, self._schemas.versions, lanes, still, submit if begins else None, now)
        self._copies_written = bool(tick.ops)
        if tick.ops:
            self._session.store.commit_in_parts(tick.ops)
        self._following = self._following.moved(tick.moved, stored.orders)
        self._following = replace(self._following, lanes=self._following.lanes.passed(tick.passed))
        for error in map(self._blamed, tick.errors):
            self._log.warning("copy_failed", table=error.table, code=error.code, error=error.message)
            if error.table is None or not error.lasting:
                self._following = self._following.with_error(error, now=now)
            else:
                self._following = self._following.table_failed(error.table, error)
        return {**tick.limits, **tick.moved}

    def _shares(self, stored: ProcessorView) -> LimitShares:
        return LimitShares.among(self._reports.of(stored.others, time.monotonic()), stored.orders.run)

    def _submit_copy(self, stored: ProcessorView, steps: Sequence[CopyStep]) -> Future[CopyAnswers]:
        shared = self._context_for(frozenset(), stored)
        if stored.configuration.copy_limit is not None:
            share = self._shares(stored).copy
            steps = [replace(step, limit_share=share) if isinstance(step, CopyChunk) else step for step in steps]
        attempt = self._session.attempts.new()
        future = self._session.threads.submit(_run_copy, self._session, attempt, shared, steps, self._commits)
        self._copying.append(RunningCopy(attempt, steps, shared, future, time.monotonic()))
        future.add_done_callback(lambda _: self._session.wake())
        return future

    def _begin_jobs(self, stored: ProcessorView, now: float, limits: Mapping[TableId, Position]) -> None:
        jobs = self._following.next_jobs(stored.orders, self._session.lanes, now=now, copying=limits)
        jobs = self._paced(jobs, stored, now)
        if not jobs:
            return
        held, limited = _held(stored), stored.configuration.apply_limit is not None
        share = self._shares(stored).apply if limited else 1.0
        for job in jobs:
            self._following = self._following.begun(job, now=now)
            named = {table for table in job.own_windows if job.of(table)}
            copied = {} if self._configuration.sink_can.keeps_messages else self._copies.ranges(named)
            attempt = self._lane_attempt if job.tables else self._session.attempts.new()
            density = self._following.pace_of(job).density
            alone = limited or self._following.lanes.lane_of(job) is not None
            repairs = self._repairs_in(job, stored)
            spec = JobSpec.of(
                attempt,
                job,
                held,
                copied,
                density=density,
                repairs=repairs,
                alone=alone,
                history=stored.orders.barrier.history,
                limit_share=share,
                sink_share=self._following.sink_share(job),
                settled=self._following.settled(job),
            )
            self._submit(spec, self._context_for(job.tables, stored))

    def _paced(self, jobs: list[LaneJob], stored: ProcessorView, now: float) -> list[LaneJob]:
        """Without the jobs that wait for the sink's commit interval."""
        self._waits_until = None
        if self._commits is None or not jobs:
            return jobs
        barrier, target = stored.orders.barrier, stored.configuration.target
        waiting = [job for job in jobs if unhurried(job, barrier, target)]
        due_at = self._last_commit_began + self._commits.every_seconds
        if waiting and now < due_at:
            self._waits_until = due_at
            return [job for job in jobs if job not in waiting]
        self._last_commit_began = now if waiting else self._last_commit_began
        return jobs

    def _repairs_in(self, job: LaneJob, stored: ProcessorView) -> Mapping[TableId, RepairRequest]:
        asked = {TableId(table): request.record for table, request in stored.repairs.items()}
        return {
            table: request for table, request in asked.items() if job.of(table) and request.id not in self._repaired
        }

    def _answer_repairs(self, stored: ProcessorView) -> None:
        """A repair that is carried out again changes nothing, so its request may be deleted late."""
        asked = {table: request.record.id for table, request in stored.repairs.items()}
        self._repaired &= set(asked.values())
        done = [table for table, request in asked.items() if request in self._repaired]
        keys = [self._session.layout.repair(self._id, TableId(table)) for table in done]
        self._session.store.commit_in_parts([Delete(key) for key in keys])

    def _submit(self, spec: JobSpec, shared: SharedContext) -> None:
        future = self._session.threads.submit(_run_window, self._session, shared, spec, self._commits)
        self._running[spec.job.number] = RunningWindow(spec, shared, future, time.monotonic())
        future.add_done_callback(lambda _: self._session.wake())

    def _begin_look(self, stored: ProcessorView) -> None:
        shared = self._context_for(frozenset(), stored)
        future = self._session.threads.submit(_run_look, self._session, shared)
        self._look = _Look(shared, future)
        future.add_done_callback(lambda _: self._session.wake())

    def _take_look(self, orders: Orders, now: float) -> None:
        if self._look is None or not self._look.future.done():
            return
        error, self._look = self._look.future.result(), None
        self._following = self._following.looked(orders, error, now=now)

    def _context_for(self, tables: AbstractSet[TableId], stored: ProcessorView) -> SharedContext:
        """The context is renewed when the schemas, the tables or the run have changed. Its tables are those of the default lane."""
        shared = self._shared
        stale = shared is None or shared.context.fence.run != stored.orders.run
        if stale or (tables and self._lane_tables is not tables):
            self._renew_context()
        if self._shared is None:
            context = self._new_context(stored)
            self._shared = SharedContext(context, self._base_of(context))
        return self._shared

    def _base_of(self, context: JobContext) -> SharedBase:
        """The base that this context and later ones share."""
        if self._base is None or self._base.base.key != context.base_key:
            if self._base is not None:
                self._base.release()
            self._base = SharedBase(context.base)
        return self._base

    def _new_context(self, stored: ProcessorView) -> JobContext:
        session, versions = self._session, self._schemas.versions
        before, self._lane_tables = self._lane_tables, self._following.lanes.tables
        if before is not self._lane_tables:
            self._tables = self._tables.changed(before - self._lane_tables, self._lane_tables - before)
        self._contexts += 1
        key = f"{session.node}/{self._id}/{self._life}/{self._contexts}"
        base = self._base.base if self._base is not None else None
        same = base is not None and base.schemas is versions.base and base.tables is self._tables.base
        return JobContext(
            key=key,
            base_key=base.key if base is not None and same else f"{key}/base",
            changefeed=self._id,
            life=self._life_of_feed,
            configuration=self._configuration.without_credentials(),
            info_key=session.layout.info(self._id),
            secret_files=allowed(),
            capture=self._capture,
            schemas=versions,
            tables=self._tables,
            fence=Fence(
                etcd=session.etcd,
                node_key=session.layout.node(session.node),
                epoch=session.store.epoch,
                status_key=session.layout.status(self._id),
                run=stored.orders.run,
            ),
        )

    def _renew_context(self) -> None:
        if self._shared is not None:
            self._retired.append(self._shared)
            self._shared = None

    def _retire_contexts(self) -> None:
        """Closes the contexts that no job uses. Closes none while a copy task is running."""
        if self._copies.tables_with_tasks:
            return
        used = {id(running.shared) for running in self._running.values()}
        used |= {id(self._look.shared)} if self._look is not None else set()
        for shared in [shared for shared in self._retired if id(shared) not in used]:
            self._retired.remove(shared)
            self._session.threads.submit(shared.close)

    def _take_finished(self, now: float) -> None:
        for number, running in list(self._running.items()):
            if running.future.done():
                del self._running[number]
                if running.spec.default and running.future.exception() is not None:
                    self._lane_attempt = self._session.attempts.new()
                self._take(number, running.future, now)

    def _take(self, number: int, future: Future[JobOutcome], now: float) -> None:
        of_a_task = False
        try:
            outcome, of_a_task = future.result(), True
        except SluiceError as error:
            self._log.warning("job_failed", job=number, code=error.code, error=str(error))
            outcome = JobOutcome(error=ErrorReport.of(error, datetime.now(UTC)))
        except Exception as error:  # noqa: BLE001 - the edge of the job's thread: the error is reported and the changefeed fails
            self._log.exception("job_failed", job=number)
            bug = InvariantError(f"a job failed with {type(error).__name__}: {redacted(str(error))}")
            outcome = JobOutcome(error=ErrorReport.of(bug, datetime.now(UTC)))
        if outcome.error is not None:
            self._log.warning("window_failed", job=number, code=outcome.error.code, error=outcome.error.message)
            blamed = self._blamed(outcome.error)
            self._following = job_ends.failed(self._following, number, blamed, now=now, of_a_task=of_a_task)
        else:
            self._repaired |= outcome.repaired
            options = self._configuration.pipeline
            limits = replace(
                self._session.windows,
                bytes=options.max_lag_batch,
                events=options.max_lag_events,
                seconds=options.max_lag_seconds,
            )
            slow_seconds = self._session.lanes.slow_seconds
            self._following = job_ends.succeeded(
                self._following, number, outcome, limits, now=now, slow_seconds=slow_seconds
            )
        self._following = self._following.counted(outcome)
        self._log_outcome(number, outcome)

    def _blamed(self, error: ErrorReport) -> ErrorReport:
        """Without the table, if the user wants such an error to stop the whole changefeed."""
        configuration = self._configuration
        rejected = error.code == RowRejected.code and configuration.when_rejected is OnRejected.STOP_CHANGEFEED
        diverged = error.code == Divergence.code and configuration.on_divergence is OnDivergence.FAIL
        return replace(error, table=None) if rejected or diverged else error

    def _log_outcome(self, number: int, outcome: JobOutcome) -> None:
        applied = {type.value: count for type, count in outcome.rows.tally.applied.items()}
        took = outcome.took.total_seconds()
        self._log.debug(
            "window_ended", job=number, applied=applied, took_seconds=took, skipped=outcome.rows.tally.skipped
        )
        if outcome.rows.unsettled:
            self._log.info("rows_wait_for_later_ones", job=number, tables=sorted(outcome.rows.unsettled))
        for sample in outcome.rows.samples:
            self._log.warning("row_deviated", job=number, row=sample)
        if outcome.rows.tally.repaired or outcome.rows.tally.rejected:
            self._log.warning(
                "rows_deviated", job=number, repaired=outcome.rows.tally.repaired, rejected=outcome.rows.tally.rejected
            )

    def _report(self, stored: ProcessorView, now: float) -> None:
        """Writes at most ten reports a second, besides those that a DDL waits for. A report that is held back makes a later tick due."""
        copies = self._copies
        report = self._following.report(stored.orders, copies.progress, copies.tables_with_tasks, now=now)
        report = replace(report, copying=copies.unfinished, copy_rate=copies.rate, late=self._watch.late)
        self._unreported = report != self._reported
        if not self._unreported:
            return
        arrived = self._following.arrived(stored.orders)
        if now < self._reported_at + _REPORT_EVERY and arrived.items() <= self._arrived.items():
            return
        self._reports.write(report, [CreateRevIs(self._session.layout.info(self._id), self._info_rev)])
        self._arrived = arrived
        self._reported, self._reported_at, self._unreported = report, now, False


def _changed_bases(
    before: Mapping[str, StoredRecord[TableSchema]], now: Mapping[str, StoredRecord[TableSchema]]
) -> list[TableSchema]:
    """As they were and as they are. A record that has not changed is the same object."""
    if before is now:
        return []
    pairs = zip(map(before.get, now), now.values(), strict=True)
    found: list[tuple[StoredRecord[TableSchema] | None, ...]] = [pair for pair in pairs if pair[0] is not pair[1]]
    if len(before) != len(now) - sum(was is None for was, _ in found):
        found += [(before[table], None) for table in before if table not in now]
    return [stored.record for pair in found for stored in pair if stored is not None]


def _held(stored: ProcessorView) -> Held:
    """What open DDLs hold. A create holds no table in the barrier, since no node has the table yet: its id comes from its record. Nor does a
    new UUID mean a table yet.
    """
    events = [record.event for record in stored.ddls() if record.open]
    names = [(event.type, name) for event in events for name in (event.table, event.renamed_to) if name is not None]
    tables = {event.id for event in events if event.id is not None} | stored.orders.barrier.held.keys()
    renewed = sorted((event for event in events if event.type is DdlType.NEW_UUID), key=lambda event: event.position)
    uuids = {new_uuid(event): event.id for event in renewed if event.id is not None}
    known_from = max(stored.patterns_since or stored.checkpoint, stored.checkpoint)
    return Held(
        tables=frozenset(tables | uuids.keys()),
        names=frozenset(name for _, name in names),
        unexplained=frozenset(name for type, name in names if type is DdlType.UNKNOWN),
        uuids=uuids,
        known_from=known_from,
    )


def _run_window(session: ProcessorSession, shared: SharedContext, spec: JobSpec, commits: Commits | None) -> JobOutcome:
    outcome = session.attempts.until_over(spec.attempt, lambda: session.jobs.run(shared, spec))
    if commits is not None and outcome.error is None:
        began_at = time.monotonic()
        commits.window(shared.context, spec, outcome)
        session.committed(ChangefeedId(shared.context.changefeed), timedelta(seconds=time.monotonic() - began_at))
    return outcome


def _run_look(session: ProcessorSession, shared: SharedContext) -> ErrorReport | None:
    try:
        return session.jobs.look(shared, session.attempts.new())
    except SluiceError as error:
        return ErrorReport.of(error, datetime.now(UTC))
    except Exception as error:  # noqa: BLE001 - the edge of the look's thread: the error is returned as a report
        _log.exception("look_failed")
        bug = InvariantError(f"a look failed with {type(error).__name__}: {redacted(str(error))}")
        return ErrorReport.of(bug, datetime.now(UTC))


def _run_copy(
    session: ProcessorSession,
    attempt: str,
    shared: SharedContext,
    steps: Sequence[CopyStep],
    commits: Commits | None,
) -> CopyAnswers:
    try:
        answers = session.attempts.until_over(attempt, lambda: session.jobs.copy(shared, steps, attempt))
        if commits is not None:
            commits.chunks(shared.context, steps, answers)
        return answers  # noqa: TRY300 - what commits raises is an answer, too
    except SluiceError as error:
        return [ErrorReport.of(error, datetime.now(UTC))]
    except Exception as error:  # noqa: BLE001 - the edge of the copy's thread: the error is returned as a report
        _log.exception("copy_steps_failed", steps=len(steps))
        bug = InvariantError(f"a copy step failed with {type(error).__name__}: {redacted(str(error))}")
        return [ErrorReport.of(bug, datetime.now(UTC))]
