"""`JobWatch`: carries out what `overdue.py` decides about the running jobs of one changefeed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain, islice
from typing import Any, Protocol

from changefeed.lifecycle import ErrorReport
from changefeed.table import TableId, TableName
from processor.copy.steps import CopyAnswers, CopyStep, IndexTable
from processor.following import Following, Orders
from processor.lanes.lanes import Lanes
from processor.overdue import COPY_SECONDS, MOST_REPORTED, WINDOW_SECONDS, Overdue, RunningJob, late_reports
from processor.spark.pipeline import SharedContext
from processor.task.job import JobOutcome, JobSpec
from schema_store.versions import SchemaVersions


class Cancels(Protocol):
    def cancel(self, shared: SharedContext, spec: JobSpec) -> None: ...
    def cancel_copy(self, shared: SharedContext, attempt: str) -> None: ...


@dataclass(slots=True)
class RunningWindow:
    spec: JobSpec
    shared: SharedContext
    future: Future[JobOutcome]
    begun_at: float


@dataclass(slots=True)
class RunningCopy:
    attempt: str
    steps: Sequence[CopyStep]
    shared: SharedContext
    future: Future[CopyAnswers]
    begun_at: float

    @property
    def indexes(self) -> bool:
        return any(isinstance(step, IndexTable) for step in self.steps)


class JobWatch:
    """For the processor's thread."""

    def __init__(self, jobs: Cancels, log: Any) -> None:
        self._jobs = jobs
        self._log = log
        self._overdue = Overdue()
        self._late: dict[str, Mapping[TableId, ErrorReport]] = {}
        """By the attempts of the jobs that take long."""

    @property
    def next_at(self) -> float:
        return self._overdue.next_at

    @property
    def late(self) -> Mapping[TableId, ErrorReport]:
        """Some of the tables whose jobs take long."""
        told = chain.from_iterable(told.items() for told in self._late.values())
        return dict(islice(told, MOST_REPORTED))

    def look(
        self,
        running: Iterable[RunningWindow],
        copying: Iterable[RunningCopy],
        following: Following,
        orders: Orders,
        versions: SchemaVersions,
        now: float,
    ) -> None:
        """A job that is cancelled here ends with an error, once nothing of it can write any more."""
        windows = {window.spec.attempt: window for window in running if not window.future.done()}
        copies = {copy.attempt: copy for copy in copying if not copy.future.done() and not copy.indexes}
        jobs = [_window_job(window, following, orders, now) for window in windows.values()]
        jobs += [_copy_job(copy, following, orders) for copy in copies.values()]
        self._overdue = self._overdue.next(jobs, now)
        for attempt in sorted(self._overdue.to_cancel):
            self._log.warning("job_cancelled", attempt=attempt, reason="it is not wanted any more, and does not end")
            if attempt in windows:
                self._jobs.cancel(windows[attempt].shared, windows[attempt].spec)
            else:
                self._jobs.cancel_copy(copies[attempt].shared, attempt)
        self._late = {attempt: told for attempt, told in self._late.items() if attempt in self._overdue.late}
        for attempt in sorted(self._overdue.late - self._late.keys()):
            if attempt in windows:
                names = _names_in(windows[attempt], following.lanes, versions)
                self._tell(attempt, "a window", WINDOW_SECONDS, names)
            else:
                names = {step.schema.id: step.schema.name for step in copies[attempt].steps}
                self._tell(attempt, "a step of the copy", COPY_SECONDS, names)

    def _tell(self, attempt: str, what: str, seconds: float, names: Mapping[TableId, TableName]) -> None:
        self._late[attempt] = late_reports(what, seconds, names, datetime.now(UTC))
        for error in islice(self._late[attempt].values(), 1):
            self._log.warning("job_overdue", attempt=attempt, error=error.message)


def _window_job(window: RunningWindow, following: Following, orders: Orders, now: float) -> RunningJob:
    job = RunningJob(
        attempt=window.spec.attempt,
        begun_at=window.begun_at,
        patience=WINDOW_SECONDS,
        wanted=following.wanted(orders),
    )
    return replace(job, in_the_way=job.late(now) and following.in_the_way(orders, window.spec.job.number))


def _copy_job(copy: RunningCopy, following: Following, orders: Orders) -> RunningJob:
    leaving = following.lanes.leaving | orders.stops.keys()
    return RunningJob(
        attempt=copy.attempt,
        begun_at=copy.begun_at,
        patience=COPY_SECONDS,
        wanted=following.wanted(orders),
        in_the_way=any(step.schema.id in leaving for step in copy.steps),
    )


def _names_in(window: RunningWindow, lanes: Lanes, versions: SchemaVersions) -> Mapping[TableId, TableName]:
    job = next(job for job in lanes.running if job.number == window.spec.job.number)
    tables = sorted(table for table in lanes.tables & (job.tables | job.own_windows.keys()) if job.of(table))
    found = ((table, versions.at(table, lanes.checkpoint_of(table))) for table in tables)
    return {table: schema.name for table, schema in found if schema is not None}
