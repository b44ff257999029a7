"""From source to target through the product as users run it, beside the naive replicator on the same events.

The servers share the machine. What they need stands in the note of each figure: where their part is large they decide the throughput.
A part of the product's CPU time is spent by the second, not by the event (`idle_cpu`), and slow servers make many seconds of few events: the
figures that travel to other machines are those of `replayed.py`.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from bench.baseline import replicate_naively
from bench.product import BLACKHOLE, Product
from bench.result import Result
from bench.usage import JVM, WORKERS, Usage
from bench.workload import Workload, newest
from changefeed.position import Window
from devstack.stack import DevStack
from source.connection import Client, connect

OURS = ("owner", "processor", JVM, WORKERS)
_EVENTS, _TABLES = 20_000, 4
_FOLLOWED_EVENTS, _FOLLOWED_BATCH = 6_000, 100


@dataclass(frozen=True, slots=True)
class Run:
    """One side's replication of so many events."""

    usage: Usage
    events: int

    @property
    def rate(self) -> float:
        return self.events / self.usage.seconds

    def micros(self, *parts: str) -> float:
        """CPU time per event."""
        return sum(self.usage.cpu[part] for part in parts) / self.events * 1e6

    @property
    def shares(self) -> str:
        return ", ".join(f"{part} {self.micros(part):.0f}" for part in sorted(self.usage.cpu)) + " us CPU each"


@dataclass(frozen=True, slots=True)
class Pair:
    """The same events, replicated by the product and by the naive replicator."""

    ours: Run
    naive: Run

    def rate(self, name: str, unit: str = "events/s") -> Result:
        rates = self.ours.rate, self.naive.rate
        return Result.more_is_better(name, rates[0], unit, baseline=rates[1], note=self.ours.shares)

    def cpu(self, name: str, unit: str = "us/event") -> Result:
        micros = self.ours.micros(*OURS), self.naive.micros("naive")
        return Result.less_is_better(name, micros[0], unit, baseline=micros[1], note=self.ours.shares)

    def peak(self, name: str) -> Result:
        peak = {part: self.ours.usage.peak[part] / 2**20 for part in OURS}
        note = ", ".join(f"{part} {size:.0f}" for part, size in peak.items())
        naive = self.naive.usage.peak["naive"] / 2**20
        return Result.less_is_better(name, sum(peak.values()), "MiB", baseline=naive, note=note)


def replication(stack: DevStack) -> list[Result]:
    """What was written is caught up with, inserts and then updates; then writes are followed as they come."""
    with connect(stack.source_uri) as source, Product(stack) as product:
        product.warm_up(source)
        return list(_Replication(stack, source, product).results())


class _Replication:
    def __init__(self, stack: DevStack, source: Client, product: Product) -> None:
        self._stack, self._source, self._product = stack, source, product

    def results(self) -> Iterator[Result]:
        workload = Workload(events=_EVENTS, tables=_TABLES, database=_new_database())
        workload.prepare(self._source)
        for kind, write in (("insert", workload.insert), ("update", workload.update)):
            window = write(self._source)
            caught_up = self._catch_up(workload, window, self._stack.target_uri)
            if kind == "insert":
                yield caught_up.rate("replication_catchup")
                yield caught_up.peak("peak_memory")
            else:
                yield caught_up.rate("replication_catchup_updates")
            yield caught_up.cpu(f"cpu_{kind}_live")
            yield self._catch_up(workload, window, BLACKHOLE).cpu(f"cpu_{kind}_live_blackhole")
        yield self._follow().rate("replication_following")

    def _catch_up(self, workload: Workload, window: Window, sink: str) -> Pair:
        """From when the changefeed knows its tables."""
        id = self._product.create(workload.database, sink=sink, start=str(window.start.ts))
        self._product.until_begun(id)
        with self._product.usage() as usage:
            self._product.until_at(id, window.end)
        self._product.remove(id)
        naive = replicate_naively(
            self._stack.source_uri,
            sink,
            start_ts=window.start.ts,
            events=workload.events,
            database=workload.database,
        )
        return Pair(Run(usage, workload.events), Run(naive, workload.events))

    def _follow(self) -> Pair:
        """From the first write to the last one's arrival."""
        workload = Workload(events=_FOLLOWED_EVENTS, batch=_FOLLOWED_BATCH, database=_new_database())
        workload.prepare(self._source)
        id = self._product.create(workload.database)
        self._product.until_begun(id)
        with self._product.usage() as usage:
            self._product.until_at(id, workload.insert(self._source).end)
        self._product.remove(id)
        return Pair(Run(usage, workload.events), Run(self._follow_naively(), workload.events))

    def _follow_naively(self) -> Usage:
        workload = Workload(events=_FOLLOWED_EVENTS, batch=_FOLLOWED_BATCH, database=_new_database())
        workload.prepare(self._source)
        start_ts = newest(self._source).ts
        with ThreadPoolExecutor(1) as thread:
            written = thread.submit(workload.insert, self._source)
            usage = replicate_naively(
                self._stack.source_uri,
                self._stack.target_uri,
                start_ts=start_ts,
                events=workload.events,
                database=workload.database,
            )
            written.result()
        return usage


def _new_database() -> str:
    return f"bench_{uuid.uuid4().hex[:8]}"
