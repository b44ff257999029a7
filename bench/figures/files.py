"""`files`: writes a backlog of changes as messages into files, by the product and by a naive producer of the same lines."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

from bench.baselines.baseline import replicate_naively
from bench.product import Product
from bench.result import Figure
from bench.run import Comparison, Run
from bench.workload import Workload
from changefeed.position import Window
from devstack.stack import DevStack
from source.connection import Client, connect

_EVENTS, _TABLES = 600_000, 4


def files(stack: DevStack) -> list[Figure]:
    with connect(stack.source_uri) as source, Product(stack) as product:
        product.warm_up(source)
        return list(_Files(stack, source, product).results())


class _Files:
    def __init__(self, stack: DevStack, source: Client, product: Product) -> None:
        self._stack, self._source, self._product = stack, source, product

    def results(self) -> Iterator[Figure]:
        workload = Workload(events=_EVENTS, tables=_TABLES, database=f"bench_{uuid.uuid4().hex[:8]}")
        workload.prepare(self._source)
        for name, write in (("insert", workload.insert), ("mixed", workload.mix)):
            found = self._written(workload, write)
            yield found.rate(f"files_{name}")
            yield found.cpu(f"cpu_files_{name}")

    def _written(self, workload: Workload, write: Callable[[Client], Window]) -> Comparison:
        window = write(self._source)
        directory = self._stack.directory / uuid.uuid4().hex
        id = self._product.create(
            workload.database, sink=f"file://{directory}?commit_interval=1s", start=str(window.start.ts)
        )
        self._product.until_begun(id)
        with self._product.usage() as ours:
            self._product.until_at(id, window.end)
        self._product.remove(id)
        naive = replicate_naively(
            self._stack,
            start_ts=window.start.ts,
            events=workload.events,
            database=workload.database,
            target=f"file://{directory}.naive",
        )
        return Comparison(ours=Run(ours, workload.events), naive=Run(naive, workload.events))
