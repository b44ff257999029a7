"""`hot_table`: the lag of fifty calm tables beside one table that gets five times the writes that the target can take.

The target cannot take more because of a unique index that only it has, over all elements of an array: an update replaces hundreds of its entries.
For the source it changes a small field, which takes little of the cores that all share here. First the target alone shows how many it takes. Then
a changefeed replicates the calm tables, without and with writes to the hot one.

The floor is what the source's own work costs the calm tables on this machine: the same writes go to a table that the changefeed does not have, and
that the target never sees.

The three phases come in turns, each turn with a changefeed of its own, and count together: the machine is shared, and is slower for minutes at a time.
"""

from __future__ import annotations

import statistics
import threading
import time
import uuid
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

from pymongo.errors import PyMongoError
from rich.console import Console

from bench.figures.at_rest import shares
from bench.fixed_work import FixedWork
from bench.hot_writer import TARGET_INDEX, HotWriter, fill, write, written
from bench.product import Product, target_of
from bench.result import Figure
from devstack.stack import DevStack
from source.connection import Client, connect

_CALM, _RATE_EACH, _WRITERS = 50, 10, 5
_RATE = _CALM * _RATE_EACH
_TURNS = 3
_BEGINNING, _STEADY = 15 * _RATE, 60 * _RATE
"""In the first writes the hot table is found, and how much of the target it may have. The rest lasts for a checkpoint of each server, which comes every
minute.
"""
_TIMES, _LEAST_TIMES = 5, 4
"""With fewer writes than this times what the target can take, the figure shows nothing."""
_PROBE_SECONDS, _PROBE_BATCH = 5.0, 10
_HOT = "hot"
_DEADLINE_SECONDS = 60.0

