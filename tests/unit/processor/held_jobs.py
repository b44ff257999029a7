"""`Cluster`: one changefeed's processor over an in-memory etcd, with jobs that answer when the test tells them to (`HeldJobs`)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from changefeed.cluster_time import ClusterTime
from changefeed.config.configuration import Configuration
from changefeed.event import DdlEvent, DdlType
from changefeed.lifecycle import ErrorReport
from changefeed.position import Position
from changefeed.records.ddl import Barrier, DdlRecord, DdlState, Scope
from changefeed.records.node import AssignedTable, Assignment, NodeId, PositionReport
from changefeed.records.requests import ChangefeedId, ChangefeedInfo
from changefeed.records.status import ChangefeedStatus
from changefeed.table import TableId, TableName, TableSchema
from coordination.decoded import Decoded
from coordination.etcd.protocol import EtcdConfig, Put
from coordination.fenced import FencedStore
from coordination.layout import Layout, encode
from coordination.mirror import Mirror
from coordination.parts import assignment_puts
from coordination.view import View
from processor import etcd_view
from processor.changefeed_processor import ChangefeedProcessor
from processor.copy.steps import CopyAnswer, CopyAnswers, CopyStep
from processor.job_runs import Attempts, JobFigures, JobSetup, ProcessorSession
from processor.lanes.lane_plan import LaneLimits
from processor.lanes.windows import WindowLimits
from processor.spark.pipeline import SharedContext
from processor.task.job import JobOutcome, JobSpec
from tests.joined import join_assignment, join_report
from tests.memory_etcd import MemoryEtcd

LAYOUT, FEED, NODE = Layout("test"), ChangefeedId("f"), NodeId("n1")
A, B = TableId("aa" * 16), TableId("bb" * 16)


def at(seconds: int) -> Position:
    return Position(ClusterTime(seconds, 0))


class HeldJobs(Executor):
    """Replaces both the threads and their work: each call waits until the test lets it run."""

    def __init__(self) -> None:
        self.specs: list[JobSpec] = []
        self.contexts: list[SharedContext] = []
        self.copies: list[Sequence[CopyStep]] = []
        """The steps of each task."""
        self.answer: JobOutcome = JobOutcome()
        self.copy_answer: CopyAnswer | ErrorReport = None
        self.copy_answers: CopyAnswers | None = None
        self.attempts: list[str] = []
        """Of copies."""
        self.cancelled: list[str] = []
        """The attempts."""
        self.looks = 0
        self.unreached: ErrorReport | None = None
        self._calls: list[tuple[Future[Any], Callable[..., Any], tuple[Any, ...]]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self._calls.append((future, fn, args))
        return future

    def let_run(self) -> None:
        calls, self._calls = self._calls, []
        for future, fn, args in calls:
            future.set_result(fn(*args))

    def run(self, shared: SharedContext, spec: JobSpec) -> JobOutcome:
        self.specs.append(spec)
        self.contexts.append(shared)
        return self.answer

    def copy(self, shared: SharedContext, steps: Sequence[CopyStep], attempt: str) -> CopyAnswers:
        self.copies.append(steps)
        self.attempts.append(attempt)
        if self.copy_answers is None:
            return [self.copy_answer for _ in steps]
        answers, self.copy_answers = self.copy_answers, None
        return answers

    @property
    def steps(self) -> list[CopyStep]:
        return [step for steps in self.copies for step in steps]

    def look(self, shared: SharedContext, attempt: str) -> ErrorReport | None:
        self.looks += 1
        return self.unreached

    def cancel(self, shared: SharedContext, attempt: str) -> None:
        self.cancelled.append(attempt)


class Cluster:
    def __init__(
        self,
        *,
        copy: bool = False,
        sink: str = "mongodb://b",
        figures: JobFigures | None = None,
        **configuration: Any,
    ) -> None:
        self._figures = figures
        self.server = MemoryEtcd()
        self.lease = lease = self.server.grant(timedelta(seconds=10)).id
        self.over = threading.Event()
        epoch = self.server.txn([], [Put(LAYOUT.node(NODE), b"{}", lease)]).revision
        self.store = FencedStore(self.server.connect(), key=LAYOUT.node(NODE), epoch=epoch)
        self.jobs = HeldJobs()
        self._mirror = Mirror(self.server.connect(), LAYOUT.root)
        self._reader = Decoded(LAYOUT)
        fields = {"id": "f", "source": "mongodb://a", "sink": sink, **configuration}
        info = ChangefeedInfo(configuration=Configuration.parse(fields), created_at=datetime.now(UTC))
        status = ChangefeedStatus(checkpoint=at(100), resolved=at(100), run=1, info_version=1, epoch=1)
        schema = TableSchema(id=A, name=TableName("s", "a"), valid_from=at(100))
        self.put(LAYOUT.info(FEED), info)
        self.put(LAYOUT.status(FEED), status)
        self.put(LAYOUT.schema(FEED, A), schema)
        self.barrier(100)
        self.assign(copy=copy)
        self._node: ChangefeedProcessor | None = None

    def put(self, key: str, record: object) -> None:
        self.server.txn([], [Put(key, encode(record))])

    def barrier(self, seconds: int, held: Mapping[TableId, Position] | None = None) -> None:
        self.put(LAYOUT.barrier(FEED), Barrier(epoch=1, position=at(seconds), held=held or {}))

    def drop(self, seconds: int, state: DdlState, table: TableId = A) -> None:
        """The record of a table's drop, with the resulting barrier."""
        name = TableName("s", {A: "a", B: "b"}[table])
        event = DdlEvent(position=at(seconds), type=DdlType.DROP, db="s", table=name, id=table)
        record = DdlRecord(
            event=event,
            scope=Scope(tables=frozenset({table}), ended=frozenset({table})),
            state=state,
            seen_at=datetime.now(UTC),
        )
        self.put(LAYOUT.ddl(FEED, event.position), record)
        self.barrier(seconds + 10, {table: at(seconds)} if record.open else None)

    def assign(self, *tables: TableId, copy: bool = False, leaving: bool = False) -> None:
        group = LAYOUT.assignment(FEED, NODE)
        before, _ = join_assignment(self.server.range(group).items)
        assigned = {table: AssignedTable(start=at(100), copy=copy) for table in tables or (A,)}
        after = Assignment(tables=assigned, leaving=frozenset(assigned if leaving else ()))
        self.server.txn([], assignment_puts(group, before, after))

    def give_up(self) -> None:
        group = LAYOUT.assignment(FEED, NODE)
        before, _ = join_assignment(self.server.range(group).items)
        self.server.txn([], assignment_puts(group, before, Assignment()))

    def tick(self, *, reported_ago: float = float("inf")) -> None:
        view, known = self.look()
        if self._node is None:
            self._node = ChangefeedProcessor(FEED, known, self._surroundings())
        self.step(view, known, reported_ago=reported_ago)

    def step(self, view: View, known: etcd_view.ProcessorView, *, reported_ago: float = float("inf")) -> None:
        """`reported_ago`: so many seconds."""
        assert self._node is not None
        self._node._reports._reported_at = time.monotonic() - reported_ago
        self._node.tick(view, known)

    def later(self, seconds: float) -> None:
        """What is running, and not wanted, is older by that; then a tick."""
        node = self._node
        assert node is not None
        jobs = node._jobs
        for task in jobs._running.values():
            task.begun_at -= seconds
        overdue = jobs._overdue
        since = {attempt: at - seconds for attempt, at in overdue.unwanted_since.items()}
        jobs._overdue = replace(overdue, unwanted_since=since)
        self.tick()

    def look(self) -> tuple[View, etcd_view.ProcessorView]:
        while self._mirror.poll(timedelta()):
            pass
        view = self._mirror.view()
        known = etcd_view.read(self._reader, view, LAYOUT, FEED, NODE)
        assert known is not None
        return view, known

    def _surroundings(self) -> ProcessorSession:
        return ProcessorSession(
            store=self.store,
            node=NODE,
            layout=LAYOUT,
            etcd=EtcdConfig(),
            setup=JobSetup(jobs=self.jobs, windows=WindowLimits(), lanes=LaneLimits(), figures=self._figures),
            attempts=Attempts(self.store, LAYOUT, NODE, self.lease, self.over, margin=timedelta()),
            threads=self.jobs,
            wake=lambda: None,
        )

    @property
    def report(self) -> PositionReport | None:
        main = self.server.get(LAYOUT.position(FEED, NODE))
        return join_report([main, *self.server.range(f"{LAYOUT.position(FEED, NODE)}/").items]) if main else None

    @property
    def checkpoint(self) -> int:
        assert self.report is not None
        return self.report.of(A).ts.seconds
