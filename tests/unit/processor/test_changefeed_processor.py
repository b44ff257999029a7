"""The shell of one changefeed over an in-memory etcd, with jobs that answer when the test tells them to."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from changefeed.cluster_time import ClusterTime
from changefeed.config.configuration import Configuration
from changefeed.config.tables.pattern import TablePattern
from changefeed.documents.document import Document
from changefeed.documents.key_range import KeyRange
from changefeed.errors import ConflictError, SinkUnavailable
from changefeed.event import DdlEvent, DdlType
from changefeed.lifecycle import ErrorReport, Lifecycle, State
from changefeed.position import Position
from changefeed.records import (
    AssignedTable,
    Assignment,
    Barrier,
    ChangefeedId,
    ChangefeedInfo,
    ChangefeedStatus,
    CopiedChunk,
    CopyRecord,
    CopyStage,
    DdlRecord,
    DdlState,
    NodeId,
    PositionReport,
    RepairRequest,
    Scope,
)
from changefeed.table import Beside, TableId, TableName, TableSchema
from coordination.decoded import Decoded
from coordination.etcd.config import EtcdConfig
from coordination.etcd.memory import MemoryEtcd
from coordination.etcd.protocol import Delete, Put
from coordination.fenced import FencedStore
from coordination.layout import Layout, decode, encode
from coordination.mirror import Mirror, View
from coordination.parts import assignment_puts, join_assignment, join_report
from processor import etcd_view
from processor.changefeed_processor import ChangefeedProcessor, ProcessorSession
from processor.copy.chunk_copy import ReadChunk
from processor.copy.steps import CopyAnswer, CopyAnswers, CopyChunk, CopyStep, IndexTable, Prepare
from processor.lanes.lane_plan import LaneLimits
from processor.lanes.windows import WindowLimits
from processor.spark.attempts import Attempts
from processor.spark.pipeline import SharedContext
from processor.task.job import JobOutcome, JobSpec
from source.tables.chunks import Division

LAYOUT, FEED, NODE = Layout("test"), ChangefeedId("f"), NodeId("n1")
A, B = TableId("aa" * 16), TableId("bb" * 16)


def at(seconds: int) -> Position:
    return Position(ClusterTime(seconds, 0))


class HeldJobs(Executor):
    """Replaces both the threads and their work: each call waits until the test lets it run."""

    def __init__(self) -> None:
        self.specs: list[JobSpec] = []
        self.contexts: list[SharedContext] = []
        self.steps: list[CopyStep] = []
        self.answer: JobOutcome = JobOutcome()
        self.copy_answer: CopyAnswer | ErrorReport = None
        self.copy_answers: CopyAnswers | None = None
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
        self.steps += steps
        if self.copy_answers is None:
            return [self.copy_answer for _ in steps]
        answers, self.copy_answers = self.copy_answers, None
        return answers

    def look(self, shared: SharedContext, attempt: str) -> ErrorReport | None:
        self.looks += 1
        return self.unreached

    def cancel(self, shared: SharedContext, spec: JobSpec) -> None:
        pass


class Cluster:
    def __init__(self, *, copy: bool = False, sink: str = "mongodb://b") -> None:
        self.server = MemoryEtcd()
        self.lease = lease = self.server.grant(timedelta(seconds=10)).id
        self.over = threading.Event()
        epoch = self.server.txn([], [Put(LAYOUT.node(NODE), b"{}", lease)]).revision
        self.store = FencedStore(self.server.connect(), key=LAYOUT.node(NODE), epoch=epoch)
        self.jobs = HeldJobs()
        self._mirror = Mirror(self.server.connect(), LAYOUT.root)
        self._reader = Decoded(LAYOUT)
        fields = {"id": "f", "source": "mongodb://a", "sink": sink}
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

    def drop(self, seconds: int, state: DdlState) -> None:
        """The record of A's drop, with the resulting barrier."""
        event = DdlEvent(position=at(seconds), type=DdlType.DROP, db="s", table=TableName("s", "a"), id=A)
        record = DdlRecord(event=event, scope=Scope(tables=frozenset({A})), state=state, seen_at=datetime.now(UTC))
        self.put(LAYOUT.ddl(FEED, event.position), record)
        self.barrier(seconds + 10, {A: at(seconds)} if record.open else None)

    def assign(self, *tables: TableId, copy: bool = False) -> None:
        group = LAYOUT.assignment(FEED, NODE)
        before, _ = join_assignment(self.server.range(group).items)
        after = Assignment(tables={table: AssignedTable(start=at(100), copy=copy) for table in tables or (A,)})
        self.server.txn([], assignment_puts(group, before, after))

    def give_up(self) -> None:
        group = LAYOUT.assignment(FEED, NODE)
        before, _ = join_assignment(self.server.range(group).items)
        self.server.txn([], assignment_puts(group, before, Assignment()))

    def tick(self) -> None:
        view, known = self.look()
        if self._node is None:
            self._node = ChangefeedProcessor(FEED, known, self._surroundings())
        self.step(view, known)

    def step(self, view: View, known: etcd_view.ProcessorView) -> None:
        """Ticks as if the last report were long ago."""
        assert self._node is not None
        self._node._reported_at = float("-inf")
        self._node.tick(view, known)

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
            jobs=self.jobs,
            attempts=Attempts(self.store, LAYOUT, NODE, self.lease, self.over, budget=timedelta()),
            threads=self.jobs,
            wake=lambda: None,
            windows=WindowLimits(),
            lanes=LaneLimits(),
        )

    @property
    def report(self) -> PositionReport | None:
        main = self.server.get(LAYOUT.position(FEED, NODE))
        return join_report([main, *self.server.range(LAYOUT.position_parts(FEED, NODE)).items]) if main else None

    @property
    def checkpoint(self) -> int:
        assert self.report is not None
        return self.report.of(A).ts.seconds


