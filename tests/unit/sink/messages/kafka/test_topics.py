"""Which topics a changefeed has.

The place of a key is that which producers of Java compute.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from changefeed.config.sinks.kafka_options import KafkaSinkOptions
from changefeed.table import TableName
from sink.messages.kafka.topics import Topics, hashes_of, murmur2, partition_of, partitions_of

_CONSUMERS = Path(__file__).parents[5] / "docs" / "reference" / "consumers.md"


def _topics(query: str = "") -> Topics:
    return Topics(KafkaSinkOptions.parse(f"kafka://b/shop?{query}"))


def test_topics_that_have_no_rows() -> None:
    assert _topics().own == ("shop.feed", "shop.ddl", "shop.watermark")
    assert _topics("format=debezium").ddl == "shop"


def test_consumers_of_the_handbook_read_the_topics_of_rows_alone() -> None:
    for pattern in re.findall(r"topics\.regex=(.*)", _CONSUMERS.read_text()):
        as_java_reads_it = re.compile(pattern.replace("\\", ""))
        assert as_java_reads_it.fullmatch(_topics().of(TableName("db", "a.b")))
        assert not any(map(as_java_reads_it.fullmatch, (*_topics().own, *_topics("format=debezium").own)))


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
        ("topics=db.*:of-db&topics=*.orders:of-orders&topic={coll}", TableName("db", "orders"), "of-db"),
        ("topics=db.*:of-db&topics=*.orders:of-orders&topic={coll}", TableName("dc", "orders"), "of-orders"),
        ("topics=db.*:of-db&topics=*.orders:of-orders&topic={coll}", TableName("dc", "items"), "items"),
        ("topics=db.*:{prefix}.feed", TableName("db", "orders"), "shop.feed_"),
    ],
)
def test_the_topic_of_a_table(query: str, table: TableName, topic: str) -> None:
    assert _topics(query).of(table) == topic


def test_a_long_name_is_cut_and_stays_the_table_s_own() -> None:
    one, other = (_topics().of(TableName("db", "x" * 300 + end)) for end in "ab")
    assert len(one) == len(other) == 249
    assert one != other


@pytest.mark.parametrize(
    ("key", "hash"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_the_hash_is_that_of_kafkas_own_tests(key: bytes, hash: int) -> None:
    assert murmur2(key) == hash & 0xFFFFFFFF


def test_a_key_of_any_length_has_one_of_the_partitions() -> None:
    found = {partition_of(bytes(range(256)) * 2 + b"x" * length, 6) for length in range(300)}
    assert found == set(range(6))
    assert partition_of(b"", 6) == partition_of(b"", 6)


@given(
    st.integers(0, 70).flatmap(lambda size: st.lists(st.binary(min_size=size, max_size=size), min_size=1, max_size=9))
)
def test_keys_of_one_length_have_the_hashes_that_each_has_alone(keys: list[bytes]) -> None:
    assert list(hashes_of(keys)) == list(map(murmur2, keys))


@given(st.lists(st.integers(0, 2**40)), st.integers(1, 50))
def test_keys_of_many_lengths_have_the_partitions_that_each_has_alone(numbers: list[int], partitions: int) -> None:
    keys = [b"%d" % number for each in numbers for number in range(each, each + 20)]
    assert partitions_of(keys, partitions) == [partition_of(key, partitions) for key in keys]
