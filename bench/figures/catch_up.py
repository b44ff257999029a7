"""`catch_up`: replicates a backlog of writes by the product as users run it, by the naive replicator, and at the floor.

The same backlog is replicated several times by both in turn, because runs of a few seconds scatter by a third; a figure is of the pair with the
median ratio.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

from bench.baselines.baseline import replicate_naively, send_at_the_floor
from bench.baselines.recorder import Recorder
from bench.product import Product, target_of
from bench.result import Figure
from bench.run import Comparison, Run
from bench.workload import Workload
from changefeed.position import Window
from devstack.stack import DevStack
from source.connection import Client, connect

_EVENTS, _TABLES, _PAIRS = 2_000_000, 4, 5
_KINDS = ("insert", "mixed")


def catch_up(stack: DevStack) -> list[Figure]:
    with connect(stack.source_uri) as source, connect(stack.target_uri) as target, Product(stack) as product:
        product.warm_up(source)
        return list(_CatchUp(stack, source, target, product).results())


class _CatchUp:
    """Each run replicates the inserts into an empty target, or the mixed writes into what the inserts left."""

    def __init__(self, stack: DevStack, source: Client, target: Client, product: Product) -> None:
        self._stack, self._source, self._target, self._product = stack, source, target, product
        self._workload = Workload(events=_EVENTS, tables=_TABLES, database=f"bench_{uuid.uuid4().hex[:8]}")

    def results(self) -> Iterator[Figure]:
        self._workload.prepare(self._source)
        inserted = self._replicated(self._workload.insert(self._source))
        yield inserted.rate("catch_up_insert")
        yield inserted.cpu("cpu_insert")
        yield inserted.source_cpu("source_cpu_insert")
        yield inserted.peak("peak_memory")
        self._copy(target_of(self._workload.database), self._left)
        mixed = self._replicated(self._workload.mix(self._source))
        yield mixed.rate("catch_up_mixed")
        yield mixed.cpu("cpu_mixed")
        yield mixed.source_cpu("source_cpu_mixed")

    def _replicated(self, window: Window) -> Comparison:
        floor = self._floor(window)
        pairs = [(self._ours(window), self._naive(window)) for _ in range(_PAIRS)]
        ours, naive = sorted(pairs, key=lambda pair: pair[0].rate / pair[1].rate)[_PAIRS // 2]
        return Comparison(ours=ours, naive=naive, floor=floor)

    def _ours(self, window: Window, sink: str | None = None) -> Run:
        """Writes to the routed name, the naive one to the original name. From the moment when the changefeed has begun."""
        self._prepare(target_of(self._workload.database))
        id = self._product.create(self._workload.database, sink=sink, start=str(window.start.ts))
        self._product.until_begun(id)
        with self._product.usage() as usage:
            self._product.until_at(id, window.end)
        self._product.remove(id)
        self._product.until_gone(id)
        return Run(usage, _EVENTS)

    def _naive(self, window: Window) -> Run:
        database = self._workload.database
        self._prepare(database)
        usage = replicate_naively(self._stack, start_ts=window.start.ts, events=_EVENTS, database=database)
        return Run(usage, _EVENTS)

    def _floor(self, window: Window) -> Run:
        """The product's commands of a run through a recorder, sent again."""
        address, commands = self._target.primary, self._stack.directory / "commands"
        assert address is not None
        with Recorder(address, commands) as recorder:
            self._ours(window, recorder.uri)
        self._prepare(target_of(self._workload.database))
        usage = send_at_the_floor(self._stack, window, commands)
        commands.unlink()
        return Run(usage, _EVENTS)

    @property
    def _left(self) -> str:
        """The database with what the inserts left."""
        return f"{self._workload.database}_left"

    def _prepare(self, database: str) -> None:
        self._target.drop_database(database)
        self._copy(self._left, database)

    def _copy(self, database: str, to: str) -> None:
        """Within the target."""
        for name in self._target[database].list_collection_names():
            self._target[database][name].aggregate([{"$out": {"db": to, "coll": name}}])
