"""`FeedTopic`: what the topic {prefix}.feed says: whose topics these are, and the ids of those that have rows.

    {"v": 1, "feed": "orders", "life": "c/1"}                                 its first message: the topics are this changefeed's
    {"v": 1, "feed": "orders", "life": "c/1", "start": ".."}                  where the changefeed begins; the newest counts
    {"v": 1, "feed": "orders", "life": "c/1", "topics": {"shop.shop.a": ".."}}   ids of topics; the newest counts

A topic that is deleted and created again is empty, and has another id (KIP-516). The name and the number of partitions may be the same, so only its id
tells that messages are missing. The owner says the id before the first row goes there; writers and readers compare it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from changefeed.config.sinks.kafka_options import KafkaSinkOptions
from changefeed.errors import SinkUnavailable
from sink.messages.kafka.kafka_clients import OpenClients, sink_error, translated
from sink.messages.kafka.topic_admin import TopicAdmin
from sink.messages.kafka.topics import Topics

_SECONDS = 10.0


class FeedTopic:
    def __init__(self, clients: OpenClients, options: KafkaSinkOptions) -> None:
        self.name = Topics(options).feed
        self._clients = clients
        self._options = options

    def first(self) -> bytes:
        """It is never removed, so all see the same one."""
        return next(self._messages(1))

    def topic_ids(self, feed: str) -> Mapping[str, str]:
        end = TopicAdmin(self._clients, self._options).all_ends({self.name: 1})[self.name, 0]
        return ids_in(feed, self._messages(end) if end else ())

    def _messages(self, end: int) -> Iterator[bytes]:
        """Those before that offset. The client looks for its group, too, which it does not use: that needs no right."""
        what = f"{self._options}: reading topic {self.name}"
        with translated(what), closing(Consumer(self._clients().consumer_settings)) as consumer:
            consumer.assign([TopicPartition(self.name, 0, OFFSET_BEGINNING)])
            deadline = time.monotonic() + _SECONDS
            while (left := deadline - time.monotonic()) > 0:
                message = consumer.poll(left)
                error = message.error() if message is not None else None
                if error is not None and error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED:
                    raise sink_error(what, error)
                if message is not None and error is None:
                    yield message.value() or b""
                    if (message.offset() or 0) + 1 >= end:
                        return
        raise SinkUnavailable(f"{what}: expected messages up to offset {end}, found fewer within {_SECONDS:.0f} s")


def ids_in(feed: str, messages: Iterable[bytes]) -> dict[str, str]:
    found: dict[str, str] = {}
    for fields in map(json.loads, messages):
        if fields["feed"] == feed:
            found |= fields.get("topics", {})
    return found
