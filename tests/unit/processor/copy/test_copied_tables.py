"""The tables of a changefeed that are copied: from the first chunk until they follow, and what waits for them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from changefeed.cluster_time import ClusterTime
from changefeed.documents.document import Document
from changefeed.documents.row_key import KeyRange
from changefeed.lifecycle import ErrorReport
from changefeed.records.copy import CopiedChunk, CopyRecord, CopyStage
from changefeed.records.ddl import DdlState
from changefeed.table import Beside, TableId, TableName, TableSchema, TableSize
from coordination.layout import decode
from processor.copy.steps import CopyChunk, CopyStep, IndexTable, Prepare, ReadChunk
from source.tables.chunks import Division
from tests.unit.processor.held_jobs import FEED, LAYOUT, A, B, Cluster, at
from tests.until import until

OF_ID, OF_V = (Document.of({"v": 2, "key": {field: 1}, "name": f"{field}_"}) for field in ("_id", "v"))
COPIED = ReadChunk(
    range=KeyRange(),
    copied=CopiedChunk(after=ClusterTime(110, 0), until=ClusterTime(110, 0), documents=5, bytes=50),
)


def test_a_table_is_copied_caught_up_and_indexed_before_it_follows() -> None:
    cluster = Cluster(copy=True)
    schema = TableSchema(id=A, name=TableName("s", "a"), indexes=(OF_ID, OF_V), valid_from=at(100))
    cluster.put(LAYOUT.schema(FEED, A), schema)
    cluster.barrier(130)
    expected = ((Prepare, Division()), (CopyChunk, COPIED))
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


@pytest.mark.parametrize(("sink", "last"), [("mongodb://b", CopyChunk), ("kafka://b:9092/p", IndexTable)])
def test_a_copied_table_without_other_indexes_is_done_unless_a_message_says_so(sink: str, last: type[CopyStep]) -> None:
    cluster = Cluster(copy=True, sink=sink)
    cluster.put(
        LAYOUT.schema(FEED, A), TableSchema(id=A, name=TableName("s", "a"), indexes=(OF_ID,), valid_from=at(100))
    )
    cluster.barrier(130)
    for answer in (Division(), COPIED, None):
        cluster.jobs.copy_answer = answer
        cluster.tick()
        cluster.jobs.let_run()
        cluster.tick()
    for _ in range(3):
        cluster.jobs.let_run()
        cluster.tick()
    assert isinstance(cluster.jobs.steps[-1], last)
    kv = cluster.server.get(LAYOUT.copy(FEED, A))
    assert kv is not None
    assert decode(CopyRecord, kv).stage is CopyStage.DONE


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
    cluster.jobs.copy_answers = [Division(), Division(), Division(), refused]
    cluster.jobs.copy_answer = Division()
    cluster.jobs.let_run()
    first, _ = cluster.jobs.copies
    *_, failed, left = (step.schema.id for step in first)
    assert {step.schema.id for step in cluster.jobs.steps} == set(tables)
    cluster.tick()
    begun = {table for table in tables if cluster.server.get(LAYOUT.copy(FEED, table)) is not None}
    assert set(tables) - begun == {failed, left}
    assert cluster.report is not None
    assert cluster.report.error is not None


def _with_one_of_two_tiny_tables_copied() -> Cluster:
    cluster = Cluster()
    for table in (A, B):
        cluster.put(LAYOUT.schema(FEED, table), TableSchema(id=table, name=TableName("s", table), valid_from=at(100)))
    cluster.assign(A, B, copy=True)
    cluster.barrier(130)
    cluster.jobs.copy_answer = Division(size=TableSize(documents=5, bytes=50))
    cluster.tick()
    cluster.jobs.let_run()
    cluster.tick()
    cluster.tick()
    cluster.jobs.copy_answers = [COPIED]
    cluster.jobs.let_run()
    return cluster


def test_tiny_tables_catch_up_together() -> None:
    cluster = _with_one_of_two_tiny_tables_copied()
    for _ in range(3):
        cluster.tick()
    assert cluster.jobs.specs == []
    cluster.jobs.copy_answer = COPIED
    for _ in range(3):
        cluster.jobs.let_run()
        cluster.tick()
    assert set(cluster.jobs.specs[0].copied) == {A, B}


def test_a_tiny_table_does_not_wait_for_one_that_a_ddl_holds() -> None:
    cluster = _with_one_of_two_tiny_tables_copied()
    cluster.barrier(130, {B: at(120)})
    cluster.drop(120, DdlState.PENDING, B)
    for _ in range(3):
        cluster.tick()
        cluster.jobs.let_run()
    assert {table for spec in cluster.jobs.specs for table in spec.copied} == {A}


def _with_a_prepared_table() -> Cluster:
    cluster = Cluster(copy=True)
    cluster.barrier(130)
    cluster.jobs.copy_answer = Division()
    cluster.tick()
    cluster.jobs.let_run()
    return cluster


def test_only_the_first_attempt_of_a_small_table_finds_nothing_to_clear() -> None:
    cluster = _with_a_prepared_table()
    cluster.tick()
    cluster.tick()
    cluster.jobs.copy_answer = ErrorReport(code="busy", message="later", retryable=True, at=datetime.now(UTC))
    cluster.jobs.let_run()
    cluster.tick()

    def attempts() -> list[bool]:
        cluster.tick()
        cluster.jobs.let_run()
        return [step.fresh for step in cluster.jobs.steps if isinstance(step, CopyChunk)]

    until(lambda: len(attempts()) > 1, "the chunk is tried again")
    assert attempts()[:2] == [True, False]


def test_a_table_that_comes_back_may_have_been_loaded_elsewhere() -> None:
    cluster = _with_a_prepared_table()
    cluster.assign(copy=True, leaving=True)
    cluster.tick()
    cluster.assign(copy=True)
    cluster.tick()
    cluster.tick()
    cluster.jobs.copy_answer = COPIED
    cluster.jobs.let_run()
    [chunk] = [step for step in cluster.jobs.steps if isinstance(step, CopyChunk)]
    assert not chunk.fresh


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
    assert len(cluster.jobs.copies) - 1 == at_once


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
