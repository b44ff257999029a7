"""Rows on a real broker."""

from __future__ import annotations

from changefeed.table import TableName
from devstack.kafka.broker import KafkaBroker
from sink.messages.kafka.topics import partition_of
from tests.component.sink.kafka.feed import KafkaFeed
from tests.component.sink.kafka.seen import seen
from tests.component.sink.vocabulary import A, insert


def test_rows_of_a_window_are_there_when_it_is_settled(kafka: KafkaBroker) -> None:
    feed = KafkaFeed(kafka)
    feed.claim()
    feed.window([insert(A, 200 + n, n) for n in range(100)])
    rows = feed.rows()
    assert sorted(row.json["key"]["_id"]["$numberInt"] for row in rows) == sorted(str(n) for n in range(100))
    assert {row.partition for row in rows} == set(range(6))
    assert all(row.partition == partition_of(row.key or b"", 6) for row in rows)
    assert {row.headers["sluice.op"] for row in rows} == {"i"}
    first, *_ = seen(kafka, feed.topics.of(TableName("shop", "a")))
    assert first.headers["sluice.op"] == "b"
