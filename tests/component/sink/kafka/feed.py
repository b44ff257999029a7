"""`KafkaFeed`: the parts of a sink in Kafka without a node."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence

from changefeed.config.sinks.kafka_options import KafkaSinkOptions
from changefeed.errors import SinkUnavailable
from changefeed.table import TableKind, TableName, TableSchema
from devstack.kafka.broker import KafkaBroker
from sink.messages.kafka.kafka_clients import kafka_clients
from sink.messages.kafka.kafka_sink import KafkaSink
from sink.messages.kafka.topic_admin import TopicAdmin
from sink.messages.kafka.topics import Topics
from sink.row import RowChange, WriteResult
from sink.sink import TaskTerms
from tests.component.sink.kafka.seen import Seen, seen
from tests.component.sink.vocabulary import LIFE, begin_of, described


class KafkaFeed:
    """With topics of its own, whose names begin with `prefix`."""

    def __init__(
        self, broker: KafkaBroker, query: str = "", *, user: str = "", permit: Callable[[], float] = lambda: 60.0
    ) -> None:
        self.broker = broker
        self.prefix = f"test-{uuid.uuid4().hex[:12]}"
        self.permit = permit
        self.open(query, user=user)

    def open(self, query: str = "", *, user: str = "") -> None:
        uri = f"kafka://{user}{self.broker.bootstrap}/{self.prefix}?{query}"
        self.options = KafkaSinkOptions.parse(uri)
        self.topics = Topics(self.options)
        self.sink = self.sink_of(LIFE)
        self.writer = self.sink.writer(TaskTerms(epoch=7))

    def sink_of(self, life: str) -> KafkaSink:
        return KafkaSink("orders", self.options, None, life, self._permitted)

    def _permitted(self) -> float:
        return self.permit()

    def claim(self, *tables: tuple[TableSchema, TableName], life: str = LIFE) -> None:
        """Returns when the brokers show who leads the topics: for a moment after they are made, nobody does."""
        begun = tables or [described()]
        self.sink_of(life).claim(begin_of(begun), begun)
        self.shown([self.topics.of(name) for table, name in begun if table.kind is not TableKind.VIEW])

    def shown(self, topics: Sequence[str]) -> dict[tuple[str, int], int]:
        """Where they end, as soon as all of their partitions have a leader."""
        admin, deadline = TopicAdmin(lambda: kafka_clients(self.options), self.options), time.monotonic() + 30
        while True:
            try:
                return admin.all_ends(dict.fromkeys(topics, self.options.partitions))
            except SinkUnavailable:
                if time.monotonic() > deadline:
                    raise

    def window(self, changes: Sequence[RowChange]) -> WriteResult:
        run = self.writer.begin(lambda _: False)
        run.prepare(changes, replay=False)()
        return run.settle()

    def rows(self, name: str = "a") -> list[Seen]:
        return [each for each in seen(self.broker, self.topics.of(TableName("shop", name))) if each.key is not None]
