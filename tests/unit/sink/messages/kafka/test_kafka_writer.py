"""Where messages of rows go."""

from __future__ import annotations

from typing import Any

import pytest

from changefeed.config.sinks.kafka_options import KafkaSinkOptions, LargeRow
from changefeed.errors import RowRejected
from changefeed.table import TableId, TableName
from sink.messages.kafka.kafka_clients import MOST_BYTES
from sink.messages.kafka.kafka_writer import LargeRows, RowTopics, TopicBatch
from sink.messages.kafka.topics import partition_of
from sink.messages.message_format import POS, TABLE, KeyedMessage
from sink.row import TargetTable

_TABLES = [
    TargetTable(id=TableId(f"id-{name}"), source=TableName("s", name), name=TableName("s", name)) for name in "abc"
]
_MESSAGES = [KeyedMessage(b"key-%d" % number, b"", []) for number in range(90)]


class _AnySize:
    """A topic that takes nearly everything."""

    def limit(self, _: str) -> int:
        return 1_000_000_000


@pytest.mark.parametrize("how", [LargeRow.FAIL, LargeRow.KEY_ONLY])
def test_a_message_that_no_client_can_hold_is_large_whatever_its_topic_takes(how: LargeRow) -> None:
    facts: Any = _AnySize()
    large = LargeRows(how, None, facts, "kafka://b/shop")
    headers = [(POS, b"0001"), (TABLE, b"id-a")]
    fits, huge = (KeyedMessage(b"k", bytes(size), headers) for size in (MOST_BYTES - 1024, MOST_BYTES))
    assert list(large.fitted([("t", 0, fits)], [MOST_BYTES])) == [("t", 0, fits)]
    if how is LargeRow.KEY_ONLY:
        [(_, _, sent)] = large.fitted([("t", 0, huge)], [MOST_BYTES])
        assert sent.size < 1024
        return
    with pytest.raises(
        RowRejected, match=r"at most 67108864 \(all that Sluice sends\); create .*claim_check"
    ) as refused:
        list(large.fitted([("t", 0, huge)], [MOST_BYTES]))
    assert refused.value.table == "id-a"


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
