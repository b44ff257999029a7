"""`files`: writes a backlog of changes as messages into files, by the product and by a naive producer of the same lines or columns."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

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
            window = write(self._source)
            found = self._written(workload, window)
            yield found.rate(f"files_{name}")
            yield found.cpu(f"cpu_files_{name}")
        yield from self._with_zstd(workload, window)
        found = self._written(workload, window, "&format=parquet", naively=".parquet")
        yield found.rate("files_parquet")
        yield found.cpu("cpu_files_parquet")

    def _with_zstd(self, workload: Workload, window: Window) -> Iterator[Figure]:
        """Beside the same changes with gzip."""
        runs, sizes = [], []
        for compression in ("zstd", "gzip"):
            directory = self._stack.directory / uuid.uuid4().hex
            runs.append(
                self._product_run(workload, window, f"file://{directory}?commit_interval=1s&compression={compression}")
            )
            sizes.append(sum(path.stat().st_size for path in directory.glob("data/*/*")) / workload.events)
        found = Comparison(ours=runs[0], naive=runs[1])
        yield found.rate("files_zstd")
        yield found.cpu("cpu_files_zstd")
        yield Figure.less_is_better("bytes_files_zstd", sizes[0], "bytes/event", baseline=sizes[1])

    def _written(self, workload: Workload, window: Window, query: str = "", *, naively: str = ".json.gz") -> Comparison:
        directory = self._stack.directory / uuid.uuid4().hex
        ours = self._product_run(workload, window, f"file://{directory}?commit_interval=1s{query}")
        naive = replicate_naively(
            self._stack,
            start_ts=window.start.ts,
            events=workload.events,
            database=workload.database,
            target=f"file://{directory}.naive{naively}",
        )
        return Comparison(ours=ours, naive=Run(naive, workload.events))

    def _product_run(self, workload: Workload, window: Window, sink: str) -> Run:
        id = self._product.create(workload.database, sink=sink, start=str(window.start.ts))
        self._product.until_begun(id)
        with self._product.usage() as ours:
            self._product.until_at(id, window.end)
        self._product.remove(id)
        return Run(ours, workload.events)
