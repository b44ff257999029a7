"""`seen`: what is in topics, read without the product."""

from __future__ import annotations

import json
import time
from typing import Any, NamedTuple

import bson
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from devstack.kafka.broker import KafkaBroker
from tests.until import PATIENCE_SECONDS


class Seen(NamedTuple):
    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: dict[str, str]

    @property
    def json(self) -> dict[str, Any]:
        """Of JSON, or of BSON, which begins with its size."""
        value = self.value or b"{}"
        return bson.decode(value) if value[:4] == len(value).to_bytes(4, "little") else dict(json.loads(value))


def seen(broker: KafkaBroker, *topics: str) -> list[Seen]:
    """All that is in the topics now, each partition in its order. None of topics that do not exist."""
    consumer = Consumer(
        {**broker.client, "group.id": "test", "enable.auto.commit": False, "enable.partition.eof": True}
    )
    found: list[Seen] = []
    try:
        known = consumer.list_topics(timeout=30).topics
        places = [
            TopicPartition(topic, number, OFFSET_BEGINNING)
            for topic in topics
            if topic in known
            for number in known[topic].partitions
        ]
        consumer.assign(places)
        reading = {(place.topic, place.partition) for place in places}
        deadline = time.monotonic() + PATIENCE_SECONDS
        while reading:
            assert time.monotonic() < deadline, f"{reading} were not read to their ends within {PATIENCE_SECONDS} s"
            for message in consumer.consume(1000, timeout=0.1):
                error = message.error()
                if error is not None:
                    assert error.name() == "_PARTITION_EOF", error
                    reading.discard(
                        (str(message.topic()), message.partition() or 0)
                    )  # told again after each new message
                    continue
                headers = {name: _text(value) for name, value in dict(message.headers() or ()).items()}
                place = str(message.topic()), message.partition() or 0, message.offset() or 0
                found.append(Seen(*place, message.key(), message.value(), headers))
    finally:
        consumer.close()
    return found


def _text(value: str | bytes | None) -> str:
    return value.decode() if isinstance(value, bytes) else value or ""
