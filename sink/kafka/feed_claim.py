"""`FeedClaim`: whose topics these are. The first message of the topic {prefix}.feed says it, and a later one where the changefeed begins.

Kafka has no conditional write, but the order of a partition decides as well: whoever claims appends, and then reads the first message. It
is never removed, so all see the same one.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from changefeed.config.sinks.kafka_sink import Existing, KafkaSinkOptions
from changefeed.errors import SinkUnavailable, TargetOccupied
from changefeed.position import Position
from sink.kafka.brokers.clients import OpenClients
from sink.kafka.brokers.kafka_errors import sink_error, translated
from sink.kafka.brokers.sender import Sender
from sink.kafka.brokers.topic_admin import AskedTopic, TopicAdmin
from sink.kafka.topics import Topics
from sink.messages.message_format import KeyedMessage
from sink.messages.message_key import pos_of
from sink.messages.row_message import VERSION

_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedClaim:
    """`life`: differs for each creation and each restart of a changefeed."""

    feed: str
    life: str
    options: KafkaSinkOptions

    def claim(self, clients: OpenClients, permit: Callable[[], object]) -> None:
        """When the changefeed begins. Creates the topics that have no rows."""
        topics = Topics(self.options)
        asked = [AskedTopic.kept(topics.feed), AskedTopic.kept(topics.ddl), AskedTopic.compacted(topics.watermark)]
        TopicAdmin(clients, self.options).create(asked)
        with Sender(clients, str(self.options), permit) as sender:
            sender.send([(topics.feed, 0, KeyedMessage(b"feed", self._content, []))])
        self.confirm(clients)

    def begin(self, clients: OpenClients, permit: Callable[[], object], at: Position) -> None:
        """Says where the changefeed begins. A begin that fails is tried again, at a later place, and maybe without tables that were told before."""
        start = json.dumps({**self._fields, "start": pos_of(at)}).encode()
        with Sender(clients, str(self.options), permit) as sender:
            sender.send([(Topics(self.options).feed, 0, KeyedMessage(b"feed", start, []))])

    def confirm(self, clients: OpenClients) -> None:
        """Raises if the topics are not this changefeed's."""
        topic = Topics(self.options).feed
        found = self._first(clients, topic)
        if found != self._content and self.options.existing is not Existing.APPEND:
            raise TargetOccupied(
                f"changefeed {self.feed!r}: {self.options}: topic {topic} says that the topics of this prefix are those of "
                f"{found.decode(errors='replace')}, expected {self._content.decode()}; a changefeed that begins again needs another prefix, or "
                f"existing=append to write behind what is there"
            )

    def _first(self, clients: OpenClients, topic: str) -> bytes:
        """The client looks for its group, too, which it does not use: that needs no right."""
        with (
            translated(f"{self.options}: reading topic {topic}"),
            closing(Consumer(clients().consumer_settings)) as consumer,
        ):
            consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
            deadline = time.monotonic() + _SECONDS
            while (left := deadline - time.monotonic()) > 0:
                message = consumer.poll(left)
                error = message.error() if message is not None else None
                if error is not None and error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED:
                    raise sink_error(f"{self.options}: reading topic {topic}", error)
                if message is not None and error is None:
                    return message.value() or b""
        raise SinkUnavailable(
            f"{self.options}: expected a message in topic {topic}, found none within {_SECONDS:.0f} s"
        )

    @property
    def _content(self) -> bytes:
        return json.dumps(self._fields).encode()

    @property
    def _fields(self) -> dict[str, Any]:
        return {"v": VERSION, "feed": self.feed, "life": self.life}
