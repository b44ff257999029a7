"""What the figures of a node are told of its jobs, and what its watch of Spark."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from changefeed.cluster_time import ClusterTime
from changefeed.documents.row_key import KeyRange
from changefeed.errors import PipelineUnavailable, SinkUnavailable
from changefeed.event import RowTally
from changefeed.lifecycle import ErrorReport
from changefeed.records.copy import CopiedChunk
from changefeed.records.requests import ChangefeedId
from processor.copy.steps import ReadChunk
from processor.spark.spark_watch import SparkWatch
from processor.task.job import JobOutcome
from source.tables.chunks import Division
from tests.unit.processor.held_jobs import FEED, Cluster


class Figures:
    def __init__(self) -> None:
        self.windows: list[tuple[ChangefeedId, bool]] = []
        self.chunks: list[CopiedChunk] = []

    def window_done(self, changefeed: ChangefeedId, tally: RowTally, took: timedelta, *, failed: bool) -> None:
        self.windows.append((changefeed, failed))

    def window_committed(self, changefeed: ChangefeedId, took: timedelta) -> None:
        raise AssertionError("a sink of documents commits nothing")

    def chunks_copied(self, changefeed: ChangefeedId, chunks: Sequence[CopiedChunk]) -> None:
        self.chunks += chunks


def test_each_window_counts_as_done_or_failed() -> None:
    figures = Figures()
    cluster = Cluster(figures=figures)
    away = JobOutcome(error=ErrorReport.of(SinkUnavailable("away"), datetime.now(UTC)))
    for seconds, answer in ((110, JobOutcome()), (120, away)):
        cluster.barrier(seconds)
        cluster.jobs.answer = answer
        cluster.tick()
        cluster.jobs.let_run()
    assert figures.windows == [(FEED, False), (FEED, True)]


def test_each_chunk_counts_as_copied() -> None:
    figures = Figures()
    cluster = Cluster(copy=True, figures=figures)
    cluster.barrier(130)
    copied = CopiedChunk(after=ClusterTime(110, 0), until=ClusterTime(111, 0), documents=3, bytes=100)
    for answer in (Division(), ReadChunk(range=KeyRange(), copied=copied)):
        cluster.jobs.copy_answer = answer
        cluster.tick()
        cluster.jobs.let_run()
        cluster.tick()
    assert figures.chunks[:1] == [copied]


def test_a_job_that_ends_well_shows_that_spark_runs_jobs_and_one_whose_task_meets_an_error_does_not() -> None:
    watch = SparkWatch(lambda: None)
    for error in (SinkUnavailable("away"), PipelineUnavailable("the JVM is dead")):
        with pytest.raises(type(error)), watch.job():
            raise error
        assert not watch.health.ready
    with watch.job():
        pass
    assert watch.health.ready
