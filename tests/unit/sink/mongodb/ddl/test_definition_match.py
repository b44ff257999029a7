"""The documents are as MongoDB's servers of several versions show them."""

from __future__ import annotations

from typing import Any

import pytest
from bson.int64 import Int64

from changefeed.config.configuration import Ttl
from changefeed.documents.document import Document
from sink.mongodb.ddl.definition_match import index_differences, option_differences, same_indexes, same_options

FRENCH = {
    "locale": "fr",
    "caseLevel": False,
    "caseFirst": "off",
    "strength": 3,
    "numericOrdering": False,
    "alternate": "non-ignorable",
    "maxVariable": "punct",
    "normalization": False,
    "backwards": False,
    "version": "57.1",
}
TEXT = {
    "v": 2,
    "key": {"shop": 1, "_fts": "text", "_ftsx": 1},
    "name": "text",
    "weights": {"title": 3, "body": 1},
    "default_language": "english",
    "language_override": "language",
    "textIndexVersion": 3,
}

ALIKE_OPTIONS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {"validationLevel": "strict", "validationAction": "error"}),
    ({"validator": {}}, {}),
    ({"collation": FRENCH}, {"collation": {**FRENCH, "version": "153.80"}}),
    ({"collation": {"locale": "simple"}}, {}),
    ({"collation": {"strength": 3, "locale": "fr"}}, {"collation": FRENCH}),
    ({"capped": True, "size": 1000}, {"capped": True, "size": Int64(4096)}),
    ({"capped": True, "size": 5000.0, "max": 10}, {"capped": True, "size": 5120, "max": Int64(10)}),
    ({"changeStreamPreAndPostImages": {"enabled": False}}, {}),
    (
        {"timeseries": {"timeField": "t", "granularity": "hours", "bucketMaxSpanSeconds": 2592000}},
        {"timeseries": {"timeField": "t", "granularity": "hours"}},
    ),
    (
        {"timeseries": {"timeField": "t", "granularity": "seconds", "bucketMaxSpanSeconds": 3600}},
        {"timeseries": {"timeField": "t"}},
    ),
    (
        {"clusteredIndex": {"v": 2, "key": {"_id": 1}, "name": "_id_", "unique": True}},
        {"clusteredIndex": {"key": {"_id": 1}, "unique": True, "name": "_id_"}},
    ),
    ({"idIndex": {"v": 2, "key": {"_id": 1}, "name": "_id_"}, "autoIndexId": True, "temp": True}, {"uuid": b"u" * 16}),
]
UNLIKE_OPTIONS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"validator": {"a": 1}}, {"validator": {"a": 2}}),
    ({"validator": {"a": 1, "b": 1}}, {"validator": {"b": 1, "a": 1}}),
    ({"validator": {"a": 1}}, {"validator": {"a": 1.0}}),
    ({"validator": {"a": 1}, "validationAction": "warn"}, {"validator": {"a": 1}}),
    ({"capped": True, "size": 8192}, {"capped": True, "size": 16384}),
    ({"capped": True, "size": 8192}, {}),
    ({"collation": FRENCH}, {"collation": {**FRENCH, "strength": 1}}),
    ({"viewOn": "a", "pipeline": []}, {"viewOn": "b", "pipeline": []}),
    ({"timeseries": {"timeField": "t"}}, {"timeseries": {"timeField": "t", "bucketMaxSpanSeconds": 300}}),
    ({"changeStreamPreAndPostImages": {"enabled": True}}, {}),
    ({"storageEngine": {"wiredTiger": {"configString": "block_compressor=zstd"}}}, {}),
]


@pytest.mark.parametrize(("source", "target"), ALIKE_OPTIONS)
def test_what_servers_write_differently_is_alike(source: dict[str, Any], target: dict[str, Any]) -> None:
    assert option_differences(Document.of(source), Document.of(target), Ttl.COPIED) == ()
    assert option_differences(Document.of(target), Document.of(source), Ttl.COPIED) == ()


