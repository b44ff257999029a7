"""The thread around a watch: what it hands on, and when it ends."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import timedelta

from changefeed.cluster_time import ClusterTime
from changefeed.errors import HistoryLost, SourceUnavailable
from changefeed.position import Position
from source.ddl_watch import DdlBatch
from source.watch_thread import WatchThread

DEADLINE_SECONDS = 10.0
BATCH = DdlBatch(resolved=Position(ClusterTime(1, 1)), committed_ts=ClusterTime(1, 1))


class ScriptedWatch:
    def __init__(self, steps: Sequence[DdlBatch | Exception]) -> None:
        self._steps = list(steps)
        self.closed = threading.Event()

    def poll(self) -> DdlBatch:
        step = self._steps.pop(0) if self._steps else BATCH
        if isinstance(step, Exception):
            raise step
        return step

    def close(self) -> None:
        self.closed.set()


class Heard:
    def __init__(self) -> None:
        self.errors: list[Exception] = []
        self.batch = threading.Event()

    def on_batch(self, batch: DdlBatch) -> None:
        self.batch.set()

    def on_error(self, error: Exception) -> None:
        self.errors.append(error)


def test_it_goes_on_after_a_retryable_error() -> None:
    gone = SourceUnavailable("gone", retry_after=timedelta(0))
    watch, heard = ScriptedWatch([gone]), Heard()
    with WatchThread(watch, on_batch=heard.on_batch, on_error=heard.on_error):
        assert heard.batch.wait(DEADLINE_SECONDS)
    assert heard.errors == [gone]
    assert watch.closed.is_set()


def test_it_ends_with_a_permanent_error() -> None:
    lost = HistoryLost("lost")
    watch, heard = ScriptedWatch([lost]), Heard()
    with WatchThread(watch, on_batch=heard.on_batch, on_error=heard.on_error):
        assert watch.closed.wait(DEADLINE_SECONDS)
    assert heard.errors == [lost]
    assert not heard.batch.is_set()


def test_a_bug_is_handed_on_and_not_swallowed() -> None:
    bug = KeyError("ns")
    watch, heard = ScriptedWatch([bug]), Heard()
    with WatchThread(watch, on_batch=heard.on_batch, on_error=heard.on_error):
        assert watch.closed.wait(DEADLINE_SECONDS)
    assert heard.errors == [bug]


def test_stopping_does_not_wait_out_a_long_pause_and_may_be_repeated() -> None:
    watch, heard = ScriptedWatch([SourceUnavailable("gone", retry_after=timedelta(hours=1))]), Heard()
    thread = WatchThread(watch, on_batch=heard.on_batch, on_error=heard.on_error)
    thread.start()
    thread.stop()
    thread.stop()
    assert watch.closed.is_set()