def test_a_checkpoint_is_published_only_after_its_job_has_answered() -> None:
    cluster = Cluster()
    cluster.barrier(110)
    cluster.tick()
    assert cluster.checkpoint == 100
    cluster.jobs.let_run()
    assert cluster.checkpoint == 100
    cluster.tick()
    assert cluster.checkpoint == 110


def test_a_node_that_lost_its_tables_to_an_error_looks_until_that_is_over() -> None:
    """Otherwise it would say for ever that it reaches nothing, and never get a table again."""
    cluster = Cluster()
    cluster.barrier(110)
    away = ErrorReport.of(SinkUnavailable("away"), datetime.now(UTC))
    cluster.jobs.answer, cluster.jobs.unreached = JobOutcome(error=away), away
    cluster.tick()
    cluster.jobs.let_run()
    cluster.tick()
    assert cluster.jobs.looks == 0, "its tables are tried again, and show it"
    cluster.give_up()

    def until_looked(times: int) -> PositionReport:
        deadline = time.monotonic() + 30
        while cluster.jobs.looks < times:
            assert time.monotonic() < deadline
            cluster.tick()
            cluster.jobs.let_run()
        cluster.tick()
        assert cluster.report is not None
        return cluster.report

    assert until_looked(1).error is not None
    cluster.jobs.unreached = None
    assert until_looked(2).error is None
    for _ in range(3):
        cluster.tick()
        cluster.jobs.let_run()
    assert cluster.jobs.looks == 2


def test_a_node_without_tables_looks_whether_it_could_do_better_while_the_changefeed_has_an_error() -> None:
    cluster = Cluster()
    cluster.tick()
    cluster.give_up()
    for state, looks in ((State.NORMAL, 0), (State.WARNING, 1), (State.NORMAL, 1)):
        away = ErrorReport.of(SinkUnavailable("away"), datetime.now(UTC))
        lifecycle = Lifecycle(state=state, error=away if looks and state is State.WARNING else None)
        status = ChangefeedStatus(
            lifecycle=lifecycle, checkpoint=at(100), resolved=at(100), run=1, info_version=1, epoch=1
        )
        cluster.put(LAYOUT.status(FEED), status)
        for _ in range(3):
            cluster.tick()
            cluster.jobs.let_run()
        assert cluster.report is not None
        assert (cluster.jobs.looks, cluster.report.reaches) == (looks, state is State.WARNING)