@pytest.mark.parametrize(("source", "target"), UNLIKE_OPTIONS)
def test_what_a_user_can_tell_apart_is_not_alike(source: dict[str, Any], target: dict[str, Any]) -> None:
    assert not same_options(Document.of(source), Document.of(target), Ttl.COPIED)
    assert not same_options(Document.of(target), Document.of(source), Ttl.COPIED)


def test_expiry_counts_only_when_it_is_copied() -> None:
    source, target = Document.of({"expireAfterSeconds": 60}), Document.of({})
    assert same_options(source, target, Ttl.DEFERRED)
    assert not same_options(source, target, Ttl.COPIED)


def test_a_difference_says_what_is_on_either_side() -> None:
    found = option_differences(Document.of({"capped": True, "size": 8192}), Document.of({}), Ttl.COPIED)
    assert found == (
        "capped is True at the source, absent at the target",
        "size is 8192 at the source, absent at the target",
    )


def alike(source: dict[str, Any], target: dict[str, Any], ttl: Ttl = Ttl.DEFERRED) -> bool:
    return same_indexes([Document.of(source)], [Document.of(target)], ttl)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (
            {"v": 1, "key": {"a": 1}, "name": "a_1", "ns": "shop.orders", "background": True},
            {"v": 2, "key": {"a": 1.0}, "name": "a_1"},
        ),
        ({"v": 2, "key": {"a": 1}, "name": "a_1", "sparse": False}, {"v": 2, "key": {"a": Int64(1)}, "name": "a_1"}),
        (
            {"v": 2, "key": {"a": 1}, "name": "a_1", "unique": True, "prepareUnique": True},
            {"v": 2, "key": {"a": 1}, "name": "a_1", "unique": True},
        ),
        (
            {"key": {"$**": 1}, "name": "wild", "wildcardProjection": {"a": True, "h": {"i": True, "b": True}}},
            {"key": {"$**": 1}, "name": "wild", "wildcardProjection": {"h": {"b": True, "i": True}, "a": True}},
        ),
        (
            TEXT,
            TEXT | {"key": {"shop": 1, "body": "text", "title": "text"}, "weights": {"body": 1.0, "title": 3.0}},
        ),
    ],
)
def test_indexes_are_alike_in_what_they_do(source: dict[str, Any], target: dict[str, Any]) -> None:
    assert alike(source, target)
    assert alike(target, source)


@pytest.mark.parametrize(
    "other",
    [
        {"key": {"b": 1, "a": 1}},
        {"key": {"a": 1, "b": -1}},
        {"unique": True},
        {"sparse": True},
        {"hidden": True},
        {"prepareUnique": True},
        {"collation": FRENCH},
        {"partialFilterExpression": {"a": {"$gt": 1}}},
        {"expireAfterSeconds": 60},
    ],
)
def test_indexes_that_do_different_things_are_not_alike(other: dict[str, Any]) -> None:
    index = {"v": 2, "key": {"a": 1, "b": 1}, "name": "ab"}
    assert not alike(index, index | other)


def test_any_expiry_equals_any_other_while_deferred() -> None:
    index = {"v": 2, "key": {"at": 1}, "name": "at_1"}
    assert alike(index | {"expireAfterSeconds": 60}, index | {"expireAfterSeconds": 2147483647})
    assert not alike(index | {"expireAfterSeconds": 60}, index | {"expireAfterSeconds": 2147483647}, Ttl.COPIED)


def test_the_order_of_indexes_and_the_index_of_a_clustered_collection_do_not_count() -> None:
    a, b = {"v": 2, "key": {"a": 1}, "name": "a_1"}, {"v": 2, "key": {"b": 1}, "name": "b_1"}
    clustered = {"v": 2, "key": {"_id": 1}, "name": "c", "unique": True, "clustered": True}
    assert same_indexes(map(Document.of, [a, b]), map(Document.of, [clustered, b, a]), Ttl.DEFERRED)


def test_missing_and_foreign_indexes_are_named() -> None:
    a, b = {"v": 2, "key": {"a": 1}, "name": "a_1"}, {"v": 2, "key": {"b": 1}, "name": "b_1"}
    assert index_differences([Document.of(a)], [Document.of(b)], Ttl.DEFERRED) == (
        "index a_1 is missing at the target",
        "index b_1 is at the target only",
    )
