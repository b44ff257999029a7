"""How each DDL changes options and indexes. The events are as real servers write them."""

from __future__ import annotations

from typing import Any

import pytest

from changefeed.cluster_time import ClusterTime
from changefeed.documents.document import Document
from changefeed.errors import InvariantError
from changefeed.event import DdlEvent, DdlType
from changefeed.position import Position
from changefeed.table import TableId, TableKind, TableName, TableSchema
from schema_store.versions import SchemaVersions

A, SHOP_A = TableId("a" * 32), TableName("shop", "a")
ID_INDEX = {"v": 2, "key": {"_id": 1}, "name": "_id_"}
TTL_INDEX = {"v": 2, "key": {"at": 1}, "name": "at_1", "expireAfterSeconds": 3600}


def after(*events: tuple[DdlType, dict[str, Any]], id: TableId | None = A) -> TableSchema:
    """The table after these events, in this order, at 1, 2, 3 ..."""
    schema = SchemaVersions().apply_all(
        DdlEvent(
            position=Position(ClusterTime(1, number)),
            type=kind,
            db="shop",
            table=SHOP_A,
            id=id,
            description=Document.of(description),
        )
        for number, (kind, description) in enumerate(events, 1)
    )
    found = schema.by_name(SHOP_A, Position(ClusterTime(2, 0)))
    assert found is not None
    return found


def create(**options: Any) -> tuple[DdlType, dict[str, Any]]:
    return DdlType.CREATE, options


def modify(**fields: Any) -> tuple[DdlType, dict[str, Any]]:
    return DdlType.MODIFY, fields


def indexes(*specifications: dict[str, Any]) -> tuple[DdlType, dict[str, Any]]:
    return DdlType.CREATE_INDEXES, {"indexes": list(specifications)}


def drop_indexes(*specifications: dict[str, Any]) -> tuple[DdlType, dict[str, Any]]:
    return DdlType.DROP_INDEXES, {"indexes": list(specifications)}


def options_of(schema: TableSchema) -> dict[str, Any]:
    return schema.options.decode()


def indexes_of(schema: TableSchema) -> list[dict[str, Any]]:
    return [index.decode() for index in schema.indexes]


def test_a_created_table_has_its_options_and_the_index_on_its_key() -> None:
    collation = {"locale": "fr", "strength": 2}
    schema = after(create(collation=collation, idIndex={**ID_INDEX, "collation": collation, "ns": "shop.a"}))
    assert options_of(schema) == {"collation": collation}
    assert indexes_of(schema) == [{**ID_INDEX, "collation": collation}]


def test_a_create_that_does_not_say_the_index_on_the_key_means_the_servers_default() -> None:
    assert indexes_of(after(create())) == [ID_INDEX]
    assert indexes_of(after(create(collation={"locale": "fr"}))) == [{**ID_INDEX, "collation": {"locale": "fr"}}]


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"clusteredIndex": {"v": 2, "key": {"_id": 1}, "name": "c", "unique": True}}, TableKind.COLLECTION),
        ({"timeseries": {"timeField": "t"}}, TableKind.TIMESERIES),
        ({"viewOn": "b", "pipeline": []}, TableKind.VIEW),
    ],
)
def test_views_time_series_and_clustered_collections_have_no_id_index(options: dict[str, Any], kind: TableKind) -> None:
    schema = after(create(**options), id=None if kind is not TableKind.COLLECTION else A)
    assert (schema.kind, schema.indexes, options_of(schema)) == (kind, (), options)


def test_an_index_created_twice_is_one() -> None:
    schema = after(create(), indexes(TTL_INDEX, {**TTL_INDEX, "ns": "shop.a"}), indexes(TTL_INDEX))
    assert indexes_of(schema) == [ID_INDEX, TTL_INDEX]


def test_a_repeated_create_of_an_index_does_not_undo_a_later_change_of_it() -> None:
    longer = modify(index={"name": "at_1", "expireAfterSeconds": 7200})
    schema = after(create(), indexes(TTL_INDEX), longer, indexes(TTL_INDEX))
    assert indexes_of(schema)[1]["expireAfterSeconds"] == 7200


def test_equal_indexes_are_equal_bytes_in_whatever_order_their_options_came() -> None:
    one = after(create(), indexes({"v": 2, "unique": True, "key": {"x": 1}, "name": "x_1", "sparse": True}))
    other = after(create(), indexes({"key": {"x": 1}, "name": "x_1", "sparse": True, "unique": True, "v": 2}))
    assert one.indexes == other.indexes


def test_the_order_of_an_index_key_is_part_of_it() -> None:
    key = {"b": 1, "a": -1}
    schema = after(create(), indexes({"v": 2, "key": key, "name": "b_a"}))
    assert list(indexes_of(schema)[1]["key"].items()) == [("b", 1), ("a", -1)]
    with pytest.raises(InvariantError, match=r"index .b_a. of shop\.a has the key"):
        after(
            create(),
            indexes({"v": 2, "key": key, "name": "b_a"}),
            indexes({"v": 2, "key": {"a": -1, "b": 1}, "name": "b_a"}),
        )


def test_dropping_an_index_leaves_the_others_and_may_be_repeated() -> None:
    other = {"v": 2, "key": {"x": 1}, "name": "x_1"}
    schema = after(create(), indexes(TTL_INDEX, other), drop_indexes(TTL_INDEX), drop_indexes(TTL_INDEX))
    assert indexes_of(schema) == [ID_INDEX, other]


