"""`kafka`: writes a backlog of changes as messages into topics, by the product and by a naive producer of the same JSON.

The broker's own CPU is not counted. Both send it about the same bytes.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

from bench.baselines.baseline import replicate_naively
from bench.product import Product
from bench.result import Figure
from bench.run import Comparison, Run
from bench.workload import Workload
from changefeed.position import Window
from devstack.kafka.broker import KafkaBroker
from devstack.stack import DevStack
from source.connection import Client, connect

_EVENTS, _WARM_EVENTS, _TABLES = 300_000, 50_000, 4


def kafka(stack: DevStack) -> list[Figure]:
    directory = stack.directory / "kafka"
    with (
        KafkaBroker(directory, stack.directory / "log" / "kafka.log") as broker,
        connect(stack.source_uri) as source,
        Product(stack) as product,
    ):
        product.warm_up(source)
        return list(_Topics(stack, source, product, broker).results())


class _Topics:
    def __init__(self, stack: DevStack, source: Client, product: Product, broker: KafkaBroker) -> None:
        self._stack, self._source, self._product, self._broker = stack, source, product, broker

    def results(self) -> Iterator[Figure]:
        self._warm_up()
        workload = _workload(_EVENTS)
        workload.prepare(self._source)
        for name, write in (("insert", workload.insert), ("mixed", workload.mix)):
            window = write(self._source)
            found = self._written(workload, window)
            yield found.rate(f"kafka_{name}")
            yield found.cpu(f"cpu_kafka_{name}")
        bson = Comparison(ours=self._run(workload, window, "encoding=bson"), naive=found.naive)
        yield bson.rate("kafka_mixed_bson")
        yield bson.cpu("cpu_kafka_mixed_bson")

    def _warm_up(self) -> None:
        """The broker's code is compiled."""
        workload = _workload(_WARM_EVENTS)
        workload.prepare(self._source)
        self._run(workload, workload.insert(self._source))

    def _written(self, workload: Workload, window: Window) -> Comparison:
        ours = self._run(workload, window)
        topic = f"naive-{uuid.uuid4().hex}"
        self._broker.create_topic(topic, partitions=6)
        naive = replicate_naively(
            self._stack,
            start_ts=window.start.ts,
            events=workload.events,
            database=workload.database,
            target=f"kafka://{self._broker.bootstrap}/{topic}",
        )
        return Comparison(ours=ours, naive=Run(naive, workload.events))

    def _run(self, workload: Workload, window: Window, query: str = "") -> Run:
        sink = f"kafka://{self._broker.bootstrap}/{uuid.uuid4().hex}?{query}"
        id = self._product.create(workload.database, sink=sink, start=str(window.start.ts))
        self._product.until_begun(id)
        with self._product.usage() as ours:
            self._product.until_at(id, window.end)
        self._product.remove(id)
        return Run(ours, workload.events)


def _workload(events: int) -> Workload:
    return Workload(events=events, tables=_TABLES, database=f"bench_{uuid.uuid4().hex[:8]}")
