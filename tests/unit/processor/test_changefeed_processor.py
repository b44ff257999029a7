"""The shell of one changefeed: what it gives to its jobs, and what it publishes of their answers."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from changefeed.config.tables.pattern import TablePattern
from changefeed.documents.document import Document
from changefeed.errors import ConflictError, PipelineUnavailable, RowRejected, SinkUnavailable
from changefeed.event import DdlEvent, DdlType
from changefeed.lifecycle import ErrorReport, Lifecycle, State
from changefeed.position import Position
from changefeed.records.ddl import DdlRecord, DdlState, Scope
from changefeed.records.node import PositionReport
from changefeed.records.requests import RepairRequest
from changefeed.records.status import ChangefeedStatus
from changefeed.table import TableId, TableName, TableSchema
from coordination.etcd.protocol import Delete
from processor.task.job import Held, JobOutcome
from tests.unit.processor.held_jobs import FEED, LAYOUT, NODE, A, B, Cluster, at
from tests.until import PATIENCE_SECONDS

UUID_OF_B = TableId("bb" * 15 + "b2")


def held_by(event: DdlEvent, standing: Mapping[TableId, Position] | None = None) -> Held:
    """What a job knows of an open DDL. `standing`: the tables that the barrier holds."""
    cluster = Cluster()
    record = DdlRecord(event=event, scope=Scope(tables=frozenset(standing or ())), seen_at=datetime.now(UTC))
    cluster.put(LAYOUT.ddl(FEED, record.position), record)
    cluster.barrier(110, standing)
    cluster.tick()
    cluster.jobs.let_run()
    [spec] = cluster.jobs.specs
    return spec.held


def test_a_checkpoint_is_published_only_after_its_job_has_answered() -> None:
    cluster = Cluster()
    cluster.barrier(110)
    cluster.tick()
    assert cluster.checkpoint == 100
    cluster.jobs.let_run()
    assert cluster.checkpoint == 100
    cluster.tick()
    assert cluster.checkpoint == 110


def test_a_report_is_held_back_soon_after_another_one_unless_a_ddl_waits_for_it() -> None:
    cluster = Cluster()
    for seconds, reported in ((110, 100), (120, 130)):
        cluster.drop(130, DdlState.PENDING) if seconds == 120 else cluster.barrier(seconds)
        cluster.tick()
        cluster.jobs.let_run()
        cluster.tick(reported_ago=0.0)
        assert cluster.checkpoint == reported
    cluster.drop(130, DdlState.DONE)
    before = cluster.report
    cluster.tick(reported_ago=0.0)
    assert cluster.report == before, "that it has got there is said once"


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
        deadline = time.monotonic() + PATIENCE_SECONDS
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


@pytest.mark.parametrize("copy", [False, True])
@pytest.mark.parametrize("policy", ["stop_table", "stop_changefeed"])
def test_a_refused_row_is_its_table_s_or_the_whole_changefeed_s_as_the_user_says(policy: str, copy: bool) -> None:
    cluster = Cluster(copy=copy, on_rejected=policy)
    cluster.barrier(110)
    refused = ErrorReport.of(RowRejected("insert of 7 is refused").about(A), datetime.now(UTC))
    cluster.jobs.answer = JobOutcome(error=refused)
    cluster.jobs.copy_answer = refused

    def tick_on() -> PositionReport:
        for _ in range(3):
            cluster.tick()
            cluster.jobs.let_run()
        assert cluster.report is not None
        return cluster.report

    report = tick_on()
    tried = len(cluster.jobs.specs), len(cluster.jobs.copies)
    assert tried[copy] > 0
    assert cluster.checkpoint == 100
    if policy == "stop_table":
        assert (report.error, report.failed) == (None, {A: refused})
    else:
        assert (report.error, report.failed) == (replace(refused, table=None), {})
    tick_on()
    assert (len(cluster.jobs.specs), len(cluster.jobs.copies)) == tried, "nothing is tried again before a user acts"


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
    event = DdlEvent(position=at(105), type=DdlType.CREATE, db="s", table=TableName("s", "b"), id=B)
    held = held_by(event)
    assert held.tables == {B}
    assert held.names == {TableName("s", "b")}


def test_an_open_ddl_tells_the_new_uuid_of_its_table() -> None:
    description = Document.of({"uuid": B})
    event = DdlEvent(
        position=at(105), type=DdlType.NEW_UUID, db="s", table=TableName("s", "a"), id=A, description=description
    )
    held = held_by(event, {A: at(105)})
    assert held.uuids == {B: A}
    assert held.tables == {A, B}


def test_an_open_rename_tells_the_uuids_with_which_its_table_comes_back_into_the_filter() -> None:
    """Its versions of before may be gone, and rows of the table come behind the rename."""
    event = DdlEvent(
        position=at(105),
        type=DdlType.RENAME,
        db="s",
        table=TableName("s", "aside"),
        renamed_to=TableName("s", "b"),
        id=B,
        description=Document.of({"options": {}, "indexes": [], "uuids": [UUID_OF_B]}),
    )
    held = held_by(event)
    assert held.uuids == {UUID_OF_B: B}
    assert held.tables == {B, UUID_OF_B}


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


def pause(cluster: Cluster) -> None:
    stopped = Lifecycle(state=State.STOPPED)
    cluster.put(
        LAYOUT.status(FEED),
        ChangefeedStatus(lifecycle=stopped, checkpoint=at(100), resolved=at(100), run=1, info_version=1, epoch=1),
    )


@pytest.mark.parametrize("copy", [False, True])
def test_what_runs_on_after_a_pause_is_cancelled_and_then_the_node_has_stopped(copy: bool) -> None:
    cluster = Cluster(copy=copy)
    cluster.barrier(110)
    cluster.jobs.copy_answer = ErrorReport.of(PipelineUnavailable("cancelled"), datetime.now(UTC))
    cluster.tick()
    pause(cluster)
    cluster.tick()
    cluster.later(29)
    assert not cluster.jobs.cancelled
    cluster.later(1)
    [attempt] = cluster.jobs.cancelled
    assert cluster.report is not None
    assert cluster.report.run == 1
    cluster.jobs.let_run()
    cluster.tick()
    assert cluster.report.run == 0
    assert cluster.jobs.cancelled == [attempt]
    assert [*(spec.attempt for spec in cluster.jobs.specs), *cluster.jobs.attempts] == [attempt]


@pytest.mark.parametrize(("copy", "seconds"), [(False, 60), (True, 300)])
def test_what_takes_long_is_told_until_it_has_an_answer(copy: bool, seconds: int) -> None:
    cluster = Cluster(copy=copy)
    cluster.barrier(110)
    cluster.jobs.copy_answer = ErrorReport.of(PipelineUnavailable("away"), datetime.now(UTC))
    cluster.tick()
    cluster.later(seconds - 1)
    assert cluster.report is not None
    assert not cluster.report.late
    cluster.later(1)
    [(table, error)] = cluster.report.late.items()
    assert (table, error.code, cluster.report.error) == (A, "task_overdue", None)
    assert f"of s.a has had no answer for {seconds} s" in error.message
    assert not cluster.jobs.cancelled
    cluster.jobs.let_run()
    cluster.tick()
    assert not cluster.report.late


def test_a_table_that_leaves_ends_a_window_that_takes_long() -> None:
    cluster = Cluster()
    cluster.barrier(110)
    cluster.tick()
    cluster.give_up()
    cluster.tick()
    cluster.later(59)
    assert not cluster.jobs.cancelled
    cluster.later(1)
    cluster.later(30)
    assert len(cluster.jobs.cancelled) == 1
