"""`hot_table`: the lag of fifty calm tables beside one that gets five times the writes that the target can take.

The hot table has a unique index and many others at the target. Without it means: the same writes at the source, but outside the filter.
"""

from __future__ import annotations

import statistics
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pymongo.errors import PyMongoError

from bench.product import Product, target_of
from bench.result import Figure
from bench.workload import newest
from devstack.stack import DevStack
from source.connection import Client, connect

_CALM, _RATE_EACH = 50, 10
_RATE = _CALM * _RATE_EACH
_BEGINNING_SECONDS, _STEADY_SECONDS = 10, 30
_PROBE, _TIMES, _INDEXES = 4_000, 5, 24
_HOT = "hot"
_OPLOG_MB = 20_000.0
_DEADLINE_SECONDS = 120.0


def hot_table(stack: DevStack) -> list[Figure]:
    with connect(stack.source_uri) as source, connect(stack.target_uri) as target, Product(stack) as product:
        product.warm_up(source)
        source.admin.command({"replSetResizeOplog": 1, "size": _OPLOG_MB})
        calm, hot = (f"{kind}_{uuid.uuid4().hex[:8]}" for kind in ("calm", "hot"))
        for number in range(_CALM):
            source[calm].create_collection(f"table{number:02}")
        source[hot].create_collection(_HOT)
        id = product.create(calm, more=hot)
        product.until_begun(id)
        for number in range(_INDEXES):
            target[target_of(hot)][_HOT].create_index(f"f{number}", unique=number == 0)
        most = _most(product, source, id, hot)
        beside = _lags(source, target, calm, hot, most * _TIMES)
        product.remove(id)
        alone = product.create(f"{calm}_alone", more=calm)
        product.until_begun(alone)
        without = _lags(source, target, calm, hot, most * _TIMES)
    note = f"medians {statistics.median(beside):.0f} and {statistics.median(without):.0f}; the hot one: {most * _TIMES:,.0f} writes/s, {most:,.0f} at most"
    return [Figure.less_is_better("lag_p99_beside_hot_table", _p99(beside), "ms", baseline=_p99(without), note=note)]


def _most(product: Product, source: Client, id: Any, hot: str) -> float:
    """The writes a second of the hot table that are replicated at most."""
    source[hot][_HOT].insert_many([_document(-1 - number) for number in range(_PROBE)], ordered=False)
    begun_at = time.monotonic()
    product.until_at(id, newest(source))
    return _PROBE / (time.monotonic() - begun_at)


def _document(number: int) -> dict[str, Any]:
    return (
        {"_id": number}
        | {f"f{field}": (number * 7919 + field * 104729) % 1_000_003 for field in range(1, _INDEXES)}
        | {"f0": number}
    )


@contextmanager
def _heated(source: Client, hot: str, rate: float) -> Iterator[None]:
    stop, table = threading.Event(), source[hot][_HOT]
    batch = max(1, int(rate / 10))

    def heat() -> None:
        number, begun_at = int(time.time() * 1e6), time.monotonic()
        for count in range(10**9):
            if stop.wait(max(0.0, begun_at + count / 10 - time.monotonic())):
                return
            table.insert_many([_document(number + each) for each in range(batch)], ordered=False)
            number += batch

    thread = threading.Thread(target=heat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _lags(source: Client, target: Client, calm: str, hot: str, hot_rate: float) -> list[float]:
    """Milliseconds from each write's acknowledgement until a change stream of the target shows it; the same for both."""
    numbers = range((_BEGINNING_SECONDS + _STEADY_SECONDS) * _RATE)
    first = int(time.time() * 1e6)
    written: dict[int, float] = {}
    arrived: dict[int, float] = {}
    seen = threading.Event()
    stream = target[target_of(calm)].watch([{"$match": {"operationType": "insert"}}], batch_size=1000)

    def look() -> None:
        try:
            for change in stream:
                arrived[change["documentKey"]["_id"]] = time.monotonic()
                if len(arrived) == len(numbers):
                    seen.set()
                    return
        except PyMongoError:
            return

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    with _heated(source, hot, hot_rate):
        begun_at = time.monotonic()
        for count in numbers:
            time.sleep(max(0.0, begun_at + count / _RATE - time.monotonic()))
            source[calm][f"table{count % _CALM:02}"].insert_one({"_id": first + count})
            written[first + count] = time.monotonic()
    if not seen.wait(_DEADLINE_SECONDS):
        raise TimeoutError(f"{len(arrived)} of {len(numbers)} writes arrived within {_DEADLINE_SECONDS:g} s")
    stream.close()
    steady = numbers[_BEGINNING_SECONDS * _RATE :]
    return [max(0.0, arrived[first + count] - written[first + count]) * 1e3 for count in steady]


def _p99(values: list[float]) -> float:
    return statistics.quantiles(values, n=100)[98]
