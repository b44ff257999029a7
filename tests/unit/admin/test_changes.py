"""A stream of the admin API wakes with changes, and ends with its call."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

from admin.cluster_reader import Changes, ClusterReader, ServingNode
from changefeed.lifecycle import ErrorReport
from coordination.layout import Layout
from coordination.mirror import Mirror
from tests.memory_etcd import MemoryEtcd
from tests.until import PATIENCE_SECONDS


class _Call:
    def __init__(self, *, over: bool = False) -> None:
        self._over = over
        self.callbacks: list[Callable[[], None]] = []

    def when_over(self, callback: Callable[[], None]) -> bool:
        self.callbacks.append(callback)
        return not self._over


def _changes(call: _Call, stopping: threading.Event | None = None) -> Changes:
    """It polls once an hour: an earlier return means that a change woke it."""
    reader = ClusterReader(Mirror(MemoryEtcd().connect(), "/"), Layout("c"))
    return Changes(reader, call.when_over, stopping or threading.Event(), lambda: None, timedelta(hours=1))


def test_what_is_there_is_told_at_once() -> None:
    assert _changes(_Call()).wait()


def test_a_call_that_ended_before_wakes_nobody() -> None:
    assert not _changes(_Call(over=True)).wait()


def test_a_stopping_server_ends_the_stream() -> None:
    stopping = threading.Event()
    stopping.set()
    assert not _changes(_Call(), stopping).wait()


def test_a_stream_ends_with_its_call_and_not_some_time_later() -> None:
    call = _Call()
    watched = _changes(call)
    assert watched.wait()
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(watched.wait)
        for callback in call.callbacks:
            callback()
        assert waiting.result(PATIENCE_SECONDS) is False


def test_a_node_that_can_no_longer_write_wakes_the_stream_though_nothing_changes_in_etcd() -> None:
    troubles: list[ErrorReport | None] = [None]
    serving = ServingNode(unwritable=lambda: troubles[-1])
    reader = ClusterReader(Mirror(MemoryEtcd().connect(), "/"), Layout("c"), serving)
    watched = Changes(reader, _Call().when_over, threading.Event(), lambda: None, timedelta(milliseconds=10))
    assert watched.wait()
    troubles.append(ErrorReport(code="coordination_full", message="full", retryable=True, at=datetime.now(UTC)))
    assert watched.wait()
