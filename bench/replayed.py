"""What an event costs when no server's work stands beside it: recorded replies in, commands to nobody out."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path

from bench.baseline import replicate_naively
from bench.product import BLACKHOLE
from bench.recorded import FIRST_SECOND
from bench.replayed_job import ReplayedJob
from bench.result import LOGS, Result
from bench.usage import JVM, WORKERS, Usage
from changefeed.cluster_time import ClusterTime
from devstack.ports import free_port
from devstack.stack import DevStack

_ROOT = Path(__file__).parents[1]
_EVENTS = 200_000
_NAIVE_EVENTS = 40_000
_REPETITIONS = 4
"""The least of them counts: whatever else runs on the machine can only add to it."""


def pipeline_blackhole(stack: DevStack) -> list[Result]:
    """A mixture of rows, to nothing: the reading half of the product, beside that of the naive replicator."""
    with _server("mixed") as source:
        return _both_ways("pipeline_blackhole", stack, source, BLACKHOLE)


def cpu(stack: DevStack) -> list[Result]:
    """Inserts, and updates, written to a target that takes everything at once."""
    results = []
    for kind in ("insert", "update"):
        with _server(kind) as source, _server(kind, events=1) as target:
            results += _both_ways(f"cpu_{kind}", stack, source, target)
    return results


def _both_ways(name: str, stack: DevStack, source: str, sink: str) -> list[Result]:
    """In one task, as when following; in slices with a shuffle, as when catching up."""
    naive = _naive(source, sink)
    results = []
    for suffix, slices in (("", 1), ("_sliced", 4)):
        log = LOGS / "replayed_job.log"
        job = ReplayedJob(etcd=stack.etcd_endpoint, source=source, sink=sink, events=_EVENTS, slices=slices, log=log)
        try:
            run = min((job.run() for _ in range(_REPETITIONS)), key=attrgetter("cpu_seconds"))
        finally:
            job.close()
        micros = run.cpu_seconds / _EVENTS * 1e6
        results.append(Result.less_is_better(f"{name}{suffix}", micros, "us/event", baseline=naive, note=_parts(run)))
    return results


def _parts(run: Usage) -> str:
    """Which process needs how much of it."""
    shares = (f"{part} {run.cpu[part] / _EVENTS * 1e6:.1f}" for part in (WORKERS, JVM, "driver"))
    return f"{', '.join(shares)}; {_EVENTS / run.seconds:,.0f} events/s"


def _naive(source: str, target: str) -> float:
    start_ts = ClusterTime(FIRST_SECOND, 0)
    runs = (
        replicate_naively(source, target, start_ts=start_ts, events=_NAIVE_EVENTS).cpu_seconds
        for _ in range(_REPETITIONS)
    )
    return min(runs) / _NAIVE_EVENTS * 1e6


@contextmanager
def _server(kind: str, *, events: int = _EVENTS) -> Iterator[str]:
    port = free_port()
    process = subprocess.Popen([sys.executable, "-m", "bench.replay_server", str(port), kind, str(events)], cwd=_ROOT)
    try:
        _wait_until_open(port)
        yield f"mongodb://127.0.0.1:{port}/?replicaSet=replay"
    finally:
        process.terminate()
        process.wait()


def _wait_until_open(port: int) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return
