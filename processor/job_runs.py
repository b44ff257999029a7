"""`JobRuns`: how one job of a changefeed runs in its thread, until nothing of it can write any more and all that it wrote counts.

**Attempts.** Spark reports a job as failed while its tasks may still be running: in an executor that was cut off, in a Python worker that outlives
its Spark task, or after the JVM died. Their node lives and their run goes on, so their permits would stay valid, and they could write after
the next attempt. So each attempt has a key of its own in etcd that revokes it, and its tasks look for that key whenever they look at etcd
(`TaskPermit`). The thread that runs the attempt goes on waiting:

    100.0  executor lost: the attempt's key is written, acknowledged at 100.1
           its task looked last at 100.05 and did not see the key: it may write until 110.05
    113.1  what it sent at 110.05 has arrived; the attempt has ended with its error, and the window is tried again as a replay

Until then the job counts as running in every respect: no other job has its tables, they are not released, and the run does not end. The
key lasts as long as the node's lease: a task that wakes up late must find it as long as it finds its node's key.

**Commits.** What tasks wrote into a sink that commits counts only after its commit:

    window    its receipts, with the range of each of its tables    then its checkpoint moves
    chunk     its receipts                                          then it is recorded as copied

A crash before the commit leaves files that nobody sees. A crash after it, before etcd knows, leaves a commit whose range is run again.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Protocol, TypeVar

import structlog

from changefeed.errors import InvariantError, RetryableError
from changefeed.event import RowTally
from changefeed.lifecycle import ErrorReport
from changefeed.position import Position
from changefeed.records.copy import CopiedChunk
from changefeed.records.node import NodeId
from changefeed.records.requests import ChangefeedId
from changefeed.table import TableId, TableName, TableSchema
from coordination import failpoint
from coordination.etcd.protocol import EtcdConfig, Put
from coordination.fenced import FencedStore
from coordination.layout import Layout
from coordination.task_fence import BUDGET
from processor.copy.steps import CopyAnswers, CopyChunk, CopyStep, ReadChunk
from processor.lanes.lane_plan import LaneLimits
from processor.lanes.windows import WindowLimits
from processor.spark.pipeline import SharedContext
from processor.task.job import JobContext, JobOutcome, JobSpec
from processor.task.window_task import report_of
from sink.receipt import Commit, Committer, CopyReceipt
from sink.sink import ARRIVES_WITHIN

_RETRY = timedelta(milliseconds=500)

T = TypeVar("T")

_log = structlog.get_logger()


class Jobs(Protocol):
    """Runs windows and copy steps: `Pipeline`. Its methods may be called from any thread."""

    def run(self, shared: SharedContext, spec: JobSpec) -> JobOutcome: ...

    def copy(self, shared: SharedContext, steps: Sequence[CopyStep], attempt: str) -> CopyAnswers: ...

    def look(self, shared: SharedContext, attempt: str) -> ErrorReport | None:
        """Whether a task reaches everything that the changefeed's windows need."""
        ...

    def cancel(self, shared: SharedContext, attempt: str) -> None:
        """Spark ends the attempt's tasks, and kills the Python workers that do not end by themselves."""
        ...


class JobFigures(Protocol):
    """Told what jobs have done: the node's metrics. Its methods may be called from any thread."""

    def window_done(self, changefeed: ChangefeedId, tally: RowTally, took: timedelta, *, failed: bool) -> None: ...
    def window_committed(self, changefeed: ChangefeedId, took: timedelta) -> None: ...
    def chunks_copied(self, changefeed: ChangefeedId, chunks: Sequence[CopiedChunk]) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSetup:
    """By what the jobs of a node are run, and in which portions."""

    jobs: Jobs
    windows: WindowLimits = field(default_factory=WindowLimits)
    lanes: LaneLimits = field(default_factory=LaneLimits)
    figures: JobFigures | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorSession:
    """Shared by all changefeeds of a node during one session."""

    store: FencedStore
    node: NodeId
    layout: Layout
    etcd: EtcdConfig
    setup: JobSetup
    attempts: Attempts
    threads: Executor
    wake: Callable[[], None]


