"""`RunningJobs`: the windows, the copy tasks and the look of one changefeed that are running; carries out what `overdue.py` decides about them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain, islice
from typing import Any, TypeVar

from changefeed.lifecycle import ErrorReport
from changefeed.table import TableId, TableName
from processor.copy.steps import CopyAnswers, CopyStep, IndexTable
from processor.following import Following, Orders
from processor.job_runs import JobRuns, ProcessorSession
from processor.lanes.lanes import Lanes
from processor.overdue import COPY_SECONDS, MOST_REPORTED, WINDOW_SECONDS, Overdue, RunningJob, late_reports
from processor.spark.pipeline import SharedContext
from processor.task.job import JobOutcome, JobSpec
from processor.task.window_task import report_of
from schema_store.versions import SchemaVersions

T = TypeVar("T")


@dataclass(slots=True)
class RunningTask:
    """A window, if it has a `spec`, or steps of copies."""

    shared: SharedContext
    future: Future[Any]
    begun_at: float
    spec: JobSpec | None = None
    steps: Sequence[CopyStep] = ()

    @property
    def watched(self) -> bool:
        """Not one that builds indexes."""
        return not self.future.done() and not any(isinstance(step, IndexTable) for step in self.steps)

    @property
    def patience(self) -> float:
        return WINDOW_SECONDS if self.spec is not None else COPY_SECONDS


@dataclass(frozen=True, slots=True)
class EndedWindow:
    number: int
    outcome: JobOutcome
    of_a_task: bool
    """Its error, if any, comes from its tasks, not from this process or from Spark."""


class RunningJobs:
    """For the processor's thread."""

    def __init__(self, session: ProcessorSession, runs: JobRuns, log: Any) -> None:
        self._session = session
        self._log = log
        self.runs = runs
        self._lane_attempt = session.attempts.new()
        """Shared by the default lane's windows. They run one after another, so at most one window of the attempt is ever running."""
        self._running: dict[str, RunningTask] = {}
        """By their attempts."""
        self._look: tuple[SharedContext, Future[ErrorReport | None]] | None = None
        """The task that finds out whether an error is over."""
        self._overdue = Overdue()
        self._late: dict[str, Mapping[TableId, ErrorReport]] = {}
        """By the attempts of the jobs that take long."""

    def attempt(self, *, default: bool) -> str:
        return self._lane_attempt if default else self._session.attempts.new()

    def begin_window(self, spec: JobSpec, shared: SharedContext) -> None:
        future = self._submitted(self.runs.window, shared, spec)
        self._running[spec.attempt] = RunningTask(shared, future, time.monotonic(), spec=spec)

    def begin_copy(self, steps: Sequence[CopyStep], shared: SharedContext) -> Future[CopyAnswers]:
        attempt = self._session.attempts.new()
        future = self._submitted(self.runs.copy, shared, steps, attempt)
        self._running[attempt] = RunningTask(shared, future, time.monotonic(), steps=steps)
        return future

    def begin_look(self, shared: SharedContext) -> None:
        self._look = shared, self._submitted(self.runs.look, shared)

    def _submitted(self, run: Callable[..., T], *inputs: object) -> Future[T]:
        future = self._session.threads.submit(run, *inputs)
        future.add_done_callback(lambda _: self._session.wake())
        return future

    @property
    def looks(self) -> bool:
        return self._look is not None

    @property
    def has_finished(self) -> bool:
        """Whether a window or the look has ended and waits to be taken."""
        look = self._look is not None and self._look[1].done()
        return look or any(task.spec is not None and task.future.done() for task in self._running.values())

    @property
    def has_running(self) -> bool:
        """Whether a window or a copy is still running."""
        return any(not task.future.done() for task in self._running.values())

    def used(self) -> list[SharedContext]:
        looks = [self._look[0]] if self._look is not None else []
        return [task.shared for task in self._running.values()] + looks

    def take_look(self) -> Future[ErrorReport | None] | None:
        """The look, if it has ended."""
        if self._look is None or not self._look[1].done():
            return None
        _, look = self._look
        self._look = None
        return look

    def take_windows(self) -> Iterator[EndedWindow]:
        """The windows that have ended."""
        for attempt, task in list(self._running.items()):
            if task.spec is not None and task.future.done():
                del self._running[attempt]
                if task.spec.default and task.future.exception() is not None:
                    self._lane_attempt = self._session.attempts.new()
                ended = self._ended(task.spec.job.number, task.future)
                self._tell_of(ended)
                yield ended

    def _ended(self, number: int, future: Future[JobOutcome]) -> EndedWindow:
        try:
            return EndedWindow(number, future.result(), of_a_task=True)
        except Exception as error:  # noqa: BLE001 - the edge of the job's thread: the error is reported and the changefeed fails
            report = report_of(error, "job_failed", job=number)
            return EndedWindow(number, JobOutcome(error=report), of_a_task=False)

    def _tell_of(self, ended: EndedWindow) -> None:
        number, outcome, log = ended.number, ended.outcome, self._log
        if outcome.error is not None:
            log.warning("window_failed", job=number, code=outcome.error.code, error=outcome.error.message)
        rows, tally = outcome.rows, outcome.rows.tally
        applied = {type.value: count for type, count in tally.applied.items()}
        took = outcome.took.total_seconds()
        log.debug("window_ended", job=number, applied=applied, took_seconds=took, skipped=tally.skipped)
        if rows.unsettled:
            log.info("rows_wait_for_later_ones", job=number, tables=sorted(rows.unsettled))
        for sample in rows.samples:
            log.warning("row_deviated", job=number, row=sample)
        if tally.repaired or tally.rejected:
            log.warning("rows_deviated", job=number, repaired=tally.repaired, rejected=tally.rejected)

    def cancel(self) -> None:
        """Asks Spark to end the running jobs. Does not wait for them."""
        for attempt, task in self._running.items():
            if task.watched:
                self._session.setup.jobs.cancel(task.shared, attempt)

    @property
    def next_at(self) -> float:
        """When a job becomes overdue."""
        return self._overdue.next_at

    @property
    def late(self) -> Mapping[TableId, ErrorReport]:
        """Some of the tables whose jobs take long."""
        told = chain.from_iterable(told.items() for told in self._late.values())
        return dict(islice(told, MOST_REPORTED))

    def watch(self, following: Following, orders: Orders, versions: SchemaVersions, now: float) -> None:
        """A job that is cancelled here ends with an error, once nothing of it can write any more."""
        self._running = {
            attempt: task for attempt, task in self._running.items() if task.spec is not None or not task.future.done()
        }
        tasks = {attempt: task for attempt, task in self._running.items() if task.watched}
        jobs = [_running_job(attempt, task, following, orders, now) for attempt, task in tasks.items()]
        self._overdue = self._overdue.next(jobs, now)
        for attempt in sorted(self._overdue.to_cancel):
            self._log.warning("job_cancelled", attempt=attempt, reason="it is not wanted any more, and does not end")
            self._session.setup.jobs.cancel(tasks[attempt].shared, attempt)
        self._late = {attempt: told for attempt, told in self._late.items() if attempt in self._overdue.late}
        for attempt in sorted(self._overdue.late - self._late.keys()):
            task = tasks[attempt]
            what, names = "a step of the copy", {step.schema.id: step.schema.name for step in task.steps}
            if task.spec is not None:
                what, names = "a window", _names_in(task.spec, following.lanes, versions)
            self._late[attempt] = late_reports(what, task.patience, names, datetime.now(UTC))
            for error in islice(self._late[attempt].values(), 1):
                self._log.warning("job_overdue", attempt=attempt, error=error.message)


def _running_job(attempt: str, task: RunningTask, following: Following, orders: Orders, now: float) -> RunningJob:
    wanted = following.wanted(orders)
    job = RunningJob(attempt=attempt, begun_at=task.begun_at, patience=task.patience, wanted=wanted)
    if not job.late(now):
        return job
    leaving = following.lanes.leaving | orders.stops.keys()
    copies = any(step.schema.id in leaving for step in task.steps)
    window = task.spec is not None and following.in_the_way(orders, task.spec.job.number)
    return replace(job, in_the_way=copies or window)


def _names_in(spec: JobSpec, lanes: Lanes, versions: SchemaVersions) -> dict[TableId, TableName]:
    job = lanes.job(spec.job.number)
    tables = sorted(table for table in lanes.tables & (job.tables | job.own_windows.keys()) if job.of(table))
    found = ((table, versions.at(table, lanes.checkpoint_of(table))) for table in tables)
    return {table: schema.name for table, schema in found if schema is not None}
