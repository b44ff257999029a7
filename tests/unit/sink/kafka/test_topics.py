"""Which topics a changefeed has."""

from __future__ import annotations

import pytest

from changefeed.config.sinks.kafka_sink import KafkaSinkOptions
from changefeed.table import TableName
from sink.kafka.topics import Topics


def _topics(query: str = "") -> Topics:
    return Topics(KafkaSinkOptions.parse(f"kafka://b/shop?{query}"))


def test_topics_that_have_no_rows() -> None:
    assert _topics().own == ("shop.feed", "shop.ddl", "shop.watermark")
    assert _topics("format=debezium").ddl == "shop"


@pytest.mark.parametrize(
    ("query", "table", "topic"),
    [
        ("", TableName("db", "orders"), "shop.db.orders"),
        ("", TableName("db", "a.b"), "shop.db.a.b"),
        ("", TableName("db", "grün & rot"), "shop.db.gr_n___rot"),
        ("topic={prefix}.{coll}", TableName("db", "ddl"), "shop.ddl_"),
        ("topic={coll}", TableName("db", ".."), ".._"),
        ("topic={prefix}.all", TableName("db", "orders"), "shop.all"),
        ("topic={prefix}.{coll}", TableName("db", "{prefix}"), "shop._prefix_"),
    ],
)
def test_the_topic_of_a_table(query: str, table: TableName, topic: str) -> None:
    assert _topics(query).of(table) == topic


def test_a_long_name_is_cut_and_stays_the_table_s_own() -> None:
    one, other = (_topics().of(TableName("db", "x" * 300 + end)) for end in "ab")
    assert len(one) == len(other) == 249
    assert one != other
