"""`lag`: the time from a write at the source until the row is at the target, at a steady 200 writes a second."""

from __future__ import annotations

import statistics
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from pymongo.collection import Collection

from bench.baselines.baseline import replicate_naively
from bench.figures.at_rest import shares
from bench.product import Product, target_of
from bench.result import Figure
from bench.run import OURS
from bench.workload import Workload, newest
from devstack.stack import DevStack
from source.connection import Client, connect

_RATE, _SECONDS = 200, 20
_BEGINNING = range(5 * _RATE)
"""The first writes are replicated while a long-running task starts; a steady state follows."""
_STEADY = range(_BEGINNING.stop, _BEGINNING.stop + _RATE * _SECONDS)
_WRITES = _STEADY.stop
_BESIDE = range(_STEADY.stop, _STEADY.stop + len(_STEADY))
"""Writes during an index build."""
_LOOK_EVERY = 0.005
_DEADLINE_SECONDS = 120.0
_INDEXED_DOCUMENTS = 400_000
_BUILD_AFTER_SECONDS = 3.0


def lag(stack: DevStack) -> list[Figure]:
    """Compared with the naive replicator."""
    with connect(stack.source_uri) as source, connect(stack.target_uri) as target:
        with Product(stack) as product:
            product.warm_up(source)
            workload = _prepared(source)
            product.until_begun(product.create(workload.database))
            beginning = _lags(source, target, workload, target_of(workload.database), _BEGINNING)
            with product.usage(memory=False) as usage:
                ours = _lags(source, target, workload, target_of(workload.database), _STEADY)
        workload = _prepared(source)
        with _naive(stack, source, workload) as replicated:
            _lags(source, target, workload, workload.database, _BEGINNING)
            naive = _lags(source, target, workload, workload.database, _STEADY)
        spent = replicated()
    note = f"the first {len(_BEGINNING)} writes: median {statistics.median(beginning):.0f}, p99 {p99(beginning):.0f}"
    return [
        Figure.less_is_better("lag_median", statistics.median(ours), "ms", baseline=statistics.median(naive)),
        Figure.less_is_better("lag_p99", p99(ours), "ms", baseline=p99(naive), note=note),
        Figure.less_is_better("cpu_200_writes", usage.millis(*OURS), "ms CPU/s", baseline=spent, note=shares(usage)),
    ]


def lag_beside_an_index_build(stack: DevStack) -> list[Figure]:
    """The lag of one table while a unique index is built on another, compared with the lag without the build."""
    with connect(stack.source_uri) as source, connect(stack.target_uri) as target, Product(stack) as product:
        product.warm_up(source)
        workload = _prepared(source)
        large = Workload(events=_INDEXED_DOCUMENTS, batch=5_000, database=workload.database)
        product_database = target_of(workload.database)
        large_table = source[workload.database]["large"]
        for numbers in (range(first, first + large.batch) for first in range(0, large.events, large.batch)):
            large_table.insert_many(
                [{"_id": number, "u": -number, "s": "x" * 150} for number in numbers], ordered=False
            )
        id = product.create(workload.database, start="initial")
        product.until_copied(id, workload.tables + 1)
        _lags(source, target, workload, product_database, _BEGINNING)
        without = _lags(source, target, workload, product_database, _STEADY)
        build = threading.Timer(_BUILD_AFTER_SECONDS, lambda: large_table.create_index("u", unique=True))
        build.start()
        beside = _lags(source, target, workload, product_database, _BESIDE)
        build.join()
    note = f"medians {statistics.median(beside):.0f} and {statistics.median(without):.0f}"
    return [Figure.less_is_better("lag_p99_beside_build", p99(beside), "ms", baseline=p99(without), note=note)]


def _prepared(source: Client) -> Workload:
    workload = Workload(events=_WRITES, database=f"bench_{uuid.uuid4().hex[:8]}")
    workload.prepare(source)
    return workload


@contextmanager
def _naive(stack: DevStack, source: Client, workload: Workload) -> Iterator[Callable[[], float]]:
    """Yields a function that returns its CPU time per second; it is called after all writes have arrived."""
    start_ts = newest(source).ts
    with ThreadPoolExecutor(1) as thread:
        replicated = thread.submit(
            replicate_naively, stack, start_ts=start_ts, events=_WRITES, database=workload.database
        )
        time.sleep(1.0)
        yield lambda: replicated.result().millis("itself")


def _lags(source: Client, target: Client, workload: Workload, target_database: str, numbers: range) -> list[float]:
    [table] = workload.names()
    rows = source[workload.database][table]
    arriving = arriving_in(target[target_database][table])
    return lags(lambda number: rows.insert_one({"_id": number}), arriving, numbers)


def arriving_in(collection: Collection[dict[str, Any]]) -> Callable[[int], Iterable[int]]:
    return lambda first: [each["_id"] for each in collection.find({"_id": {"$gte": first}}, {"_id": 1})]


def lags(
    write: Callable[[int], object], arriving: Callable[[int], Iterable[int]], numbers: range, *, rate: float = _RATE
) -> list[float]:
    """Milliseconds from each write's acknowledgement to its arrival; too long by at most the pause between two reads. `arriving`: what has come, from
    a number on.
    """
    written: dict[int, float] = {}
    arrived: dict[int, float] = {}

    def write_all() -> None:
        begun_at = time.monotonic()
        for count, number in enumerate(numbers):
            time.sleep(max(0.0, begun_at + count / rate - time.monotonic()))
            write(number)
            written[number] = time.monotonic()

    writer = threading.Thread(target=write_all, daemon=True)
    writer.start()
    deadline, missing_from = time.monotonic() + len(numbers) / rate + _DEADLINE_SECONDS, numbers.start
    while len(arrived) < len(numbers):
        if time.monotonic() > deadline:
            raise TimeoutError(
                f"{len(arrived)} of {len(numbers)} writes arrived, {_DEADLINE_SECONDS:g} s after the last one"
            )
        found = arriving(missing_from)
        now = time.monotonic()
        for number in filter(numbers.__contains__, found):
            arrived.setdefault(number, now)
        while missing_from in arrived:
            missing_from += 1
        time.sleep(_LOOK_EVERY)
    writer.join()
    return [max(0.0, arrived[number] - written[number]) * 1e3 for number in numbers]


def p99(values: list[float]) -> float:
    return statistics.quantiles(values, n=100)[98]