def test_a_job_with_an_error_moves_nothing_and_says_why() -> None:
    cluster = Cluster()
    cluster.barrier(110)
    cluster.jobs.answer = JobOutcome(error=ErrorReport.of(SinkUnavailable("away"), datetime.now(UTC)))
    cluster.tick()
    cluster.jobs.let_run()
    cluster.tick()
    assert cluster.checkpoint == 100
    assert cluster.report is not None
    assert cluster.report.error is not None
    assert cluster.report.error.code == "sink_unavailable"


def test_the_keys_of_a_removed_changefeed_are_not_written_again() -> None:
    cluster = Cluster()
    cluster.tick()
    cluster.jobs.let_run()
    cluster.barrier(110)
    cluster.tick()
    cluster.jobs.let_run()
    view, known = cluster.look()
    cluster.server.txn([], [Delete(LAYOUT.info(FEED)), Delete(LAYOUT.position(FEED, NODE))])
    with pytest.raises(ConflictError):
        cluster.step(view, known)
    assert cluster.report is None


def test_jobs_share_a_context_until_a_ddl_is_done() -> None:
    cluster = Cluster()
    for seconds in (110, 120):
        cluster.barrier(seconds)
        cluster.tick()
        cluster.jobs.let_run()
    event = DdlEvent(position=at(125), type=DdlType.CREATE, db="s", table=TableName("s", "b"), id=B)
    record = DdlRecord(event=event, scope=Scope(), state=DdlState.DONE, seen_at=datetime.now(UTC))
    cluster.put(LAYOUT.ddl(FEED, record.position), record)
    cluster.barrier(130)
    cluster.tick()
    cluster.jobs.let_run()
    first, second, third = cluster.jobs.contexts
    assert first is second
    assert first.context.key != third.context.key
    assert third.context.schemas.latest(B) is not None
    assert third.context.base_key == first.context.base_key, "the workers have it already"


def test_the_fold_of_a_known_record_gives_the_jobs_no_other_context() -> None:
    cluster = Cluster()
    description = Document.of({"cappedSize": 5})
    event = DdlEvent(
        position=at(105), type=DdlType.MODIFY, db="s", table=TableName("s", "a"), id=A, description=description
    )
    record = DdlRecord(event=event, scope=Scope(), state=DdlState.DONE, seen_at=datetime.now(UTC))
    cluster.put(LAYOUT.ddl(FEED, event.position), record)
    cluster.barrier(110)
    cluster.tick()
    cluster.jobs.let_run()
    changed = cluster.jobs.contexts[-1].context.schemas.latest(A)
    status = ChangefeedStatus(checkpoint=at(110), resolved=at(110), run=1, info_version=1, epoch=1)
    cluster.put(LAYOUT.status(FEED), status)
    cluster.put(LAYOUT.schema(FEED, A), changed)
    cluster.server.txn([], [Delete(LAYOUT.ddl(FEED, event.position))])
    cluster.barrier(120)
    cluster.tick()
    cluster.jobs.let_run()
    first, second = cluster.jobs.contexts
    assert first is second


def test_records_that_were_settled_and_folded_while_a_node_did_not_look_are_found_in_the_bases() -> None:
    cluster = Cluster()
    cluster.tick()
    created = TableSchema(id=B, name=TableName("s", "b"), valid_from=at(105))
    event = DdlEvent(position=at(107), type=DdlType.DROP, db="s", table=created.name, id=B)
    dropped = DdlRecord(event=event, scope=Scope(), state=DdlState.DONE, seen_at=datetime.now(UTC))
    cluster.put(LAYOUT.schema(FEED, B), created)
    cluster.put(LAYOUT.ddl(FEED, dropped.position), dropped)
    cluster.barrier(110)
    cluster.tick()
    cluster.jobs.let_run()
    assert cluster.report is not None
    assert cluster.report.error is None
    [context] = cluster.jobs.contexts
    assert context.context.schemas.before(B, at(107)) == created


