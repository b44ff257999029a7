"""What a sink of messages commits of a window or a chunk, and that it does before anything of it counts."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from changefeed.cluster_time import ClusterTime
from changefeed.documents.row_key import KeyRange
from changefeed.errors import SinkUnavailable, SluiceError
from changefeed.lifecycle import ErrorReport
from changefeed.position import Window
from changefeed.records.copy import CopiedChunk
from changefeed.records.ddl import DdlState
from changefeed.table import TableId, TableName, TableSchema
from processor.copy.steps import ReadChunk
from processor.job_runs import Commits
from processor.task.job import JobOutcome
from sink.receipt import Commit, CopyReceipt, Receipt
from sink.row import WriteResult
from source.tables.chunks import Division
from tests.unit.processor.held_jobs import FEED, LAYOUT, A, B, Cluster, at

FILE = Receipt(name="data/7/x-0.json", rows=3, bytes=100, crc32=1)


@dataclass
class Committed:
    """A committer, and the node's checkpoint and copied chunks at each commit."""

    cluster: Cluster
    error: SluiceError | None = None
    commits: list[Commit] = field(default_factory=list)
    checkpoints: list[int] = field(default_factory=list)
    copies: list[bytes] = field(default_factory=list)

    @property
    def committed(self) -> dict[int, int]:
        return {7: len(self.commits)}

    def commit(self, commit: Commit) -> None:
        if self.error is not None:
            raise self.error
        self.commits.append(commit)
        self.checkpoints.append(self.cluster.checkpoint)
        self.copies.append(b"".join(kv.value for kv in self.cluster.server.range(LAYOUT.copies(FEED)).items))


def _began(**options: Any) -> Committed:
    """The committer stands in for that of a sink of files, which needs a store."""
    cluster = Cluster(**options)
    cluster.tick()
    committed = Committed(cluster)
    assert cluster._node is not None
    cluster._node._jobs.runs.commits = Commits(committed, every_seconds=0)
    return committed


def _windowed(committed: Committed, outcome: JobOutcome) -> None:
    cluster = committed.cluster
    cluster.barrier(110)
    cluster.jobs.answer = outcome
    cluster.tick()
    cluster.jobs.let_run()


def test_a_window_is_committed_before_its_checkpoint_moves() -> None:
    committed = _began()
    _windowed(committed, JobOutcome(rows=WriteResult(receipts=[FILE])))
    [commit] = committed.commits
    assert (commit.ranges, commit.files) == ({A: Window(at(100), at(110))}, (FILE,))
    assert [(schema.id, name) for schema, name in commit.tables] == [(A, TableName("s", "a"))]
    assert committed.checkpoints == [100]
    committed.cluster.tick()
    assert committed.cluster.checkpoint == 110
    assert (report := committed.cluster.report) is not None
    assert report.committed == {7: 1}


def test_a_committer_that_is_opened_again_takes_back_no_commit() -> None:
    """The node has the same epoch. What it says of its commits before is what an owner knows of them."""
    committed = _began()
    _windowed(committed, JobOutcome(rows=WriteResult(receipts=[FILE])))
    committed.cluster.tick()
    committed.commits.clear()
    assert committed.cluster._node is not None
    committed.cluster._node._reports._knows_written = False
    committed.cluster.barrier(120)
    for _ in range(2):
        committed.cluster.tick()
    assert (report := committed.cluster.report) is not None
    assert report.committed == {7: 1}


def test_a_window_without_a_message_is_committed() -> None:
    """The sink looks whether it is still its changefeed's."""
    committed = _began()
    _windowed(committed, JobOutcome())
    assert [commit.ranges for commit in committed.commits] == [{A: Window(at(100), at(110))}]


def test_a_window_that_ended_early_is_committed_up_to_there() -> None:
    committed = _began()
    _windowed(committed, JobOutcome(rows=WriteResult(receipts=[FILE]), ended=at(105)))
    assert [commit.ranges for commit in committed.commits] == [{A: Window(at(100), at(105))}]
    committed.cluster.tick()
    assert committed.cluster.checkpoint == 105


def test_each_table_of_a_window_is_committed_as_far_as_it_went() -> None:
    """B is held at 104."""
    committed = _began()
    cluster = committed.cluster
    cluster.put(LAYOUT.schema(FEED, B), TableSchema(id=B, name=TableName("s", "b"), valid_from=at(100)))
    cluster.assign(A, B)
    cluster.tick()
    cluster.jobs.let_run()
    cluster.drop(104, DdlState.PENDING, B)
    cluster.tick()
    cluster.jobs.let_run()
    cluster.tick()
    ranges: dict[TableId, list[Window]] = {A: [], B: []}
    for commit in committed.commits:
        for table, window in commit.ranges.items():
            ranges[table].append(window)
    assert ranges == {A: [Window(at(100), at(114))], B: [Window(at(100), at(104))]}


def test_a_window_that_failed_is_not_committed() -> None:
    committed = _began()
    away = ErrorReport.of(SinkUnavailable("away"), datetime.now(UTC))
    _windowed(committed, JobOutcome(rows=WriteResult(receipts=[FILE]), error=away))
    assert committed.commits == []


def test_a_window_whose_commit_fails_counts_for_nothing() -> None:
    committed = _began()
    committed.error = SinkUnavailable("the store does not answer")
    cluster = committed.cluster
    cluster.barrier(110)
    cluster.jobs.answer = JobOutcome(rows=WriteResult(receipts=[FILE]))
    cluster.tick()
    with pytest.raises(SinkUnavailable):
        cluster.jobs.let_run()
    assert cluster.checkpoint == 100


def test_a_chunk_is_committed_before_it_is_recorded_as_copied() -> None:
    committed = _began(copy=True)
    cluster = committed.cluster
    cluster.barrier(130)
    time = ClusterTime(110, 0)
    chunk = ReadChunk(
        range=KeyRange(),
        copied=CopiedChunk(after=time, until=ClusterTime(111, 0), documents=3, bytes=100),
        receipts=(FILE,),
        read_after=time,
    )
    for answer in (Division(), chunk):
        cluster.jobs.copy_answer = answer
        cluster.tick()
        cluster.jobs.let_run()
        cluster.tick()
    [commit] = [commit for commit in committed.commits if commit.copies]
    receipt = CopyReceipt(table=A, start=at(100), after=time, until=ClusterTime(111, 0), files=(FILE,))
    assert (commit.copies, commit.ranges) == ((receipt,), {})
    assert b'"documents":3' not in committed.copies[committed.commits.index(commit)]
    recorded = b"".join(kv.value for kv in cluster.server.range(LAYOUT.copies(FEED)).items)
    assert b'"documents":3' in recorded
