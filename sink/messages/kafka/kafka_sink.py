"""`KafkaSink`: topics of Kafka as a sink. Its rows are messages, which are seen when they are written.

`kafka_obstacles` says what keeps a changefeed from writing into topics, all of it at once. It creates nothing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from functools import partial

from changefeed.config.sinks.kafka_options import Existing, KafkaSinkOptions
from changefeed.errors import SluiceError
from changefeed.position import Position
from changefeed.table import TableName
from credentials.secret_files import SecretFiles
from sink.messages.files.directory import open_store
from sink.messages.formats import message_format
from sink.messages.kafka.feed_topic import FeedTopic
from sink.messages.kafka.kafka_clients import OTHER_TOPIC, OpenClients, kafka_clients
from sink.messages.kafka.kafka_writer import KafkaDocumentLoader, KafkaRowWriter, LargeRows, RowTopics, TopicFacts
from sink.messages.kafka.owner_log import KafkaDdlApplier, KafkaMarks, OwnerSender
from sink.messages.kafka.sender import Sender
from sink.messages.kafka.topic_admin import AskedTopic, Topic, TopicAdmin, may_write
from sink.messages.kafka.topics import Topics
from sink.row import TargetTable
from sink.sink import NamedTables, Permit, Sink, TaskTerms
from sluice_client.pos import pos_of


class KafkaSink(Sink):
    every_change = True

    def __init__(
        self, feed: str, options: KafkaSinkOptions, files: SecretFiles | None, life: str, permit: Permit
    ) -> None:
        self._options = options
        self._permit = permit
        self._clients = partial(kafka_clients, options, files)
        self._topic = FeedTopic(self._clients, options, feed, life, permit)
        self._admin = TopicAdmin(self._clients, options)
        self._format = message_format(feed, options.prefix, options.messages)
        self._claims = open_store(options.claims, files) if options.claims is not None else None

    def check(self) -> None:
        self._admin.check()
        if self._claims is not None:
            self._claims.check()

    def obstacles(self, tables: Collection[TableName]) -> Iterator[str]:
        return kafka_obstacles(self._options, self._clients, tables)

    def claim(self, at: Position, tables: NamedTables) -> None:
        if self._claims is not None:
            self._claims.check()
        self._topic.claim()
        self.ddl().begin(tables)
        self._topic.say(start=pos_of(at))

    def confirm(self) -> None:
        self._topic.confirm()

    def ddl(self) -> KafkaDdlApplier:
        return KafkaDdlApplier(self._sender(), self._format)

    copy_log = ddl

    def marks(self) -> KafkaMarks:
        return KafkaMarks(self._sender(), self._format, self._options.partitions)

    def writer(self, task: TaskTerms) -> KafkaRowWriter:  # noqa: ARG002 - what a zombie sends is a repeat
        place = str(self._options)
        facts = TopicFacts(self._admin, place, self._options.partitions, self._topic.ids)
        large = LargeRows(self._options.large, self._claims, facts, place)
        sender = Sender(self._clients, place, self._permit)
        return KafkaRowWriter(self._format, RowTopics(self._options), facts, large, sender)

    def loader(self, table: TargetTable, task: TaskTerms, *, once: bool, shared: bool = False) -> KafkaDocumentLoader:  # noqa: ARG002 - a repeat does no harm
        return KafkaDocumentLoader(self.writer(task), table)

    def _sender(self) -> OwnerSender:
        return OwnerSender(self._topic, in_band=self._format.in_band)


_MOST_NAMED = 5


def kafka_obstacles(options: KafkaSinkOptions, clients: OpenClients, tables: Collection[TableName]) -> Iterator[str]:
    """`tables`: their names downstream."""
    admin, topics = TopicAdmin(clients, options), Topics(options)
    names = sorted({topics.of(table) for table in tables})
    try:
        there = admin.existing([*topics.own, *names], rights=True)
        yield from _unwritable(there)
        yield from _other_partitions(options, there, names)
        if options.existing is Existing.REFUSE:
            yield from _occupied(admin, there)
        asked = AskedTopic.of_no_rows(topics.own)
        asked += (AskedTopic.of_rows(name, options) for name in names or [topics.of(TableName("sluice", "example"))])
        yield from _colliding(there, [*topics.own, *names])
        yield from admin.obstacles([each for each in asked if each.name not in there])
        admin.limits([name for name in names if name in there])
        yield from _compacted(options, admin, there, names)
        yield from _together(options, topics, tables)
    except SluiceError as error:
        yield f"sink: {error}"


def _compacted(options: KafkaSinkOptions, admin: TopicAdmin, there: Collection[str], names: list[str]) -> Iterator[str]:
    """Who asks for it has shown that nothing is lost by it."""
    found = [] if options.compacts else admin.compacted([name for name in names if name in there])
    if found:
        yield (
            f"sink: {_named(found)} has cleanup.policy=compact, which removes messages that no later one replaces; set it to delete, or write another "
            "prefix"
        )


def _together(options: KafkaSinkOptions, topics: Topics, tables: Collection[TableName]) -> Iterator[str]:
    """Signs that a topic may not have become `_`."""
    shared = [name for name, count in Counter(map(topics.of, tables)).items() if count > 1] if options.compacts else []
    if shared:
        yield (
            f"sink: rows of several tables would go to {_named(sorted(shared))}, which is compacted, and keys name no table: leave all of these "
            "tables but one out (filter.tables), or write topic.cleanup.policy=delete"
        )


def _colliding(there: Collection[str], names: Collection[str]) -> Iterator[str]:
    """Brokers take both in one request, but not the second one later."""
    alike = defaultdict[str, set[str]](set)
    for name in names:
        alike[name.replace(".", "_")].add(name)
    found = sorted(name for some in alike.values() if len(some) > 1 and not some <= set(there) for name in some)
    if found:
        yield f"sink: topics would differ in `.` and `_` alone, of which brokers take one: {_named(found)}; {OTHER_TOPIC}"


def _unwritable(there: dict[str, Topic]) -> Iterator[str]:
    found = sorted(name for name, topic in there.items() if not may_write(topic))
    if found:
        yield f"sink: the user may not write to {_named(found)}; grant the rights that docs/how-to/kafka.md lists"


def _other_partitions(options: KafkaSinkOptions, there: dict[str, Topic], names: Collection[str]) -> Iterator[str]:
    found = [
        f"{name} ({there[name].partitions})"
        for name in names
        if name in there and there[name].partitions != options.partitions
    ]
    if found:
        yield (
            f"sink: partitions={options.partitions}, and there are topics with others: {_named(found)}; each topic of rows has the same number: "
            "write that number, or another prefix"
        )


def _occupied(admin: TopicAdmin, there: dict[str, Topic]) -> Iterator[str]:
    readable = {name: topic.partitions for name, topic in there.items()}
    found = admin.occupied(readable)
    if found:
        yield (
            f"sink: there are messages in {_named(found)}; write another prefix, one for each changefeed, or existing=append to write behind what "
            "is there"
        )


def _named(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f"{', '.join(names[:_MOST_NAMED])}{more}"
