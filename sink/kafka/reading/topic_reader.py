"""`TopicReader`: reads partitions from named places up to where they end. It belongs to no consumer group, and saves nothing in the brokers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple, cast

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from changefeed.config.sinks.kafka_sink import KafkaSinkOptions
from changefeed.errors import SinkUnavailable
from sink.kafka.brokers.clients import KafkaClients
from sink.kafka.brokers.kafka_errors import sink_error, translated
from sink.kafka.brokers.topic_admin import TopicAdmin
from sink.messages.feed_reader import MessageGap

AT_ONCE = 5_000
_WAIT_SECONDS = 0.5
_PATIENCE_SECONDS = 60.0

Partition = tuple[str, int]


class ReadMessage(NamedTuple):
    partition: Partition
    offset: int
    key: bytes
    value: bytes | None
    headers: dict[str, bytes]


class TopicReader:
    """For one thread."""

    def __init__(
        self, clients: Callable[[], KafkaClients], options: KafkaSinkOptions, *, gapless: bool = False
    ) -> None:
        """`gapless`: each offset has a message. In a compacted topic some have none any more."""
        self._place = str(options)
        self._gapless = gapless
        self._admin = TopicAdmin(clients, options)
        settings = {
            **clients().consumer_settings,
            "auto.offset.reset": "error",  # messages that were removed are a gap
            "enable.partition.eof": True,
        }
        with translated(f"{self._place}: opening"):
            self._consumer = Consumer(settings)
        self.next: dict[Partition, int] = {}
        """The offset of the next message of each partition."""
        self.ends: dict[Partition, int] = {}
        """Where they ended when it was last asked."""

    def add(self, topics: Mapping[str, int], start: Mapping[Partition, int] | None = None) -> None:
        """Topics with their numbers of partitions. Without a start they are read from their beginning."""
        for topic, count in topics.items():
            for number in range(count):
                self.next.setdefault((topic, number), (start or {}).get((topic, number), 0))
        with translated(f"{self._place}: reading"):
            self._consumer.assign([TopicPartition(*partition, offset) for partition, offset in self.next.items()])

    def partitions(self, topic: str) -> int | None:
        """None if there is no such topic."""
        found = self._admin.existing([topic]).get(topic)
        return None if found is None else found.partitions

    def to_ends(self) -> Iterator[list[ReadMessage]]:
        """Everything up to where the partitions end now. Whoever stops between two batches may go on later."""
        counts: dict[str, int] = {}
        for topic, number in self.next:
            counts[topic] = max(counts.get(topic, 0), number + 1)
        ends = self.ends = self._admin.all_ends(counts)
        last_at = time.monotonic()
        while any(self.next[partition] < end for partition, end in ends.items()):
            with translated(f"{self._place}: reading"):
                found = self._consumer.consume(AT_ONCE, _WAIT_SECONDS)
            if any(message.error() is None for message in found):
                last_at = time.monotonic()
            elif time.monotonic() > last_at + _PATIENCE_SECONDS:
                raise SinkUnavailable(f"{self._place}: no broker has answered for {_PATIENCE_SECONDS:.0f} s")
            yield [read for message in found if (read := self._read(message)) is not None]

    def close(self) -> None:
        self._consumer.close()

    def _read(self, message: Message) -> ReadMessage | None:
        partition = str(message.topic()), message.partition() or 0
        offset, error = message.offset() or 0, message.error()
        at_end = error is not None and error.code() == KafkaError._PARTITION_EOF  # noqa: SLF001 - named so by the client
        if self._gapless and (at_end or error is None) and offset > self.next[partition]:
            raise self._gap(partition)
        if error is None:
            self.next[partition] = offset + 1
            headers = cast("Iterable[tuple[str, bytes]]", message.headers() or ())
            return ReadMessage(partition, offset, message.key() or b"", message.value(), dict(headers))
        if at_end:
            self.next[partition] = max(self.next[partition], offset)
            return None
        if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):  # noqa: SLF001 - as above
            raise self._gap(partition)
        if (
            error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED
        ):  # the client looks for the group that it must name, and does not use
            return None
        if error.fatal() or not error.retriable():
            raise sink_error(f"{self._place}: reading topic {partition[0]}", error)
        return None

    def _gap(self, partition: Partition) -> MessageGap:
        topic, number = partition
        return MessageGap(
            f"{self._place}: topic {topic}, partition {number}: expected the messages from offset {self.next[partition]} on, found that some were "
            f"removed; give the topics a longer retention and no compaction, and create the changefeed again with another prefix"
        )