def test_a_node_runs_with_the_tables_that_were_found_whatever_others_are_asked_for() -> None:
    """While the owner changes them, which an empty tuple says, nothing runs."""
    cluster = Cluster()
    cluster.tick()
    found_by = ChangefeedStatus(checkpoint=at(100), resolved=at(100), run=1, info_version=1, epoch=1)
    for patterns, jobs in (((), 0), ((TablePattern.parse("s.*"),), 1)):
        cluster.put(LAYOUT.status(FEED), replace(found_by, tables=patterns))
        cluster.barrier(110)
        cluster.tick()
        cluster.jobs.let_run()
        assert len(cluster.jobs.specs) == jobs
    [context] = cluster.jobs.contexts
    assert context.context.configuration.filter.tables == (TablePattern.parse("s.*"),)


def test_a_table_that_came_and_went_while_a_node_did_not_look_is_gone_for_it() -> None:
    cluster = Cluster()
    name = TableName("s", "b")

    def record(seconds: int, type: DdlType, table: TableId) -> DdlRecord:
        event = DdlEvent(position=at(seconds), type=type, db="s", table=name, id=table)
        return DdlRecord(event=event, scope=Scope(), state=DdlState.DONE, seen_at=datetime.now(UTC))

    created = record(101, DdlType.CREATE, B)
    cluster.put(LAYOUT.ddl(FEED, created.position), created)
    cluster.tick()
    cluster.server.txn([], [Delete(LAYOUT.ddl(FEED, created.position))])
    again = record(103, DdlType.CREATE, TableId("cc" * 16))
    cluster.put(LAYOUT.ddl(FEED, again.position), again)
    cluster.barrier(110)
    cluster.tick()
    assert cluster.report is not None
    assert cluster.report.error is None


def test_an_open_create_is_named_so_that_its_rows_are_no_surprise() -> None:
    cluster = Cluster()
    event = DdlEvent(position=at(105), type=DdlType.CREATE, db="s", table=TableName("s", "b"), id=B)
    record = DdlRecord(event=event, scope=Scope(), seen_at=datetime.now(UTC))
    cluster.put(LAYOUT.ddl(FEED, record.position), record)
    cluster.barrier(110)
    cluster.tick()
    cluster.jobs.let_run()
    [spec] = cluster.jobs.specs
    assert spec.held.tables == {B}
    assert spec.held.names == {TableName("s", "b")}


def test_an_open_ddl_tells_the_new_uuid_of_its_table() -> None:
    cluster = Cluster()
    description = Document.of({"uuid": B})
    event = DdlEvent(
        position=at(105), type=DdlType.NEW_UUID, db="s", table=TableName("s", "a"), id=A, description=description
    )
    record = DdlRecord(event=event, scope=Scope(tables=frozenset({A})), seen_at=datetime.now(UTC))
    cluster.put(LAYOUT.ddl(FEED, record.position), record)
    cluster.barrier(110, {A: at(105)})
    cluster.tick()
    cluster.jobs.let_run()
    [spec] = cluster.jobs.specs
    assert spec.held.uuids == {B: A}
    assert spec.held.tables == {A, B}


