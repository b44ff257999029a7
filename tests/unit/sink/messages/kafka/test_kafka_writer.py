"""Where messages of rows go."""

from __future__ import annotations

from changefeed.config.sinks.kafka_options import KafkaSinkOptions
from changefeed.table import TableId, TableName
from sink.messages.kafka.kafka_writer import RowTopics, TopicBatch
from sink.messages.kafka.topics import partition_of
from sink.messages.message_format import KeyedMessage
from sink.row import TargetTable

_TABLES = [
    TargetTable(id=TableId(f"id-{name}"), source=TableName("s", name), name=TableName("s", name)) for name in "abc"
]
_MESSAGES = [KeyedMessage(b"key-%d" % number, b"", []) for number in range(90)]


def _batch(query: str) -> TopicBatch:
    topics = RowTopics(KafkaSinkOptions.parse(f"kafka://b/shop?{query}"))
    places = [topics.of(_TABLES[number % 3]) for number in range(90)]
    return topics.batch([topic for topic, _ in places], [partition for _, partition in places], _MESSAGES)


def test_a_key_says_its_partition() -> None:
    batch = _batch("partitions=5")
    assert batch.topics == ["shop.s.a", "shop.s.b", "shop.s.c"] * 30
    assert batch.partitions == [partition_of(b"key-%d" % number, 5) for number in range(90)]


def test_all_rows_of_a_table_are_in_one_partition_if_asked() -> None:
    assert (
        _batch("partitions=5&partition_by=table").partitions
        == [partition_of(f"id-{name}".encode(), 5) for name in "abc"] * 30
    )


def test_a_rule_says_so_of_some_tables() -> None:
    batch = _batch("partitions=5&topics=s.b:of-b:table&topics=s.c:of-c")
    assert batch.topics == ["shop.s.a", "of-b", "of-c"] * 30
    assert set(batch.partitions[1::3]) == {partition_of(b"id-b", 5)}
    by_key = [partition_of(b"key-%d" % number, 5) for number in range(90)]
    assert (batch.partitions[0::3], batch.partitions[2::3]) == (by_key[0::3], by_key[2::3])
