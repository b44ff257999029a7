"""The commands sent to the target, for DDLs in the forms of MongoDB's change streams and oplog."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from bson.binary import Binary

from changefeed.config.configuration import Ttl
from changefeed.documents.document import EMPTY, Document
from changefeed.errors import DdlUnsupported
from changefeed.event import DdlType
from changefeed.records.ddl import Observation, ObservedTable
from changefeed.table import TableName
from sink.ddl import (
    CreateIndexes,
    CreateTable,
    DropIndexes,
    DropTables,
    ModifyTable,
    RenameTable,
    ShardTable,
    SingleDdl,
    Skip,
)
from sink.mongodb.ddl.ddl_commands import Target, commands

V5_0 = Target(wire=13, sharded=False)
V8_0 = Target(wire=25, sharded=False)
ROUTER_5_0 = Target(wire=13, sharded=True)
ROUTER_8_0 = Target(wire=25, sharded=True)

ORDERS = TableName("shop", "orders")
ITEMS = TableName("shop", "items")
FRENCH = {"locale": "fr", "strength": 3, "backwards": False}
SIMPLE = {"locale": "simple"}


def uuid(digit: str) -> str:
    return digit * 32


def guard(digit: str) -> Binary:
    return Binary(bytes.fromhex(uuid(digit)), 4)


def table(digit: str | None, options: Mapping[str, Any] | None = None, *indexes: Mapping[str, Any]) -> ObservedTable:
    return ObservedTable(
        uuid=uuid(digit) if digit else None,
        options=Document.of(options) if options else EMPTY,
        indexes=tuple(map(Document.of, indexes)),
    )


def sent(
    ddl: SingleDdl,
    *,
    there: Mapping[TableName, ObservedTable | None] | None = None,
    target: Target = V8_0,
    ttl: Ttl = Ttl.DEFERRED,
) -> list[tuple[str, dict[str, Any]]]:
    now = Observation(tables=there if there is not None else {ORDERS: table("a")})
    return [(command.db, dict(command.body)) for command in commands(ddl, now, target, ttl)]


def created(options: Mapping[str, Any], target: Target = V8_0, ttl: Ttl = Ttl.DEFERRED) -> dict[str, Any]:
    ((db, body),) = sent(CreateTable(name=ORDERS, options=Document.of(options)), there={}, target=target, ttl=ttl)
    assert db == "shop"
    assert next(iter(body.items())) == ("create", "orders")
    return {field: value for field, value in body.items() if field != "create"}


def indexed(
    *specifications: Mapping[str, Any], ttl: Ttl = Ttl.DEFERRED, there: ObservedTable | None = None
) -> list[dict[str, Any]]:
    ddl = CreateIndexes(name=ORDERS, indexes=tuple(map(Document.of, specifications)))
    bodies = [body for _, body in sent(ddl, there={ORDERS: there or table("a")}, ttl=ttl)]
    assert all(body.pop("collectionUUID") == guard("a") for body in bodies)
    return bodies


def index_as_sent(specification: Mapping[str, Any]) -> dict[str, Any]:
    (body,) = indexed(specification)
    assert body["createIndexes"] == "orders"
    (index,) = body["indexes"]
    return dict(index)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"capped": True, "size": 8192, "max": 10},
        {"validator": {"qty": {"$gte": 0}}, "validationLevel": "moderate", "validationAction": "warn"},
        {"collation": FRENCH},
        {"clusteredIndex": {"key": {"_id": 1}, "name": "_id_", "unique": True}},
        {"timeseries": {"timeField": "t", "metaField": "m", "granularity": "hours"}},
        {"timeseries": {"timeField": "t", "bucketMaxSpanSeconds": 300, "bucketRoundingSeconds": 300}},
        {"viewOn": "items", "pipeline": [{"$match": {"a": 1}}]},
        {"changeStreamPreAndPostImages": {"enabled": True}},
        {"storageEngine": {"wiredTiger": {"configString": "block_compressor=zstd"}}},
        {"indexOptionDefaults": {"storageEngine": {"wiredTiger": {"configString": "prefix_compression=false"}}}},
        {"encryptedFields": {"fields": [{"path": "ssn", "bsonType": "string"}]}},
    ],
)
def test_an_option_of_create_reaches_the_target_as_it_is(options: Mapping[str, Any]) -> None:
    assert created(options) == options


def test_a_create_leaves_out_what_belongs_to_the_source() -> None:
    of_the_oplog = {
        "capped": True,
        "size": 4096,
        "temp": True,
        "autoIndexId": True,
        "flags": 1,
        "uuid": guard("f"),
        "collation": {**FRENCH, "version": "57.1"},
        "idIndex": {"v": 2, "key": {"_id": 1}, "name": "_id_", "collation": {**FRENCH, "version": "57.1"}},
    }
    assert created(of_the_oplog) == {"capped": True, "size": 4096, "collation": FRENCH}


def test_a_create_leaves_out_what_a_granularity_implies() -> None:
    timeseries = {"timeField": "t", "granularity": "seconds", "bucketMaxSpanSeconds": 3600}
    assert created({"timeseries": timeseries}) == {"timeseries": {"timeField": "t", "granularity": "seconds"}}


def test_pre_images_of_5_0_go_to_5_0_only() -> None:
    assert created({"recordPreImages": True}, target=V5_0) == {"recordPreImages": True}
    assert created({"recordPreImages": True}, target=V8_0) == {}


def test_a_collection_that_expires_is_created_without_expiry_until_cut_over() -> None:
    options = {"timeseries": {"timeField": "t"}, "expireAfterSeconds": 60}
    assert created(options, ttl=Ttl.DEFERRED) == {"timeseries": {"timeField": "t"}}
    assert created(options, ttl=Ttl.COPIED) == options


@pytest.mark.parametrize(
    "index",
    [
        {"key": {"cust": 1, "m.k": -1}, "name": "compound"},
        {"key": {"code": 1}, "name": "code_1", "unique": True, "sparse": True},
        {"key": {"tags": 1}, "name": "tags_1", "partialFilterExpression": {"m.k": {"$gt": 0}}},
        {"key": {"a": 1}, "name": "hidden", "hidden": True},
        {"key": {"a": 1}, "name": "collated", "collation": FRENCH},
        {"key": {"loc": "2dsphere"}, "name": "loc", "2dsphereIndexVersion": 3},
        {"key": {"loc": "2d"}, "name": "flat", "bits": 26, "min": -180.0, "max": 180.0},
        {"key": {"h": "hashed", "a": 1}, "name": "h_hashed"},
        {"key": {"$**": 1}, "name": "$**_1", "wildcardProjection": {"m": 1}},
        {"key": {"a": 1, "b.$**": 1}, "name": "compound wildcard"},
        {
            "key": {"a": 1},
            "name": "engine",
            "storageEngine": {"wiredTiger": {"configString": "prefix_compression=false"}},
        },
    ],
)
def test_an_index_of_any_kind_reaches_the_target_as_it_is(index: Mapping[str, Any]) -> None:
    as_shown = {"v": 2, "ns": "shop.orders", "background": True, **index}
    reached = index_as_sent(as_shown)
    assert reached == {"collation": SIMPLE, **index}
    assert list(reached["key"].items()) == list(index["key"].items())


def test_an_index_shown_without_a_collation_is_sent_as_a_simple_one() -> None:
    """Otherwise the index would get the collation of its collection."""
    assert index_as_sent({"v": 2, "key": {"a": 1}, "name": "a_1"})["collation"] == SIMPLE
    assert index_as_sent({"v": 2, "key": {"a": 1}, "name": "a_1", "collation": FRENCH})["collation"] == FRENCH


def test_a_text_index_is_sent_with_the_fields_it_was_made_of() -> None:
    as_shown = {
        "v": 2,
        "key": {"shop": 1, "_fts": "text", "_ftsx": 1, "at": -1},
        "name": "words",
        "weights": {"body": 1, "title": 3},
        "default_language": "german",
        "language_override": "language",
        "textIndexVersion": 3,
    }
    assert list(index_as_sent(as_shown)["key"].items()) == [
        ("shop", 1),
        ("body", "text"),
        ("title", "text"),
        ("at", -1),
    ]
    assert index_as_sent(as_shown)["weights"] == {"body": 1, "title": 3}
    assert index_as_sent(as_shown)["default_language"] == "german"


def test_indexes_of_one_event_are_built_in_one_scan() -> None:
    (body,) = indexed({"key": {"a": 1}, "name": "a_1"}, {"key": {"b": 1}, "name": "b_1"})
    assert [index["name"] for index in body["indexes"]] == ["a_1", "b_1"]


@pytest.mark.parametrize(
    "index",
    [
        {"v": 2, "key": {"_id": 1}, "name": "_id_"},
        {"v": 2, "key": {"_id": 1}, "name": "c", "unique": True, "clustered": True},
    ],
)
def test_the_index_that_every_table_has_is_not_built(index: Mapping[str, Any]) -> None:
    assert indexed(index) == []
    (body,) = indexed(index, {"key": {"_id": -1}, "name": "_id_-1"}, {"key": {"_id": "hashed"}, "name": "_id_hashed"})
    assert [built["name"] for built in body["indexes"]] == ["_id_-1", "_id_hashed"]


def test_an_expiring_index_is_built_with_the_largest_expiry_until_cut_over() -> None:
    index = {"key": {"at": 1}, "name": "at_1", "expireAfterSeconds": 3600}
    (deferred,) = indexed(index)
    (copied,) = indexed(index, ttl=Ttl.COPIED)
    assert deferred["indexes"][0]["expireAfterSeconds"] == 2147483647
    assert copied["indexes"][0]["expireAfterSeconds"] == 3600


def test_servers_before_6_0_take_no_expiry_longer_than_the_seconds_since_1970() -> None:
    ddl = CreateIndexes(
        name=ORDERS, indexes=(Document.of({"key": {"at": 1}, "name": "at_1", "expireAfterSeconds": 60}),)
    )
    ((_, body),) = sent(ddl, target=V5_0)
    assert body["indexes"][0]["expireAfterSeconds"] == 1_700_000_000
    change = ModifyTable(name=ORDERS, changes=Document.of({"index": {"name": "at_1", "expireAfterSeconds": 60}}))
    ((_, body),) = sent(change, target=V5_0)
    assert body["index"]["expireAfterSeconds"] == 1_700_000_000


def test_an_index_on_its_way_to_unique_is_built_first_and_prepared_after() -> None:
    assert indexed({"v": 2, "key": {"a": 1}, "name": "a_1", "prepareUnique": True}) == [
        {
            "createIndexes": "orders",
            "indexes": [{"key": {"a": 1}, "name": "a_1", "collation": SIMPLE}],
            "commitQuorum": "majority",
        },
        {"collMod": "orders", "index": {"name": "a_1", "prepareUnique": True}},
    ]


def test_an_index_already_prepared_is_not_built_again() -> None:
    prepared = {"v": 2, "key": {"a": 1}, "name": "a_1", "prepareUnique": True}
    assert indexed(prepared, there=table("a", None, prepared)) == []


def test_indexes_are_dropped_one_by_one_so_that_a_missing_one_hinders_no_other() -> None:
    ddl = DropIndexes(name=ORDERS, indexes=("a_1", "b_1"))
    steps = commands(ddl, Observation(tables={ORDERS: table("a")}), V8_0, Ttl.DEFERRED)
    assert [step.body for step in steps] == [
        {"dropIndexes": "orders", "index": "a_1", "collectionUUID": guard("a")},
        {"dropIndexes": "orders", "index": "b_1", "collectionUUID": guard("a")},
    ]
    assert all(27 in step.settled for step in steps)


@pytest.mark.parametrize(
    "changes",
    [
        {"validator": {"qty": {"$gte": 1}}, "validationAction": "error"},
        {"index": {"name": "a_1", "hidden": True}},
        {"index": {"keyPattern": {"a": 1}, "prepareUnique": True}},
        {"cappedSize": 8192, "cappedMax": 5},
        {"changeStreamPreAndPostImages": {"enabled": True}},
        {"timeseries": {"granularity": "hours"}},
    ],
)
def test_a_change_reaches_the_target_as_it_is(changes: Mapping[str, Any]) -> None:
    assert sent(ModifyTable(name=ORDERS, changes=Document.of(changes))) == [
        ("shop", {"collMod": "orders", **changes, "collectionUUID": guard("a")})
    ]


def test_a_view_is_changed_without_a_guard_since_it_has_no_uuid() -> None:
    changes = {"viewOn": "items", "pipeline": []}
    there = {ORDERS: table(None, {"viewOn": "other", "pipeline": []})}
    assert sent(ModifyTable(name=ORDERS, changes=Document.of(changes)), there=there) == [
        ("shop", {"collMod": "orders", **changes})
    ]


def test_an_index_becomes_unique_in_two_steps() -> None:
    ddl = ModifyTable(name=ORDERS, changes=Document.of({"index": {"name": "a_1", "unique": True}}))
    assert [body["index"] for _, body in sent(ddl)] == [
        {"name": "a_1", "prepareUnique": True},
        {"name": "a_1", "unique": True},
    ]


@pytest.mark.parametrize("state", ["unique", "prepareUnique"])
@pytest.mark.parametrize("which", [{"name": "a_1"}, {"keyPattern": {"a": 1}}])
def test_an_index_already_on_its_way_is_not_prepared_again(state: str, which: Mapping[str, Any]) -> None:
    ddl = ModifyTable(name=ORDERS, changes=Document.of({"index": {**which, "unique": True}}))
    there = table("a", None, {"v": 2, "key": {"a": 1}, "name": "a_1", state: True})
    assert [body["index"] for _, body in sent(ddl, there={ORDERS: there})] == [{**which, "unique": True}]


def test_a_changed_expiry_stays_off_until_cut_over() -> None:
    index = ModifyTable(name=ORDERS, changes=Document.of({"index": {"name": "at_1", "expireAfterSeconds": 7200}}))
    whole = ModifyTable(name=ORDERS, changes=Document.of({"expireAfterSeconds": 60}))
    assert sent(index)[0][1]["index"] == {"name": "at_1", "expireAfterSeconds": 2147483647}
    assert sent(whole)[0][1]["expireAfterSeconds"] == "off"
    assert sent(whole, ttl=Ttl.COPIED)[0][1]["expireAfterSeconds"] == 60


def test_fields_for_the_servers_own_use_are_not_sent() -> None:
    assert sent(ModifyTable(name=ORDERS, changes=Document.of({"isTimeseriesNamespace": True}))) == []


def test_only_tables_that_are_there_are_dropped_each_guarded_by_its_uuid() -> None:
    ddl = DropTables(names=(ORDERS, ITEMS))
    assert sent(ddl, there={ORDERS: table("a"), ITEMS: None}) == [
        ("shop", {"drop": "orders", "collectionUUID": guard("a")})
    ]


def test_a_time_series_is_dropped_without_a_guard_since_the_uuid_is_its_buckets() -> None:
    there = {ORDERS: table("a", {"timeseries": {"timeField": "t"}})}
    assert sent(DropTables(names=(ORDERS,)), there=there) == [("shop", {"drop": "orders"})]


def test_a_partial_index_of_a_time_series_states_no_collation_since_a_server_refuses_any() -> None:
    spec = {"v": 2, "key": {"x": 1}, "name": "some", "partialFilterExpression": {"m": 3}}
    ddl = CreateIndexes(name=ORDERS, indexes=(Document.of(spec),))
    [(_, of_series)] = sent(ddl, there={ORDERS: table("a", {"timeseries": {"timeField": "t"}})})
    [(_, of_collection)] = sent(ddl, there={ORDERS: table("a")})
    assert "collation" not in of_series["indexes"][0]
    assert of_collection["indexes"][0]["collation"] == {"locale": "simple"}


def test_servers_before_6_0_know_no_guards() -> None:
    assert sent(DropTables(names=(ORDERS,)), target=V5_0) == [("shop", {"drop": "orders"})]
    rename = RenameTable(name=ORDERS, to=ITEMS, replaces=True)
    assert sent(rename, there={ORDERS: table("a"), ITEMS: table("b")}, target=V5_0) == [
        ("admin", {"renameCollection": "shop.orders", "to": "shop.items", "dropTarget": True})
    ]


def test_a_rename_is_guarded_by_both_uuids() -> None:
    rename = RenameTable(name=ORDERS, to=ITEMS, replaces=True)
    assert sent(rename, there={ORDERS: table("a"), ITEMS: table("b")}) == [
        (
            "admin",
            {
                "renameCollection": "shop.orders",
                "to": "shop.items",
                "dropTarget": guard("b"),
                "collectionUUID": guard("a"),
            },
        )
    ]


def test_a_rename_replaces_nothing_when_nothing_is_there() -> None:
    rename = RenameTable(name=ORDERS, to=ITEMS, replaces=True)
    assert sent(rename, there={ORDERS: table("a"), ITEMS: None}) == [
        ("admin", {"renameCollection": "shop.orders", "to": "shop.items", "collectionUUID": guard("a")})
    ]


def test_a_rename_across_databases_carries_no_guard_since_servers_refuse_one() -> None:
    elsewhere = TableName("archive", "orders")
    rename = RenameTable(name=ORDERS, to=elsewhere, replaces=True)
    assert sent(rename, there={ORDERS: table("a"), elsewhere: table("b")}) == [
        ("admin", {"renameCollection": "shop.orders", "to": "archive.orders", "dropTarget": True})
    ]


def sharded(how: DdlType, description: Mapping[str, Any]) -> ShardTable:
    return ShardTable(name=ORDERS, how=how, description=Document.of(description))


def test_sharding_goes_to_a_sharded_target_only_and_leaves_the_spread_to_it() -> None:
    ddl = sharded(DdlType.SHARD_COLLECTION, {"shardKey": {"a": "hashed"}, "unique": False, "numInitialChunks": 90})
    assert sent(ddl, target=V8_0) == []
    assert sent(ddl, target=ROUTER_8_0) == [
        (
            "admin",
            {"shardCollection": "shop.orders", "key": {"a": "hashed"}, "unique": False, "collation": SIMPLE},
        )
    ]


def test_servers_before_6_0_want_the_database_enabled_first() -> None:
    ddl = sharded(DdlType.SHARD_COLLECTION, {"shardKey": {"a": 1}})
    assert [body for _, body in sent(ddl, target=ROUTER_5_0)] == [
        {"enableSharding": "shop"},
        {"shardCollection": "shop.orders", "key": {"a": 1}, "collation": SIMPLE},
    ]


def test_refined_and_resharded_keys_are_sent() -> None:
    refine = sharded(DdlType.REFINE_SHARD_KEY, {"shardKey": {"a": 1, "b": 1}, "oldShardKey": {"a": 1}})
    reshard = sharded(DdlType.RESHARD_COLLECTION, {"shardKey": {"b": 1}, "oldShardKey": {"a": 1}, "unique": False})
    assert sent(refine, target=ROUTER_8_0) == [
        ("admin", {"refineCollectionShardKey": "shop.orders", "key": {"a": 1, "b": 1}})
    ]
    assert sent(reshard, target=ROUTER_8_0) == [
        ("admin", {"reshardCollection": "shop.orders", "key": {"b": 1}, "unique": False, "collation": SIMPLE})
    ]


def test_sharding_without_a_key_cannot_be_repeated() -> None:
    with pytest.raises(DdlUnsupported, match="does not contain the shard key"):
        sent(sharded(DdlType.SHARD_COLLECTION, {}), target=ROUTER_8_0)


def test_a_skip_sends_nothing() -> None:
    assert sent(Skip(note="outside the filter")) == []