def test_a_table_is_copied_caught_up_and_indexed_before_it_follows() -> None:
    cluster = Cluster(copy=True)
    cluster.barrier(130)
    copied = CopiedChunk(after=ClusterTime(110, 0), until=ClusterTime(110, 0), documents=5, bytes=50)
    chunk = ReadChunk(range=KeyRange(), copied=copied)
    expected = ((Prepare, Division()), (CopyChunk, chunk))
    for kind, answer in expected:
        cluster.jobs.copy_answer = answer
        cluster.tick()
        cluster.jobs.let_run()
        assert isinstance(cluster.jobs.steps[-1], kind)
        cluster.tick()
    assert cluster.checkpoint == 100
    cluster.tick()
    cluster.jobs.let_run()
    [spec] = cluster.jobs.specs
    assert set(spec.copied) == {A}
    cluster.jobs.copy_answer = None
    cluster.tick()
    assert cluster.checkpoint == 110
    assert cluster.report is not None
    assert cluster.report.copies[A].documents == 5
    cluster.jobs.let_run()
    assert isinstance(cluster.jobs.steps[-1], IndexTable)
    cluster.tick()
    kv = cluster.server.get(LAYOUT.copy(FEED, A))
    assert kv is not None
    assert decode(CopyRecord, kv).stage is CopyStage.DONE
    cluster.tick()
    cluster.jobs.let_run()
    cluster.tick()
    assert cluster.checkpoint == 130
    assert cluster.report.copies == {}


@pytest.mark.parametrize(("sink", "held_back"), [("mongodb://b", {A}), ("kafka://b:9092/p", set())])
def test_a_sink_of_messages_gets_every_change_of_a_table_in_copy(sink: str, held_back: set[TableId]) -> None:
    """What an attempt of a chunk has sent that was never recorded cannot be cleared: it takes the deletes to be right in the end."""
    cluster = Cluster(copy=True, sink=sink)
    cluster.barrier(130)
    copied = CopiedChunk(after=ClusterTime(110, 0), until=ClusterTime(110, 0), documents=5, bytes=50)
    for answer in (Division(), ReadChunk(range=KeyRange(), copied=copied)):
        cluster.jobs.copy_answer = answer
        cluster.tick()
        cluster.jobs.let_run()
        cluster.tick()
    cluster.tick()
    cluster.jobs.let_run()
    assert {table for spec in cluster.jobs.specs for table in spec.copied} == held_back
    assert cluster.jobs.specs


def test_small_tables_share_a_task_and_what_it_leaves_is_begun_again() -> None:
    cluster = Cluster()
    tables = [TableId(f"{number:02x}" * 16) for number in range(9)]
    for table in tables:
        cluster.put(LAYOUT.schema(FEED, table), TableSchema(id=table, name=TableName("s", table), valid_from=at(100)))
    cluster.assign(*tables, copy=True)
    cluster.barrier(130)
    cluster.tick()
    refused = ErrorReport(code="busy", message="later", retryable=True, at=datetime.now(UTC))
    cluster.jobs.copy_answers = [Division(), refused]
    cluster.jobs.copy_answer = Division()
    cluster.jobs.let_run()
    first, failed, left, *others = (step.schema.id for step in cluster.jobs.steps)
    assert {first, failed, left, *others} == set(tables)
    cluster.tick()
    begun = {table for table in tables if cluster.server.get(LAYOUT.copy(FEED, table)) is not None}
    assert set(tables) - begun == {failed, left}
    assert cluster.report is not None
    assert cluster.report.error is not None


@pytest.mark.parametrize(("beside", "at_once"), [(False, 3), (True, 1)])
def test_a_copy_beside_takes_one_task_at_a_time(beside: bool, at_once: int) -> None:
    """The tables that follow need the others."""
    cluster = Cluster(copy=True)
    place = Beside(name=TableName("s", "copy"), stands_at=at(90)) if beside else None
    cluster.put(LAYOUT.schema(FEED, A), TableSchema(id=A, name=TableName("s", "a"), valid_from=at(100), beside=place))
    cluster.barrier(130)
    cluster.jobs.copy_answer = Division(bounds=(Document.of({"_id": 1}), Document.of({"_id": 2})))
    cluster.tick()
    cluster.jobs.let_run()
    [prepare] = cluster.jobs.steps
    assert isinstance(prepare, Prepare)
    assert prepare.ours is beside
    for _ in range(3):
        cluster.tick()
    cluster.jobs.copy_answer = ErrorReport(code="busy", message="later", retryable=True, at=datetime.now(UTC))
    cluster.jobs.let_run()
    assert len(cluster.jobs.steps) - 1 == at_once


