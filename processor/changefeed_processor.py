"""`ChangefeedProcessor`: carries out the decisions for one changefeed, on one node, during one session.

A tick takes a view of etcd, collects the outcomes of finished jobs, decides, starts jobs in worker threads, and reports. It never
waits for the source, the sink or Spark.

The order matters: a job's outcome says that its window is durable. Only then do the checkpoints of its tables move, and only then
are they reported. A failed job moves nothing.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

import structlog

from changefeed.config.configuration import OnDivergence, OnRejected
from changefeed.errors import ConflictError, Divergence, FencedError, RetryableError, RowRejected, SluiceError
from changefeed.event import DdlType
from changefeed.lifecycle import ErrorReport
from changefeed.position import Position
from changefeed.records.requests import ChangefeedId, RepairRequest
from changefeed.table import TableId
from coordination.etcd.protocol import CreateRevIs, Delete
from coordination.view import View
from processor import job_ends
from processor.copy.steps import CopyAnswers, CopyChunk, CopyStep
from processor.copy.table_copies import TableCopies
from processor.etcd_view import ProcessorView
from processor.followed_schemas import FollowedSchemas
from processor.following import Following, Orders
from processor.job_contexts import JobContexts
from processor.job_runs import Commits, JobRuns, ProcessorSession
from processor.lanes.apart_lane import SlowLane
from processor.lanes.lane_plan import unhurried
from processor.lanes.lanes import LaneJob, Lanes
from processor.lanes.windows import WindowLimits
from processor.node_reports import NodeReports
from processor.rate import LimitShares
from processor.running_jobs import RunningJobs
from processor.spark.pipeline import SharedContext
from processor.task.job import Held, JobSpec
from schema_store.definition import later_uuids
from sink.opening import open_sink
from sink.sink import Sink

_log = structlog.get_logger()


class ChangefeedProcessor:
    """For the processor's thread only. A changefeed that is restarted or created again gets a new one."""

    def __init__(self, id: ChangefeedId, stored: ProcessorView, session: ProcessorSession) -> None:
        self._id = id
        self._life = stored.orders.life
        self._configuration = stored.configuration
        self._capture = stored.capture
        self._session = session
        self._info_rev = stored.info_rev
        self._last_commit_began = float("-inf")
        self._waits_until: float | None = None
        self._log = _log.bind(changefeed=id, node=session.node)
        self._orders = stored.orders
        self._following = Following(lanes=Lanes.empty(stored.orders.barrier.position))
        life = f"{session.layout.cluster}/{stored.info_rev}"
        sink = open_sink(self._configuration, life=life)
        self._copies = TableCopies(id, session.layout, session.setup.lanes, apart=sink.every_change)
        self._copies_written = False
        self._schemas = FollowedSchemas()
        self._contexts = JobContexts(id, life, session)
        self._jobs = RunningJobs(session, JobRuns(session, self._open_commits(sink)), self._log)
        self._repaired: set[str] = set()
        """The repair requests that were carried out, as long as they are in etcd."""
        self._reports = NodeReports(session.store, session.layout, id, session.node)

    def _open_commits(self, sink: Sink) -> Commits | None:
        if sink.commit_seconds is None:
            return None
        return Commits(sink.committer(self._session.store.epoch), every_seconds=sink.commit_seconds)

    def serves(self, stored: ProcessorView) -> bool:
        """False once the changefeed was restarted or created again: state from before does not count for it."""
        return stored.orders.life == self._life

    def wound_up(self) -> bool:
        """Cancels the running jobs. Returns whether all jobs and copy tasks have ended."""
        self.cancel()
        return not self._jobs.has_running

    def due_at(self, now: float) -> float:
        """When a tick is needed although nothing changes in etcd."""
        if self._reports.unwritten or self._copies_written or self._copies.has_finished or self._jobs.has_finished:
            return now
        if not self._jobs.looks and self._following.may_look(self._orders, now=now):
            return now
        moments = (self._following.retry_at, self._waits_until, self._jobs.next_at)
        return min((at for at in moments if at is not None), default=float("inf"))

    def cancel(self) -> None:
        """Asks Spark to end the running jobs. Does not wait for them."""
        self._jobs.cancel()

    def tick(self, view: View, stored: ProcessorView) -> None:
        """Raises errors that concern the whole session: fencing and etcd. Errors of the changefeed itself are reported."""
        now = time.monotonic()
        self._take_finished(stored.orders, now)
        try:
            self._go_on(view, stored, now)
        except (FencedError, RetryableError, ConflictError):
            raise
        except SluiceError as error:
            self._log.exception("changefeed_cannot_go_on", code=error.code)
            report = ErrorReport.of(error, datetime.now(UTC))
            self._following = self._following.with_error(report, now=now)
        self._jobs.watch(self._following, self._orders, self._schemas.versions, now)
        if not self._copies.tables_with_tasks:
            self._contexts.retire(self._jobs.used())
        self._report(stored, now)

    def _go_on(self, view: View, stored: ProcessorView, now: float) -> None:
        self._orders = stored.orders
        if self._schemas.follow(stored):
            self._contexts.renew()
        if (stored.configuration, stored.capture) != (self._configuration, self._capture):
            self._configuration, self._capture = stored.configuration, stored.capture
            self._contexts.renew()
            if (commits := self._jobs.runs.commits) is not None:
                commits.every_seconds = open_sink(self._configuration).commit_seconds or commits.every_seconds
        self._following = self._following.follow(stored.orders, self._copies.tables_with_tasks)
        if stored.repairs:
            self._answer_repairs(stored)
        limits = self._tick_copies(view, stored, now)
        self._following = self._following.rested(now)
        ended = self._schemas.ended(self._following.lanes)
        self._begin_jobs(stored, now, {**limits, **ended})
        if not self._jobs.looks and self._following.may_look(stored.orders, now=now):
            self._jobs.begin_look(self._context_for(stored))

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
        shared = self._context_for(stored)
        if stored.configuration.copy_limit is not None:
            share = self._shares(stored).copy
            steps = [replace(step, limit_share=share) if isinstance(step, CopyChunk) else step for step in steps]
        return self._jobs.begin_copy(steps, shared)

    def _begin_jobs(self, stored: ProcessorView, now: float, limits: Mapping[TableId, Position]) -> None:
        jobs = self._following.next_jobs(stored.orders, self._session.setup.lanes, now=now, copying=limits)
        jobs = self._paced(jobs, stored, now)
        if not jobs:
            return
        held, limited = _held(stored), stored.configuration.apply_limit is not None
        share = self._shares(stored).apply if limited else 1.0
        for job in jobs:
            self._following = self._following.begun(job, now=now)
            named = {table for table in job.own_windows if job.of(table)}
            copied = self._copies.ranges(named)
            lane = self._following.lanes.lane_of(job)
            pace = lane.pace if lane is not None else self._following.paces.of(job)
            sink = lane.sink if isinstance(lane, SlowLane) else None
            spec = JobSpec(
                attempt=self._jobs.attempt(default=bool(job.tables)),
                job=replace(job, tables=frozenset()),
                default=bool(job.tables),
                held=held,
                copied=copied,
                density=pace.density,
                repairs=self._repairs_in(job, stored),
                alone=limited or lane is not None,
                history=stored.orders.barrier.history,
                limit_share=share,
                sink_share=sink.share if sink is not None else 1.0,
                settled=sink is not None and sink.settled,
            )
            self._jobs.begin_window(spec, self._context_for(stored, default=bool(job.tables)))

    def _paced(self, jobs: list[LaneJob], stored: ProcessorView, now: float) -> list[LaneJob]:
        """Without the jobs that wait for the sink's commit interval."""
        self._waits_until = None
        commits = self._jobs.runs.commits
        if commits is None or not jobs:
            return jobs
        barrier, target = stored.orders.barrier, stored.configuration.target
        waiting = [job for job in jobs if unhurried(job, barrier, target)]
        due_at = self._last_commit_began + commits.every_seconds
        if waiting and now < due_at:
            self._waits_until = due_at
            return [job for job in jobs if job not in waiting]
        self._last_commit_began = now if waiting else self._last_commit_began
        return jobs

    def _repairs_in(self, job: LaneJob, stored: ProcessorView) -> Mapping[TableId, RepairRequest]:
        requests = {TableId(table): request.record for table, request in stored.repairs.items()}
        return {
            table: request for table, request in requests.items() if job.of(table) and request.id not in self._repaired
        }

    def _answer_repairs(self, stored: ProcessorView) -> None:
        """A repair that is carried out again changes nothing, so its request may be deleted late."""
        requests = {table: request.record.id for table, request in stored.repairs.items()}
        self._repaired &= set(requests.values())
        done = [table for table, request in requests.items() if request in self._repaired]
        keys = [self._session.layout.repair(self._id, TableId(table)) for table in done]
        self._session.store.commit_in_parts([Delete(key) for key in keys])

    def _context_for(self, stored: ProcessorView, *, default: bool = False) -> SharedContext:
        return self._contexts.of(stored, self._schemas.versions, self._following.lanes.tables, default=default)

    def _take_finished(self, orders: Orders, now: float) -> None:
        if (look := self._jobs.take_look()) is not None:
            self._following = self._following.looked(orders, look.result(), now=now)
        for ended in self._jobs.take_windows():
            outcome, number = ended.outcome, ended.number
            if outcome.error is not None:
                error, of_a_task = self._blamed(outcome.error), ended.of_a_task
                self._following = job_ends.failed(self._following, number, error, now=now, of_a_task=of_a_task)
            else:
                self._repaired |= outcome.repaired
                slow_seconds = self._session.setup.lanes.slow_seconds
                self._following = job_ends.succeeded(
                    self._following, number, outcome, self._window_limits(), now=now, slow_seconds=slow_seconds
                )
            self._following = self._following.counted(outcome)

    def _window_limits(self) -> WindowLimits:
        options = self._configuration.pipeline
        return replace(
            self._session.setup.windows,
            bytes=options.max_lag_batch,
            events=options.max_lag_events,
            seconds=options.max_lag_seconds,
        )

    def _blamed(self, error: ErrorReport) -> ErrorReport:
        """Without the table, if the user wants such an error to stop the whole changefeed."""
        configuration = self._configuration
        rejected = error.code == RowRejected.code and configuration.when_rejected is OnRejected.STOP_CHANGEFEED
        diverged = error.code == Divergence.code and configuration.on_divergence is OnDivergence.FAIL
        return replace(error, table=None) if rejected or diverged else error

    def _report(self, stored: ProcessorView, now: float) -> None:
        copies, following, orders = self._copies, self._following, stored.orders
        report = following.report(orders, copies.known.progress, copies.tables_with_tasks, now=now)
        report = replace(report, copying=copies.known.unfinished, copy_rate=copies.known.rate, late=self._jobs.late)
        if (commits := self._jobs.runs.commits) is not None:
            report = replace(report, committed=commits.committed)
        unchanged = CreateRevIs(self._session.layout.info(self._id), self._info_rev)
        self._reports.report(report, following.arrived(orders), [unchanged], now)


def _held(stored: ProcessorView) -> Held:
    """What open DDLs hold. A create holds no table in the barrier, since no node has the table yet: its id comes from its record. Nor does a
    new UUID mean a table yet, nor one that a table had when it left the filter, and with which it comes back.
    """
    events = sorted((record.event for record in stored.ddls() if record.open), key=lambda event: event.position)
    names = [(event.type, name) for event in events for name in (event.table, event.renamed_to) if name is not None]
    tables = {event.id for event in events if event.id is not None} | stored.orders.barrier.held.keys()
    uuids = {uuid: event.id for event in events if event.id is not None for uuid in later_uuids(event)}
    known_from = max(stored.patterns_since or stored.checkpoint, stored.checkpoint)
    return Held(
        tables=frozenset(tables | uuids.keys()),
        names=frozenset(name for _, name in names),
        unexplained=frozenset(name for type, name in names if type is DdlType.UNKNOWN),
        uuids=uuids,
        known_from=known_from,
    )
