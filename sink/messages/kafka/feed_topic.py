"""`FeedTopic`: what the topic {prefix}.feed says: whose topics these are, and the ids of those that have rows.

    {"v": 1, "feed": "orders", "life": "c/1"}                                 its first message: the topics are this changefeed's
    {"v": 1, "feed": "orders", "life": "c/1", "start": ".."}                  where the changefeed begins; the newest counts
    {"v": 1, "feed": "orders", "life": "c/1", "topics": {"shop.shop.a": ".."}}   ids of topics; the newest counts
    {"v": 1, "feed": "orders", "life": "c/1", "tables": {"shop.shop.a": "shop.a"}}   of compacted topics: the names of their tables

A topic that is deleted and created again is empty, and has another id (KIP-516). The name and the number of partitions may be the same, so only its id
tells that messages are missing. The owner says the id before the first row goes there; writers and readers compare it.

Kafka has no conditional write, but the order of a partition decides as well: whoever claims appends, and then reads the first message. It
is never removed, so all see the same one.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from changefeed.config.sinks.kafka_options import Existing, KafkaSinkOptions
from changefeed.errors import SinkUnavailable, TargetOccupied
from sink.messages.kafka.kafka_clients import OpenClients, sink_error, translated
from sink.messages.kafka.sender import Sender
from sink.messages.kafka.topic_admin import AskedTopic, TopicAdmin
from sink.messages.kafka.topics import Topics
from sink.messages.message_format import KeyedMessage
from sink.messages.row_message import VERSION

_SECONDS = 10.0


class FeedTopic:
    def __init__(
        self, clients: OpenClients, options: KafkaSinkOptions, feed: str, life: str, permit: Callable[[], object]
    ) -> None:
        """`life`: differs for each creation and each restart of a changefeed."""
        self.clients = clients
        self.options = options
        self.feed = feed
        self.permit = permit
        self._said = {"v": VERSION, "feed": feed, "life": life}
        self._name = Topics(options).feed

    def claim(self) -> None:
        """When the changefeed begins. Creates the topics that have no rows."""
        TopicAdmin(self.clients, self.options).create(AskedTopic.of_no_rows(Topics(self.options).own))
        self.say()
        self.confirm()

    def say(self, **more: object) -> None:
        """`start`: a begin that fails is tried again, at a later place, and maybe without tables that were told before."""
        content = json.dumps(self._said | more).encode()
        with Sender(self.clients, str(self.options), self.permit) as sender:
            sender.send([(self._name, 0, KeyedMessage(b"feed", content, []))])

    def confirm(self) -> None:
        """Raises if the topics are not this changefeed's."""
        found, expected = self.first(), json.dumps(self._said)
        if found != expected.encode() and self.options.existing is not Existing.APPEND:
            raise TargetOccupied(
                f"changefeed {self.feed!r}: {self.options}: topic {self._name} says that the topics of this prefix are those of "
                f"{found.decode(errors='replace')}, expected {expected}; a changefeed that begins again needs another prefix, or "
                f"existing=append to write behind what is there"
            )

    def first(self) -> bytes:
        return next(self._messages(1))

    def ids(self) -> Mapping[str, str]:
        """Of the topics of rows, as the changefeed has said them."""
        return self._told("topics")

    def tables(self) -> Mapping[str, str]:
        """Whose rows the topics have that are compacted."""
        return self._told("tables")

    def _told(self, what: str) -> dict[str, str]:
        end, found = TopicAdmin(self.clients, self.options).all_ends({self._name: 1})[self._name, 0], dict[str, str]()
        for fields in map(json.loads, self._messages(end) if end else ()):
            if fields["feed"] == self.feed:
                found |= fields.get(what, {})
        return found

    def _messages(self, end: int) -> Iterator[bytes]:
        """Those before that offset. The client looks for its group, too, which it does not use: that needs no right."""
        what = f"{self.options}: reading topic {self._name}"
        with translated(what), closing(Consumer(self.clients().consumer_settings)) as consumer:
            consumer.assign([TopicPartition(self._name, 0, OFFSET_BEGINNING)])
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
