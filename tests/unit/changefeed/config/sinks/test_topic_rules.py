"""What a rule says of some tables' topics, and which rules are refused."""

from __future__ import annotations

import pytest

from changefeed.config.options import Mistake
from changefeed.config.sinks.kafka_options import KafkaSinkOptions
from changefeed.config.sinks.topic_rules import PartitionBy, TopicRule
from changefeed.config.tables.pattern import TablePattern


def test_tables_topic_and_what_decides_the_partition() -> None:
    rule = TopicRule.parse("shop.*:{prefix}.{db}")
    assert rule == TopicRule("{prefix}.{db}", PartitionBy.KEY, TablePattern("shop", "*"))
    assert TopicRule.parse("shop.a:orders:table") == TopicRule("orders", PartitionBy.TABLE, TablePattern("shop", "a"))
    assert str(TopicRule.parse("shop.a:b:orders:key").tables) == "shop.a:b", "a collection may have a colon"


@pytest.mark.parametrize(
    "text", ["", "shop.*", "orders", ":orders", "shop.*:or ders", "!shop.a:orders", "shop.*:{coll", "$external.a:b c"]
)
def test_what_is_none_is_refused(text: str) -> None:
    with pytest.raises(Mistake):
        KafkaSinkOptions.parse(f"kafka://b/shop?topics={text}")


def test_a_compacted_topic_has_one_table() -> None:
    """Keys of Debezium name no table."""
    uri = "kafka://b/shop?format=debezium&topic.cleanup.policy=compact&topics="
    assert KafkaSinkOptions.parse(f"{uri}shop.*:{{db}}.{{coll}}").compacts
    with pytest.raises(Mistake, match=r"compact and the topic all; .*of other tables"):
        KafkaSinkOptions.parse(f"{uri}shop.*:all")
