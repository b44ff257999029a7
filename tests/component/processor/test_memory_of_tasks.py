"""What a worker's memory grows to is bounded by bytes in flight, not by how much a window holds."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.recorded import EVENTS_A_SECOND, FIRST_SECOND, replies
from bench.replay_server import ReplayServer

_MOST_BYTES = 512 << 20
_LARGE = 16 * 1024 * 1024 - 4096


class LargeEvents(ReplayServer):
    """One event a reply, each with a document of 16 MB, made when it is asked for."""

    def __init__(self, events: int) -> None:
        super().__init__(0, "insert", 1)
        self._events = events
        self.end = FIRST_SECOND + 1

    def at(self, number: int) -> bytes:
        if number == 0:
            self._upcoming = replies("insert", events=self._events, per_reply=1, document_bytes=_LARGE)
        return next(self._upcoming, None) or super().at(1)


@contextmanager
def serving(server: ReplayServer) -> Iterator[int]:
    with server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


def largest(way: str, etcd: str, port: int, seconds: int) -> tuple[int, int]:
    script = Path(__file__).with_name("task_memory.py")
    root = str(Path(__file__).parents[3])
    done = subprocess.run(
        [sys.executable, str(script), way, etcd, str(port), str(seconds)],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": root},
    )
    assert done.returncode == 0, done.stderr
    applied, size = map(int, done.stdout.split()[-2:])
    return applied, size


def test_a_window_of_many_events(etcd_endpoint: str) -> None:
    """Of 40 MB, which would be 400 MB as objects."""
    with serving(ReplayServer(0, "insert", 100_000)) as port:
        applied, size = largest("narrow", etcd_endpoint, port, 100_000 // EVENTS_A_SECOND)
    assert applied == 100_000
    assert size < _MOST_BYTES


def test_a_window_of_documents_of_16_mb(etcd_endpoint: str) -> None:
    with serving(LargeEvents(40)) as port:
        for way in ("narrow", "wide"):
            applied, size = largest(way, etcd_endpoint, port, 1)
            assert applied == 40
            assert size < _MOST_BYTES, way
