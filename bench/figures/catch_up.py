"""`catch_up`: replicates a backlog of writes by the product as users run it, by the naive replicator, and at the floor."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

from bench.baselines.baseline import insert_at_the_floor, replicate_naively
from bench.product import Product
from bench.result import Figure
from bench.run import Comparison, Run
from bench.workload import Workload
from changefeed.position import Window
from devstack.stack import DevStack
from source.connection import Client, connect

_EVENTS, _TABLES = 200_000, 4


def catch_up(stack: DevStack) -> list[Figure]:
    with connect(stack.source_uri) as source, Product(stack) as product:
        product.warm_up(source)
        return list(_CatchUp(stack, source, product).results())


class _CatchUp:
    def __init__(self, stack: DevStack, source: Client, product: Product) -> None:
        self._stack, self._source, self._product = stack, source, product

    def results(self) -> Iterator[Figure]:
        workload = Workload(events=_EVENTS, tables=_TABLES, database=f"bench_{uuid.uuid4().hex[:8]}")
        workload.prepare(self._source)
        inserted = self._replicated(workload, workload.insert, floor=True)
        yield inserted.rate("catch_up_insert")
        yield inserted.cpu("cpu_insert")
        yield inserted.source_cpu("source_cpu_insert")
        yield inserted.peak("peak_memory")
        mixed = self._replicated(workload, workload.mix, floor=False)
        yield mixed.rate("catch_up_mixed")
        yield mixed.cpu("cpu_mixed")
        yield mixed.source_cpu("source_cpu_mixed")

    def _replicated(self, workload: Workload, write: Callable[[Client], Window], *, floor: bool) -> Comparison:
        """Ours writes to the routed name, the naive one to the original name. The floor is last and starts with an empty target again."""
        window = write(self._source)
        ours, naive = self._ours(workload, window), self._naive(workload, window)
        return Comparison(ours=ours, naive=naive, floor=self._floor(workload, window) if floor else None)

    def _ours(self, workload: Workload, window: Window) -> Run:
        """Measures from the moment when the changefeed has begun."""
        id = self._product.create(workload.database, start=str(window.start.ts))
        self._product.until_begun(id)
        with self._product.usage() as usage:
            self._product.until_at(id, window.end)
        self._product.remove(id)
        return Run(usage, workload.events)

    def _naive(self, workload: Workload, window: Window) -> Run:
        usage = replicate_naively(
            self._stack, start_ts=window.start.ts, events=workload.events, database=workload.database
        )
        return Run(usage, workload.events)

    def _floor(self, workload: Workload, window: Window) -> Run:
        """Drops the tables of the naive replicator and inserts the same documents again; later the naive replicator continues from them."""
        with connect(self._stack.target_uri) as target:
            for name in workload.names():
                target[workload.database][name].drop()
        return Run(insert_at_the_floor(self._stack, window, database=workload.database), workload.events)