class JobRuns:
    """For one changefeed on one node. In any thread."""

    def __init__(self, session: ProcessorSession, commits: Commits | None) -> None:
        self._jobs = session.setup.jobs
        self._figures = session.setup.figures
        self._attempts = session.attempts
        self.commits = commits

    def window(self, shared: SharedContext, spec: JobSpec) -> JobOutcome:
        outcome = self._attempts.until_over(spec.attempt, lambda: self._jobs.run(shared, spec))
        id, failed = shared.context.changefeed, outcome.error is not None
        if self._figures is not None:
            self._figures.window_done(id, outcome.rows.tally, outcome.took, failed=failed)
        if self.commits is not None and not failed:
            began_at = time.monotonic()
            self.commits.window(shared.context, spec, outcome)
            if self._figures is not None:
                self._figures.window_committed(id, timedelta(seconds=time.monotonic() - began_at))
        return outcome

    def look(self, shared: SharedContext) -> ErrorReport | None:
        try:
            return self._jobs.look(shared, self._attempts.new())
        except Exception as error:  # noqa: BLE001 - the edge of the look's thread: the error is returned as a report
            return report_of(error, "look_failed")

    def copy(self, shared: SharedContext, steps: Sequence[CopyStep], attempt: str) -> CopyAnswers:
        try:
            answers = self._attempts.until_over(attempt, lambda: self._jobs.copy(shared, steps, attempt))
            if self._figures is not None:
                chunks = [answer.copied for answer in answers if isinstance(answer, ReadChunk)]
                self._figures.chunks_copied(shared.context.changefeed, chunks)
            if self.commits is not None:
                self.commits.chunks(shared.context, steps, answers)
            return answers  # noqa: TRY300 - what commits raises is an answer, too
        except Exception as error:  # noqa: BLE001 - the edge of the copy's thread: the error is returned as a report
            return [report_of(error, "copy_steps_failed", steps=len(steps))]


@dataclass(slots=True, eq=False)
class Attempts:
    """The attempts of one node in one session. Thread-safe."""

    store: FencedStore
    layout: Layout
    node: NodeId
    lease: int
    over: threading.Event
    """The session has ended, and everything that it allowed with it. No thread waits for an attempt after that."""
    margin: timedelta = field(default=BUDGET + ARRIVES_WITHIN, kw_only=True)
    """How long writes of a task may still arrive after its attempt was revoked."""
    numbers: Iterator[int] = field(default_factory=partial(itertools.count, 1), init=False)

    def new(self) -> str:
        """The key of a new attempt. The key exists in etcd only if the attempt is lost."""
        return self.layout.revoked(self.node, next(self.numbers))

    def until_over(self, attempt: str, work: Callable[[], T]) -> T:
        """Runs `work`. Returns or raises once none of its tasks can write any more."""
        try:
            return work()
        except Exception as error:  # tasks return their own errors, so it does not say whether they have ended
            self._revoke(attempt, str(error))
            raise

    def _revoke(self, attempt: str, reason: str) -> None:
        _log.warning("attempt_revoked", attempt=attempt, node=self.node, reason=reason)
        while not self.over.is_set():
            try:
                self.store.settle()
                self.store.commit([Put(attempt, b"{}", self.lease)])
            except RetryableError as error:
                _log.warning("attempt_not_revoked_yet", attempt=attempt, error=str(error))
                self.over.wait(_RETRY.total_seconds())
            else:
                self.over.wait(self.margin.total_seconds())
                return


class Commits:
    """For one changefeed on one node. In any thread."""

    def __init__(self, committer: Committer, *, every_seconds: float) -> None:
        """`every_seconds`: how often the windows of tables that follow begin."""
        self._committer = committer
        self.every_seconds = every_seconds

    @property
    def committed(self) -> Mapping[int, int]:
        return self._committer.committed

    def window(self, context: JobContext, spec: JobSpec, outcome: JobOutcome) -> None:
        """The outcome has no error."""
        whole = spec.whole(context.tables)
        job = whole if outcome.ended is None else whole.cut(outcome.ended)
        ranges = {table: window for table in (*job.tables, *job.own_windows) if (window := job.of(table)) is not None}
        tables = _described(context, ((table, window.start) for table, window in ranges.items()))
        failpoint.reach("window_committing", context.changefeed)
        self._committer.commit(Commit(ranges=ranges, files=tuple(outcome.rows.receipts), tables=tables))
        failpoint.reach("window_committed", context.changefeed)

    def chunks(self, context: JobContext, steps: Sequence[CopyStep], answers: CopyAnswers) -> None:
        copies: list[CopyReceipt] = []
        for step, answer in zip(steps, answers, strict=False):
            if isinstance(step, CopyChunk) and isinstance(answer, ReadChunk):
                assert answer.read_after is not None
                copies.append(
                    CopyReceipt(
                        table=step.schema.id,
                        start=step.copied_from,
                        after=answer.read_after,
                        until=answer.copied.until,
                        files=answer.receipts,
                    )
                )
        if copies:
            failpoint.reach("chunks_committing", context.changefeed)
            self._committer.commit(Commit(ranges={}, copies=tuple(copies)))
            failpoint.reach("chunks_committed", context.changefeed)


def _described(
    context: JobContext, places: Iterable[tuple[TableId, Position]]
) -> tuple[tuple[TableSchema, TableName], ...]:
    route = context.configuration.routes.target
    described: list[tuple[TableSchema, TableName]] = []
    for table, at in places:
        schema = context.schemas.at(table, at)
        if schema is None:
            raise InvariantError(f"table {table} at {at}: expected the schema store to know it, observed no such table")
        described.append((schema, route(schema.name)))
    return tuple(described)