def test_a_dropped_index_may_come_back_different() -> None:
    again = {"v": 2, "key": {"at": -1}, "name": "at_1"}
    assert indexes_of(after(create(), indexes(TTL_INDEX), drop_indexes(TTL_INDEX), indexes(again)))[1] == again


@pytest.mark.parametrize(
    ("before", "change", "expected"),
    [
        (
            {},
            {"validator": {"q": {"$gte": 0}}},
            {"validator": {"q": {"$gte": 0}}, "validationLevel": "strict", "validationAction": "error"},
        ),
        ({"validator": {"q": 1}}, {"validator": {}}, {"validationLevel": "strict", "validationAction": "error"}),
        (
            {"validationLevel": "strict"},
            {"validationLevel": "off"},
            {"validationLevel": "off", "validationAction": "error"},
        ),
        ({}, {"validationAction": "warn"}, {"validationLevel": "strict", "validationAction": "warn"}),
        (
            {"validationAction": "warn"},
            {"validator": {"q": 1}},
            {"validator": {"q": 1}, "validationLevel": "strict", "validationAction": "warn"},
        ),
        ({"capped": True, "size": 4096}, {"cappedSize": 8192}, {"capped": True, "size": 8192}),
        ({"capped": True, "size": 4096}, {"cappedMax": 5}, {"capped": True, "size": 4096, "max": 5}),
        ({"capped": True, "size": 4096, "max": 5}, {"cappedMax": 0}, {"capped": True, "size": 4096}),
        ({}, {"changeStreamPreAndPostImages": {"enabled": True}}, {"changeStreamPreAndPostImages": {"enabled": True}}),
        ({"changeStreamPreAndPostImages": {"enabled": True}}, {"changeStreamPreAndPostImages": {"enabled": False}}, {}),
        ({"expireAfterSeconds": 60}, {"expireAfterSeconds": 90}, {"expireAfterSeconds": 90}),
        ({"expireAfterSeconds": 60}, {"expireAfterSeconds": "off"}, {}),
        ({"viewOn": "b", "pipeline": []}, {"viewOn": "c", "pipeline": [{"$limit": 1}]}, {"viewOn": "c", "pipeline": [{"$limit": 1}]}),
        ({}, {"comment": "said about the command"}, {}),
        ({}, {"timeseriesBucketsMayHaveMixedSchemaData": True}, {}),
    ],
    ids=str,
)  # fmt: skip
def test_a_modified_option_is_as_listed_afterwards(
    before: dict[str, Any], change: dict[str, Any], expected: dict[str, Any]
) -> None:
    table = None if "viewOn" in before else A
    assert options_of(after(create(**before), modify(**change), id=table)) == expected


def test_granularity_and_bucket_spans_of_a_time_series_replace_each_other() -> None:
    timed = create(timeseries={"timeField": "t", "granularity": "seconds", "bucketMaxSpanSeconds": 3600})
    coarser = modify(timeseries={"granularity": "hours"})
    assert options_of(after(timed, coarser, id=None))["timeseries"] == {
        "timeField": "t",
        "granularity": "hours",
        "bucketMaxSpanSeconds": 2_592_000,
    }
    spans = {"bucketMaxSpanSeconds": 600, "bucketRoundingSeconds": 600}
    assert options_of(after(timed, modify(timeseries=spans), id=None))["timeseries"] == {"timeField": "t", **spans}
    assert (
        "bucketRoundingSeconds"
        not in options_of(after(timed, modify(timeseries=spans), coarser, id=None))["timeseries"]
    )


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([{"expireAfterSeconds": 9}], {**TTL_INDEX, "expireAfterSeconds": 9}),
        ([{"hidden": True}], {**TTL_INDEX, "hidden": True}),
        ([{"hidden": True}, {"hidden": False}], TTL_INDEX),
        ([{"prepareUnique": True}], {**TTL_INDEX, "prepareUnique": True}),
        ([{"prepareUnique": True}, {"prepareUnique": False}], TTL_INDEX),
        ([{"prepareUnique": True}, {"unique": True}], {**TTL_INDEX, "unique": True}),
    ],
    ids=str,
)
@pytest.mark.parametrize("by", [{"name": "at_1"}, {"keyPattern": {"at": 1}}], ids=str)
def test_a_modified_index_is_as_listed_afterwards(
    by: dict[str, Any], changes: list[dict[str, Any]], expected: dict[str, Any]
) -> None:
    schema = after(create(), indexes(TTL_INDEX), *(modify(index={**by, **change}) for change in changes))
    assert indexes_of(schema) == [ID_INDEX, expected]


def test_a_change_of_an_unknown_index_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(InvariantError, match=r"index 'y_1' of shop.a, whose known indexes are \['_id_'\]"):
        after(create(), modify(index={"name": "y_1", "hidden": True}))


def test_the_shard_key_is_that_of_the_last_sharding_command() -> None:
    sharded = (DdlType.SHARD_COLLECTION, {"shardKey": {"x": 1}, "unique": False})
    refined = (DdlType.REFINE_SHARD_KEY, {"shardKey": {"x": 1, "y": 1}, "oldShardKey": {"x": 1}})
    resharded = (DdlType.RESHARD_COLLECTION, {"shardKey": {"z": "hashed"}, "oldShardKey": {"x": 1}})
    assert after(create(), sharded).shard_key == Document.of({"x": 1})
    assert after(create(), sharded, refined).shard_key == Document.of({"x": 1, "y": 1})
    assert after(create(), sharded, refined, resharded).shard_key == Document.of({"z": "hashed"})
