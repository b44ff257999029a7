"""What a task says of what went wrong: Spark would turn an error into text, and a bucket must not apply what comes after it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from changefeed.cluster_time import ClusterTime
from changefeed.errors import HistoryLost, SinkUnavailable
from changefeed.lifecycle import ErrorReport
from changefeed.position import Position, Window
from changefeed.table import TableId
from credentials.redaction import keep_secret, reveal
from processor.lanes.lanes import LaneJob
from processor.task import wide_window, window_task
from processor.task.job import JobSpec
from processor.task.limiter import UNLIMITED
from processor.task.wide_window import ShuffledBlob, apply_bucket, divide_tables, read_slice
from processor.task.window_task import report_of
from sink.row import WriteResult
from tests.unit.processor.task.rows.beside import BESIDE


def at(increment: int) -> Position:
    return Position(ClusterTime(100, increment))


WINDOW = Window(at(1), at(9))
TABLE = TableId("a" * 32)
JOB = LaneJob(number=1, window=WINDOW, tables=frozenset({TABLE}), replay_until=at(1))
SPEC = JobSpec(attempt="attempt", job=replace(JOB, tables=frozenset()), default=bool(JOB.tables))
LOST = report_of(HistoryLost("the oplog begins later"))


class Worker:
    """In place of what a worker process keeps: nothing is read, and a writer settles."""

    beside = BESIDE

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.settled = 0

    @contextmanager
    def task(self, *_: object) -> Iterator[Any]:
        if self.error is not None:
            raise self.error
        nothing = SimpleNamespace(mount=None, scan=None)
        yield SimpleNamespace(
            source_rows=SimpleNamespace(held=None),
            context=SimpleNamespace(tables=frozenset({TABLE})),
            apply_limiter=lambda _: UNLIMITED,
            writer=self,
            folds=True,
            mounter=nothing,
            rows=nothing,
        )

    def begin(self, *_: object) -> Worker:
        return self

    def settle(self) -> WriteResult:
        self.settled += 1
        return WriteResult()


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Worker:
    worker = Worker()
    for tasks in (window_task, wide_window):
        monkeypatch.setattr(tasks, "worker_resources", worker)
    return worker


def applied(*chunks: ShuffledBlob) -> tuple[ErrorReport | None, Position | None]:
    outcome = apply_bucket(None, SPEC, iter(chunks))  # type: ignore[arg-type]  # `worker_resources` is replaced
    return outcome.error, outcome.ended


def test_a_bucket_without_events_has_nothing_to_say(worker: Worker) -> None:
    assert applied() == (None, None)
    assert worker.settled == 1


def test_a_slice_that_failed_fails_each_bucket(worker: Worker) -> None:
    """What comes after it is not applied: its events are missing in between."""
    assert applied(((0, 1, 0, 1), LOST), ((0, 2, 0, 1), at(5))) == (LOST, None)
    assert worker.settled == 0, "the window does not end"


def test_a_slice_that_stopped_ends_each_bucket_there(worker: Worker) -> None:
    assert applied(((0, 1, 0, 1), at(5)), ((0, 2, 0, 1), LOST)) == (None, at(5))


def test_a_slice_that_cannot_be_read_says_so_to_each_bucket(worker: Worker) -> None:
    worker.error = SinkUnavailable("no worker")
    blobs = list(read_slice(None, SPEC, [WINDOW], 2, [TABLE], 3))  # type: ignore[arg-type]  # as above
    assert [(bucket, slice) for (bucket, slice, _, _), _ in blobs] == [(0, 3), (1, 3), (2, 3)]
    assert [content.code for _, content in blobs if isinstance(content, ErrorReport)] == ["sink_unavailable"] * 3


def test_an_error_of_dividing_comes_first_in_every_bucket() -> None:
    def broken() -> Iterator[ShuffledBlob]:
        yield (0, 1, 0, 1), at(5)
        raise SinkUnavailable("no worker")

    (_, *found) = divide_tables(2, broken())
    assert [key for key, _ in found] == [(0, -1, 0, 0), (1, -1, 0, 0)]
    assert all(isinstance(content, ErrorReport) for _, content in found)


def test_the_report_of_an_unexpected_exception_shows_no_secret() -> None:
    keep_secret("hunter2hunter2")
    try:
        report = report_of(ValueError("cannot parse user:hunter2hunter2@host"))
        assert report.message == "ValueError in a task: cannot parse user:***@host"
        assert (report.code, report.retryable) == ("invariant_violated", False)
    finally:
        reveal("hunter2hunter2")


def test_the_report_of_a_known_error_names_its_table() -> None:
    report = report_of(HistoryLost("it is gone").about(TABLE))
    assert replace(report, at=LOST.at) == replace(LOST, message="it is gone", table=TABLE)
