"""`kafka_obstacles`: what keeps a changefeed from writing into topics, all of it at once. Nothing is created."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from changefeed.config.sinks.kafka_sink import Existing, KafkaSinkOptions
from changefeed.errors import SluiceError
from changefeed.table import TableName
from sink.kafka.brokers.clients import OpenClients
from sink.kafka.brokers.topic_admin import AskedTopic, Topic, TopicAdmin, may_write
from sink.kafka.topics import Topics

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
        asked = [AskedTopic.kept(topics.feed), AskedTopic.kept(topics.ddl), AskedTopic.compacted(topics.watermark)]
        asked += (AskedTopic.of_rows(name, options) for name in names or [topics.of(TableName("sluice", "example"))])
        yield from admin.obstacles([each for each in asked if each.name not in there])
        admin.limits([name for name in names if name in there])
    except SluiceError as error:
        yield f"sink: {error}"


def _unwritable(there: dict[str, Topic]) -> Iterator[str]:
    found = sorted(name for name, topic in there.items() if not may_write(topic))
    if found:
        yield f"sink: the user may not write to {_named(found)}; grant the rights that docs/kafka.md lists"


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