def test_a_drop_waits_for_the_window_that_brings_a_copy_up() -> None:
    cluster = Cluster(copy=True)
    cluster.barrier(115)
    copied = CopiedChunk(after=ClusterTime(110, 0), until=ClusterTime(110, 0), documents=5, bytes=50)
    chunk = ReadChunk(range=KeyRange(), copied=copied)
    for answer in (Division(), chunk):
        cluster.jobs.copy_answer = answer
        cluster.tick()
        cluster.jobs.let_run()
        cluster.tick()
    cluster.tick()
    cluster.drop(120, DdlState.PENDING)
    cluster.tick()
    assert cluster.report is not None
    assert (cluster.checkpoint, cluster.report.error) == (100, None)
    cluster.jobs.let_run()
    cluster.tick()
    assert cluster.checkpoint == 120


def test_a_drop_waits_for_the_copy_that_may_still_create_the_table() -> None:
    cluster = Cluster(copy=True)
    cluster.tick()
    cluster.drop(120, DdlState.PENDING)
    cluster.tick()
    assert cluster.checkpoint == 100
    cluster.jobs.copy_answer = Division()
    cluster.jobs.let_run()
    cluster.tick()
    cluster.tick()
    cluster.tick()
    assert cluster.checkpoint == 120


def test_a_table_that_has_ended_is_not_copied_again_before_it_is_taken_away() -> None:
    cluster = Cluster(copy=True)
    cluster.drop(120, DdlState.PENDING)
    cluster.tick()
    cluster.tick()
    assert cluster.checkpoint == 120
    cluster.drop(120, DdlState.DONE)
    cluster.tick()
    cluster.jobs.let_run()
    cluster.tick()
    assert cluster.jobs.steps == []
    assert cluster.checkpoint == 120


def test_a_schema_that_makes_no_sense_is_an_error_of_the_changefeed() -> None:
    cluster = Cluster()
    event = DdlEvent(position=at(105), type=DdlType.CREATE_INDEXES, db="s", table=TableName("s", "b"), id=B)
    record = DdlRecord(event=event, scope=Scope(), state=DdlState.DONE, seen_at=datetime.now(UTC))
    cluster.put(LAYOUT.ddl(FEED, record.position), record)
    cluster.barrier(110)
    cluster.tick()
    cluster.jobs.let_run()
    assert cluster.jobs.specs == []
    assert cluster.report is not None
    assert cluster.report.error is not None
    assert cluster.report.error.code == "invariant_violated"


def test_a_repair_request_is_given_to_jobs_until_one_has_carried_it_out() -> None:
    cluster = Cluster()
    request = RepairRequest(id="r1", keys=("BQAAAAA=",), asked_at=datetime.now(UTC))
    cluster.put(LAYOUT.repair(FEED, A), request)
    for seconds, outcome in ((110, JobOutcome()), (120, JobOutcome(repaired={"r1"})), (130, JobOutcome())):
        cluster.barrier(seconds)
        cluster.jobs.answer = outcome
        cluster.tick()
        cluster.jobs.let_run()
        cluster.tick()
        asked = cluster.server.get(LAYOUT.repair(FEED, A)) is not None
        assert asked == (seconds == 110), seconds
    assert [dict(spec.repairs) for spec in cluster.jobs.specs] == [{A: request}, {A: request}, {}]


def test_a_repair_request_of_a_table_that_is_elsewhere_stays() -> None:
    cluster = Cluster()
    cluster.put(LAYOUT.repair(FEED, B), RepairRequest(id="r1", keys=("BQAAAAA=",), asked_at=datetime.now(UTC)))
    cluster.barrier(110)
    cluster.tick()
    cluster.jobs.let_run()
    cluster.tick()
    assert [dict(spec.repairs) for spec in cluster.jobs.specs] == [{}]
    assert cluster.server.get(LAYOUT.repair(FEED, B)) is not None
