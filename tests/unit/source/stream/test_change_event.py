"""Expanded events, written by hand as MongoDB 6.0 to 8.x sends them, and the `DdlEvent`s they become."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from bson.binary import Binary
from bson.int64 import Int64
from bson.timestamp import Timestamp

from changefeed.event import DdlEvent, DdlType
from changefeed.position import Position
from changefeed.table import TableName
from source.stream.change_event import ddl_of_change

ORDERS = "e859f91defed4324b3c16153db5f4643"
REPLACED = "4598ecceedde40bc9bc12b3c1c7e67b2"
TOKEN = (
    f"826B01046A000000112B042C0100296E5A1004{ORDERS.upper()}46" + "3C6F7065726174696F6E54797065003C63726561746500000004"
)
TOKEN_OF_A_VIEW = "826B01046A000000112B042C0100296E5A1004A1322F06AC28475085C24E8A36774EEE463C6F7065726174696F6E54797065003C63726561746500000004"


def change(kind: str, description: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    event: dict[str, Any] = {
        "_id": {"_data": TOKEN},
        "operationType": kind,
        "clusterTime": Timestamp(0x6B01046A, 0x11),
        "collectionUUID": Binary(bytes.fromhex(ORDERS), 4),
        "wallTime": datetime(2026, 11, 21, tzinfo=UTC),
        "ns": {"db": "shop", "coll": "orders"},
    }
    if description is not None:
        event["operationDescription"] = description
    return event | fields


def view_change(kind: str, description: dict[str, Any] | None = None, coll: str = "v", **fields: Any) -> dict[str, Any]:
    event = change(kind, description, ns={"db": "shop", "coll": coll}, _id={"_data": TOKEN_OF_A_VIEW}, **fields)
    del event["collectionUUID"]
    return event


def ddl(raw: dict[str, Any]) -> DdlEvent:
    event = ddl_of_change(raw)
    assert event is not None
    return event


def test_create_keeps_the_options_and_says_where_and_when() -> None:
    options = {"capped": True, "size": Int64(4096), "max": 3, "validator": {"qty": {"$gte": 0}}}
    event = ddl(
        change("create", options | {"idIndex": {"v": 2, "key": {"_id": 1}, "name": "_id_"}}, nsType="collection")
    )
    assert (event.type, event.table, event.id) == (DdlType.CREATE, TableName("shop", "orders"), ORDERS)
    assert event.position == Position.parse(f"{0x6B01046A}.17/{TOKEN}")
    assert event.wall_ms == 1795219200000
    described = event.description.decode()
    assert described == options | {"idIndex": {"v": 2, "key": {"_id": 1}, "name": "_id_"}}
    assert isinstance(described["size"], Int64)


def test_a_temporary_collection_is_not_made_temporary_downstream() -> None:
    assert ddl(change("create", {"temp": True, "capped": True, "size": 1})).description.decode() == {
        "capped": True,
        "size": 1,
    }


def test_a_uuid_may_come_decoded() -> None:
    assert ddl(change("drop", collectionUUID=UUID(ORDERS))).id == ORDERS


def test_a_view_is_named_by_its_name_and_not_by_the_uuid_of_system_views_in_its_token() -> None:
    event = ddl(view_change("create", {"viewOn": "orders", "pipeline": [{"$match": {"a": 1}}]}, nsType="view"))
    assert event.id == "view:shop.v"
    assert event.description.decode() == {"viewOn": "orders", "pipeline": [{"$match": {"a": 1}}]}
    assert ddl(view_change("drop")).id == "view:shop.v"


@pytest.mark.parametrize(
    ("span", "stated"),
    [
        (3600, {"granularity": "seconds"}),
        (86400, {"granularity": "minutes"}),
        (2592000, {"granularity": "hours"}),
        (900, {"bucketMaxSpanSeconds": 900, "bucketRoundingSeconds": 900}),
    ],
)
def test_a_view_over_buckets_is_a_time_series(span: int, stated: dict[str, Any]) -> None:
    unpack = {"timeField": "at", "metaField": "sensor", "bucketMaxSpanSeconds": span, "exclude": []}
    definition = {"viewOn": "system.buckets.weather", "pipeline": [{"$_internalUnpackBucket": unpack}]}
    created = ddl(view_change("create", definition, "weather", nsType="timeseries"))
    assert created.description.decode() == {"timeseries": {"timeField": "at", "metaField": "sensor"} | stated}
    assert ddl(view_change("modify", definition, "weather")).description.decode() == {"timeseries": stated}


def test_a_time_series_without_buckets_is_a_collection_with_options() -> None:
    event = ddl(
        change("create", {"timeseries": {"timeField": "at"}, "expireAfterSeconds": Int64(60)}, nsType="timeseries")
    )
    assert event.id == ORDERS
    assert event.description.decode() == {"timeseries": {"timeField": "at"}, "expireAfterSeconds": 60}


def test_index_specifications_keep_every_option() -> None:
    specs = [
        {
            "v": 2,
            "key": {"a": 1, "b": -1},
            "name": "a_1_b_-1",
            "unique": True,
            "partialFilterExpression": {"a": {"$gt": 0}},
        },
        {
            "v": 2,
            "key": {"at": 1},
            "name": "at_1",
            "expireAfterSeconds": 60,
            "hidden": True,
            "collation": {"locale": "fr"},
        },
        {"v": 2, "key": {"$**": 1}, "name": "all", "wildcardProjection": {"m": 1}},
    ]
    indexes = ddl(change("createIndexes", {"indexes": specs})).description.decode()["indexes"]
    assert indexes == specs
    assert list(indexes[0]["key"]) == ["a", "b"]


def test_a_text_index_is_turned_back_into_what_its_user_wrote() -> None:
    spec = {
        "v": 2,
        "key": {"shop": 1, "_fts": "text", "_ftsx": 1, "at": -1},
        "name": "search",
        "weights": {"body": 1, "title": 5},
        "default_language": "english",
        "language_override": "language",
        "textIndexVersion": 3,
    }
    (index,) = ddl(change("createIndexes", {"indexes": [spec]})).description.decode()["indexes"]
    assert list(index["key"].items()) == [("shop", 1), ("body", "text"), ("title", "text"), ("at", -1)]
    assert index["weights"] == {"body": 1, "title": 5}


def test_a_dropped_index_says_its_whole_specification() -> None:
    event = ddl(change("dropIndexes", {"indexes": [{"v": 2, "key": {"a": 1}, "name": "a_1", "ns": "shop.orders"}]}))
    assert event.description.decode() == {"indexes": [{"v": 2, "key": {"a": 1}, "name": "a_1"}]}


def test_modify_says_the_fields_of_the_command() -> None:
    stated = {"index": {"name": "at_1", "expireAfterSeconds": 7200}}
    before = {"collectionOptions": {"uuid": Binary(bytes(16), 4)}, "indexOptions": {"expireAfterSeconds": 60}}
    assert ddl(change("modify", stated, stateBeforeChange=before)).description.decode() == stated


def test_a_rename_says_where_to_and_what_it_replaced() -> None:
    to = {"db": "shop", "coll": "archive.2026"}
    stated = {"to": to, "dropTarget": Binary(bytes.fromhex(REPLACED), 4)}
    event = ddl(change("rename", stated, to=to))
    assert (event.renamed_to, event.drop_target) == (TableName("shop", "archive.2026"), REPLACED)
    assert ddl(change("rename", {"to": to}, to=to)).drop_target is None


def test_dropping_a_database_concerns_no_single_table() -> None:
    event = change("dropDatabase", ns={"db": "shop"}, _id={"_data": "826B01046A0000006F2B042C0100296E1404"})
    del event["collectionUUID"]
    assert (ddl(event).table, ddl(event).id, ddl(event).db) == (None, None, "shop")


@pytest.mark.parametrize(
    ("kind", "stated"),
    [
        ("shardCollection", {"shardKey": {"cust": "hashed"}, "unique": False, "numInitialChunks": Int64(4)}),
        ("refineCollectionShardKey", {"shardKey": {"a": 1, "b": 1}, "oldShardKey": {"a": 1}}),
        ("reshardCollection", {"reshardUUID": Binary(bytes(16), 4), "shardKey": {"b": 1}, "oldShardKey": {"a": 1}}),
    ],
)
def test_changes_of_the_shard_key_are_passed_on_as_they_are(kind: str, stated: dict[str, Any]) -> None:
    assert list(ddl(change(kind, stated)).description.decode()) == list(stated)


@pytest.mark.parametrize(
    ("db", "coll"),
    [("shop", "system.profile"), ("shop", "system.buckets.weather"), ("config", "sessions"), ("__sluice", "heartbeat")],
)
def test_what_the_server_or_we_keep_for_ourselves_is_no_ddl(db: str, coll: str) -> None:
    assert ddl_of_change(change("create", {}, ns={"db": db, "coll": coll})) is None


def test_a_row_event_is_refused() -> None:
    with pytest.raises(ValueError, match="insert"):
        ddl_of_change(change("insert"))


@pytest.mark.parametrize(
    ("description", "ns"),
    [
        ({"validator": {"a": "caf\udce9"}}, "orders"),
        ({}, "caf\udce9"),
        ({"pipeline": [5], "viewOn": "system.buckets.x"}, "v"),
    ],
)
def test_what_nobody_can_explain_concerns_the_table_that_it_names(description: dict[str, Any], ns: str) -> None:
    event = ddl(change("create", description, ns={"db": "shop", "coll": ns}))
    assert (event.type, event.id) == (DdlType.UNKNOWN, ORDERS)
    assert event.table == TableName("shop", ns.replace("\udce9", "\\xe9"))