_console = Console(stderr=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lags:
    """Milliseconds from each write's acknowledgement until a change stream of the target shows it, in the steady state."""

    values: list[float]
    work: float
    """Microseconds of CPU for the same computation."""

    @classmethod
    def together(cls, phases: Iterable[Self]) -> Self:
        each = list(phases)
        return cls(
            values=[lag for phase in each for lag in phase.values], work=statistics.fmean(phase.work for phase in each)
        )

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def p99(self) -> float:
        return statistics.quantiles(self.values, n=100)[98]

    def __str__(self) -> str:
        return f"median {self.median:.0f} ms, p99 {self.p99:.0f} ms, fixed work {self.work:.0f} us"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Turn:
    without: _Lags
    floor: _Lags
    beside: _Lags
    reached: float
    """Writes a second to the hot table at the source."""
    replicated: float


def hot_table(stack: DevStack) -> list[Figure]:
    with connect(stack.source_uri) as source, connect(stack.target_uri) as target, Product(stack) as product:
        product.warm_up(source)
        most = _most(target)
        turns = [_turn(stack, source, target, product, most) for _ in range(_TURNS)]
    without, floor = _Lags.together(turn.without for turn in turns), _Lags.together(turn.floor for turn in turns)
    beside = _Lags.together(turn.beside for turn in turns)
    reached = statistics.fmean(turn.reached for turn in turns)
    replicated = statistics.fmean(turn.replicated for turn in turns)
    note = f"{reached:,.0f} writes/s to the hot one, of which {replicated:,.0f} are replicated and the target takes {most:,.0f} at most"
    note += f"; the same computation took {beside.work / without.work:.2f} times the CPU that it took for the baseline"
    median, p99 = "lag_median_beside_hot_table", "lag_p99_beside_hot_table"
    return [
        Figure.less_is_better(median, beside.median, "ms", baseline=without.median, floor=floor.median),
        Figure.less_is_better(p99, beside.p99, "ms", baseline=without.p99, floor=floor.p99, note=note),
    ]


def _turn(stack: DevStack, source: Client, target: Client, product: Product, most: float) -> _Turn:
    database = f"bench_{uuid.uuid4().hex[:8]}"
    _create_tables(source, target, database)
    id = product.create(database)
    product.until_begun(id)
    calm = _CalmTables(source, target, product, database)
    without = calm.lags("the calm tables alone")
    with _elsewhere(stack, source, database, most * _TIMES).running():
        floor = calm.lags("beside the same writes to a table that is not replicated")
    with HotWriter(uri=stack.source_uri, database=database, table=_HOT, rate=most * _TIMES).running() as count:
        begun_at = time.monotonic()
        beside = calm.lags("beside the hot one")
        seconds = time.monotonic() - begun_at
        reached, replicated = count.value / seconds, written(target[target_of(database)][_HOT]) / seconds
    product.remove(id)
    if reached < most * _LEAST_TIMES:
        raise RuntimeError(
            f"the hot table got {reached:.0f} writes/s, and the target takes {most:.0f}: run it on a machine at rest"
        )
    return _Turn(without=without, floor=floor, beside=beside, reached=reached, replicated=replicated)


def _elsewhere(stack: DevStack, source: Client, database: str, rate: float) -> HotWriter:
    """Writes that the changefeed does not want, and the target does not get."""
    elsewhere = f"{database}_elsewhere"
    fill(source[elsewhere][_HOT])
    return HotWriter(uri=stack.source_uri, database=elsewhere, table=_HOT, rate=rate)


def _create_tables(source: Client, target: Client, database: str) -> None:
    for number in range(_CALM):
        source[database].create_collection(_name(number))
    fill(source[database][_HOT])
    hot = target[target_of(database)][_HOT]
    fill(hot)
    hot.create_index(TARGET_INDEX, unique=True)


def _name(number: int) -> str:
    return f"table{number % _CALM:02}"


def _most(target: Client) -> float:
    """How many of the hot table's writes the target takes in a second."""
    table = target[f"probe_{uuid.uuid4().hex[:8]}"][_HOT]
    table.create_index(TARGET_INDEX, unique=True)
    fill(table)
    count, begun_at = 0, time.monotonic()
    while time.monotonic() < begun_at + _PROBE_SECONDS:
        write(table, count + 1, _PROBE_BATCH)
        count += _PROBE_BATCH
    most = count / (time.monotonic() - begun_at)
    target.drop_database(table.database.name)
    _console.print(f"the target takes {most:,.0f} writes/s of the hot table")
    return most


@dataclass(slots=True)
class _CalmTables:
    source: Client
    target: Client
    product: Product
    database: str

    def lags(self, what: str) -> _Lags:
        first, count = time.time_ns(), _BEGINNING + _STEADY
        written: dict[int, float] = {}
        with self._arrivals(count) as (arrived, complete), ThreadPoolExecutor(_WRITERS) as writers:
            begun_at = time.monotonic()

            def write(part: range) -> None:
                for number in part:
                    time.sleep(max(0.0, begun_at + number / _RATE - time.monotonic()))
                    self.source[self.database][_name(number)].insert_one({"_id": first + number})
                    written[first + number] = time.monotonic()

            writing = [writers.submit(write, range(each, count, _WRITERS)) for each in range(_WRITERS)]
            time.sleep(_BEGINNING / _RATE)
            with self.product.usage(memory=False) as usage, FixedWork() as work:
                for part in writing:
                    part.result()
            if not complete.wait(_DEADLINE_SECONDS):
                raise TimeoutError(f"{len(arrived)} of {count} writes arrived within {_DEADLINE_SECONDS:g} s")
        steady = range(first + _BEGINNING, first + count)
        values = [max(0.0, arrived[id] - written[id]) * 1e3 for id in steady]
        lags = _Lags(values=values, work=work.micros)
        _console.print(f"{what}: {lags}, CPU {shares(usage)}")
        return lags

    @contextmanager
    def _arrivals(self, count: int) -> Iterator[tuple[dict[int, float], threading.Event]]:
        """When each `_id` arrived, and whether all have."""
        arrived: dict[int, float] = {}
        complete = threading.Event()
        database = target_of(self.database)
        calm = {"operationType": "insert", "ns.db": database, "ns.coll": {"$ne": _HOT}}
        stream = self.target[database].watch([{"$match": calm}], batch_size=1000)

        def look() -> None:
            try:
                for change in stream:
                    arrived[change["documentKey"]["_id"]] = time.monotonic()
                    if len(arrived) == count:
                        complete.set()
                        return
            except PyMongoError:
                return  # it was closed before all had arrived

        threading.Thread(target=look, daemon=True).start()
        try:
            yield arrived, complete
        finally:
            stream.close()
