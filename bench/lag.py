"""How long after a write at the source a row stands at the target, at a steady 200 writes a second."""

from __future__ import annotations

import statistics
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from bench.baseline import replicate_naively
from bench.product import Product, target_of
from bench.replication import OURS
from bench.result import Result
from bench.workload import Workload, newest
from devstack.stack import DevStack
from source.connection import Client, connect

_RATE, _SECONDS = 200, 15
_WRITES = _RATE * _SECONDS
_LOOK_EVERY = 0.02
_DEADLINE_SECONDS = 120.0


def lag_200ops(stack: DevStack) -> list[Result]:
    with connect(stack.source_uri) as source, connect(stack.target_uri) as target:
        with Product(stack) as product:
            product.warm_up(source)
            workload = _prepared(source)
            id = product.create(workload.database)
            product.until_begun(id)
            with product.usage() as usage:
                ours = _lags(source, target, workload, target_of(workload.database))
        workload = _prepared(source)
        with _naive(stack, source, workload):
            naive = _lags(source, target, workload, workload.database)
    cores = ", ".join(f"{part} {usage.cpu[part] / usage.seconds:.2f}" for part in OURS)
    note = f"95 of 100 within {_percentile(ours, 95):.0f} (baseline {_percentile(naive, 95):.0f}); cores busy: {cores}"
    medians = statistics.median(ours), statistics.median(naive)
    return [Result.less_is_better("lag_200ops", medians[0], "ms", baseline=medians[1], note=note)]


def _prepared(source: Client) -> Workload:
    workload = Workload(events=_WRITES, database=f"bench_{uuid.uuid4().hex[:8]}")
    workload.prepare(source)
    return workload


@contextmanager
def _naive(stack: DevStack, source: Client, workload: Workload) -> Iterator[None]:
    start_ts = newest(source).ts
    with ThreadPoolExecutor(1) as thread:
        replicated = thread.submit(
            replicate_naively,
            stack.source_uri,
            stack.target_uri,
            start_ts=start_ts,
            events=_WRITES,
            database=workload.database,
        )
        time.sleep(1.0)
        yield
        replicated.result()


def _lags(source: Client, target: Client, workload: Workload, target_database: str) -> list[float]:
    """Milliseconds for each write, from its acknowledgement on; up to the pause between two looks too much."""
    [table] = workload.names()
    written = [0.0] * _WRITES
    arrived: dict[int, float] = {}

    def write() -> None:
        begun_at = time.monotonic()
        for number in range(_WRITES):
            time.sleep(max(0.0, begun_at + number / _RATE - time.monotonic()))
            source[workload.database][table].insert_one({"_id": number})
            written[number] = time.monotonic()

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    deadline, missing_from = time.monotonic() + _DEADLINE_SECONDS, 0
    while len(arrived) < _WRITES:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{len(arrived)} of {_WRITES} writes arrived within {_DEADLINE_SECONDS:g} s")
        found = list(target[target_database][table].find({"_id": {"$gte": missing_from}}, {"_id": 1}))
        now = time.monotonic()
        for document in found:
            arrived.setdefault(document["_id"], now)
        while missing_from in arrived:
            missing_from += 1
        time.sleep(_LOOK_EVERY)
    writer.join()
    return [max(0.0, arrived[number] - written[number]) * 1e3 for number in range(_WRITES)]


def _percentile(values: list[float], percent: int) -> float:
    return statistics.quantiles(values, n=100)[percent - 1]
