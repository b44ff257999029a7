"""Entries that the recorded workload does not contain: transactions, two-phase index builds, views."""

from __future__ import annotations

from typing import Any

import pytest
from bson.binary import Binary
from bson.timestamp import Timestamp

from changefeed.event import DdlType
from changefeed.table import TableName, view_id
from source.oplog.ddl_entry import BEFORE_ROWS, OF_SHARDS, WITH_ROWS, Telling, ddls_of_entry, ends_transaction

UI = Binary(bytes.fromhex("e859f91defed4324b3c16153db5f4643"), 4)
TIME = Timestamp(1795228778, 77)


def command(o: dict[str, Any], ns: str = "shop.$cmd", **fields: Any) -> dict[str, Any]:
    return {"op": "c", "ns": ns, "ui": UI, "o": o, "ts": TIME} | fields


def transaction(*operations: dict[str, Any], **fields: Any) -> dict[str, Any]:
    flags: dict[str, Any] = {name: fields.pop(name) for name in ("partialTxn", "prepare") if name in fields}
    return command({"applyOps": list(operations), **flags}, ns="admin.$cmd", **fields)


INSERT = {"op": "i", "ns": "shop.a", "ui": UI, "o": {"_id": 1}}


def created(name: str) -> dict[str, Any]:
    return {
        "op": "c",
        "ns": "shop.$cmd",
        "ui": UI,
        "o": {"create": name, "idIndex": {"v": 2, "key": {"_id": 1}, "name": "_id_"}},
    }


def test_a_transactions_creates_are_ordered_among_its_operations() -> None:
    events = ddls_of_entry(transaction(created("a"), INSERT, created("b")))
    assert [event.table for event in events] == [TableName("shop", "a"), TableName("shop", "b")]
    assert events[0].position < events[1].position
    assert [event.position.token for event in events] == ["00000000", "00000002"]


def test_with_change_stream_rows_the_creates_come_before_the_rows() -> None:
    events = ddls_of_entry(transaction(created("a"), INSERT, created("b")), telling=BEFORE_ROWS)
    row = f"82{TIME.time:08X}{TIME.inc:08X}2B042C0100296E5A1004"
    assert all(event.position.token < row for event in events)
    assert events[0].position < events[1].position


def test_nothing_happens_before_a_chain_ends() -> None:
    for unfinished in (transaction(created("a"), partialTxn=True), transaction(created("a"), prepare=True)):
        assert not ends_transaction(unfinished)
        assert ddls_of_entry(unfinished) == ()


def test_the_last_entry_of_a_chain_shows_the_operations_of_all() -> None:
    first = transaction(created("a"), partialTxn=True)
    last = transaction(INSERT, created("b"), ts=Timestamp(1795228778, 90))
    events = ddls_of_entry(last, [first])
    assert [str(event.table) for event in events] == ["shop.a", "shop.b"]
    assert {event.position.ts.increment for event in events} == {90}


def test_a_prepared_transaction_happens_when_it_commits() -> None:
    prepared = transaction(created("a"), prepare=True)
    commit = command({"commitTransaction": 1, "commitTimestamp": TIME}, ns="admin.$cmd", ts=Timestamp(1795228779, 2))
    (event,) = ddls_of_entry(commit, [prepared])
    assert event.position.ts.seconds == 1795228779


def test_an_apply_ops_inside_another_is_opened_too() -> None:
    inner = {"op": "c", "ns": "admin.$cmd", "o": {"applyOps": [created("a")]}}
    assert len(ddls_of_entry(transaction(inner))) == 1


def test_an_index_build_counts_when_it_commits() -> None:
    build = {
        "indexBuildUUID": UI,
        "indexes": [{"v": 2, "key": {"a": 1}, "name": "a_1"}, {"v": 2, "key": {"b": 1}, "name": "b_1"}],
    }
    assert ddls_of_entry(command({"startIndexBuild": "orders"} | build)) == ()
    assert ddls_of_entry(command({"abortIndexBuild": "orders"} | build)) == ()
    (event,) = ddls_of_entry(command({"commitIndexBuild": "orders"} | build))
    assert event.type is DdlType.CREATE_INDEXES
    assert [spec["name"] for spec in event.description.decode()["indexes"]] == ["a_1", "b_1"]


def test_dropped_index_without_specification_is_known_by_name() -> None:
    (event,) = ddls_of_entry(command({"dropIndexes": "orders", "index": "a_1"}))
    assert event.description.decode() == {"indexes": [{"name": "a_1"}]}


def test_a_rename_names_the_table_that_it_replaces() -> None:
    replaced = Binary(bytes(16), 4)
    (event,) = ddls_of_entry(command({"renameCollection": "shop.a", "to": "shop.b", "dropTarget": replaced}))
    assert (event.renamed_to, event.drop_target) == (TableName("shop", "b"), "0" * 32)


@pytest.mark.parametrize("target", [True, False])
def test_a_drop_target_of_old_servers_that_is_no_uuid_is_no_id(*, target: bool) -> None:
    (event,) = ddls_of_entry(command({"renameCollection": "shop.a", "to": "shop.b", "dropTarget": target}))
    assert event.drop_target is None


def view(op: str, o: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"op": op, "ns": "shop.system.views", "ui": UI, "o": o, "ts": TIME} | fields


def test_view_definitions_are_ddl() -> None:
    (made,) = ddls_of_entry(view("i", {"_id": "shop.v", "viewOn": "a", "pipeline": [], "collation": {"locale": "fr"}}))
    (changed,) = ddls_of_entry(view("u", {"_id": "shop.v", "viewOn": "b", "pipeline": []}, o2={"_id": "shop.v"}))
    (gone,) = ddls_of_entry(view("d", {"_id": "shop.v"}))
    assert [made.type, changed.type, gone.type] == [DdlType.CREATE, DdlType.MODIFY, DdlType.DROP]
    assert {event.id for event in (made, changed, gone)} == {"view:shop.v"}
    assert made.description.decode() == {"viewOn": "a", "pipeline": [], "collation": {"locale": "fr"}}
    assert changed.description.decode() == {"viewOn": "b", "pipeline": []}


@pytest.mark.parametrize("telling", [WITH_ROWS, BEFORE_ROWS, OF_SHARDS])
def test_the_drop_of_all_views_is_told_and_no_other_command_about_their_collection_is(telling: Telling) -> None:
    (gone,) = ddls_of_entry(command({"drop": "system.views"}), telling=telling)
    assert (gone.type, gone.table) == (DdlType.DROP, TableName("shop", "system.views"))
    for other in (command(created("system.views")["o"]), command({"drop": "system.profile"})):
        assert ddls_of_entry(other, telling=telling) == ()


@pytest.mark.parametrize("written", ["no-dot", "crm.v", "", 5, None])
def test_a_document_that_names_no_view_of_its_database_is_no_ddl(written: object) -> None:
    assert ddls_of_entry(view("i", {"_id": written, "viewOn": "a", "pipeline": []})) == ()


_WEATHER = {
    "create": "system.buckets.weather",
    "validator": {"$jsonSchema": {}},
    "clusteredIndex": True,
    "timeseries": {"timeField": "at", "granularity": "seconds", "bucketMaxSpanSeconds": 3600},
    "expireAfterSeconds": 60,
}
_UNPACK = [{"$_internalUnpackBucket": {"timeField": "at", "bucketMaxSpanSeconds": 3600}}]


def series_entries() -> list[dict[str, Any]]:
    """In the order in which servers write them: create, granularity, an index, drop."""
    definition = {"_id": "shop.weather", "viewOn": "system.buckets.weather", "pipeline": _UNPACK}
    return [
        command(_WEATHER),
        view("i", definition),
        view("u", definition, o2={"_id": "shop.weather"}),
        command({"collMod": "system.buckets.weather", "timeseries": {"granularity": "minutes"}}),
        command({"commitIndexBuild": "system.buckets.weather", "indexes": [{"v": 2, "key": {"meta": 1}, "name": "m"}]}),
        view("d", {"_id": "shop.weather"}),
        command({"drop": "system.buckets.weather"}),
    ]


def test_a_time_series_is_the_collection_of_its_buckets_and_its_view_shows_nothing_more() -> None:
    events = [event for entry in series_entries() for event in ddls_of_entry(entry)]
    of_view = view_id(TableName("shop", "weather"))
    assert [event.type for event in events if event.id != of_view] == [
        *(DdlType.CREATE, DdlType.MODIFY, DdlType.CREATE_INDEXES, DdlType.DROP)
    ]
    assert [event.type for event in events if event.id == of_view] == [DdlType.DROP]
    assert {event.table for event in events} == {TableName("shop", "weather")}
    assert {event.id for event in events if event.id != of_view} == {UI.hex()}
    assert events[-1].description.decode() == {"timeseries": {}}
    assert events[0].description.decode() == {
        "timeseries": {"timeField": "at", "granularity": "seconds", "bucketMaxSpanSeconds": 3600},
        "expireAfterSeconds": 60,
    }


@pytest.mark.parametrize("telling", [BEFORE_ROWS, OF_SHARDS])
def test_where_rows_come_from_change_streams_or_shards_a_time_series_is_a_view(telling: Telling) -> None:
    events = [event for entry in series_entries() for event in ddls_of_entry(entry, telling=telling)]
    assert [event.type for event in events] == [DdlType.CREATE, DdlType.MODIFY, DdlType.DROP]
    assert {event.id for event in events} == {view_id(TableName("shop", "weather"))}
    assert events[0].description.decode() == {"timeseries": {"timeField": "at", "granularity": "seconds"}}


def test_a_plain_collection_with_the_name_of_buckets_is_no_time_series() -> None:
    assert ddls_of_entry(command({"create": "system.buckets.x"}), telling=WITH_ROWS) == ()


@pytest.mark.parametrize("ns", ["admin.$cmd", "config.$cmd", "local.$cmd", "__sluice.$cmd"])
def test_commands_in_databases_of_the_server_or_ours_are_no_ddl(ns: str) -> None:
    assert ddls_of_entry(command({"create": "x"}, ns=ns)) == ()


def test_an_unknown_command_concerns_the_table_that_it_names() -> None:
    [event] = ddls_of_entry(command({"teleportCollection": "orders", "to": "moon"}))
    assert (event.type, event.table) == (DdlType.UNKNOWN, TableName("shop", "orders"))
    assert event.description.decode()["to"] == "moon"
    [event] = ddls_of_entry(command({"teleportDatabase": 1}))
    assert (event.type, event.table, event.db) == (DdlType.UNKNOWN, None, "shop")


@pytest.mark.parametrize(
    ("ns", "operation", "coll"),
    [
        ("shop.$cmd", {"op": "c", "o": {"createIndexes": "orders", "key": 5, "name": "x"}}, "orders"),
        ("shop.$cmd", {"op": "c", "o": {"renameCollection": "shop.orders"}}, "orders"),
        ("shop.system.views", {"op": "i", "o": {"_id": "shop.v", "viewOn": "system.buckets.x"}}, "v"),
        ("shop.system.views", {"op": "u", "o2": {"_id": "shop.v"}, "o": {"viewOn": "system.buckets.x"}}, "v"),
    ],
)
def test_what_nobody_can_explain_concerns_the_table_that_it_names(
    ns: str, operation: dict[str, Any], coll: str
) -> None:
    [event] = ddls_of_entry({"ts": TIME, "ns": ns} | operation, telling=BEFORE_ROWS)
    assert (event.type, event.table) == (DdlType.UNKNOWN, TableName("shop", coll))


@pytest.mark.parametrize(
    ("operation", "coll", "to"),
    [
        ({"create": "caf\udce9"}, "caf\\xe9", None),
        ({"create": "orders", "validator": {"a": "caf\udce9"}}, "orders", None),
        ({"collMod": "orders", "validator": {"caf\udce9": 1}}, "orders", None),
        ({"renameCollection": "shop.orders", "to": "shop.caf\udce9"}, "orders", TableName("shop", "caf\\xe9")),
    ],
)
def test_a_text_that_is_no_utf8_concerns_the_table_that_it_names(
    operation: dict[str, Any], coll: str, to: TableName | None
) -> None:
    [event] = ddls_of_entry(command(operation))
    assert (event.type, event.table, event.renamed_to) == (DdlType.UNKNOWN, TableName("shop", coll), to)
    assert "\\\\udce9" in str(event.description) or coll != "orders"


def test_a_row_beside_a_command_may_have_any_name_and_text() -> None:
    row = {"op": "i", "ns": "shop.caf\udce9", "ui": Binary(bytes(16), 4), "o": {"_id": "caf\udce9"}}
    created = {"op": "c", "ns": "shop.$cmd", "ui": Binary(bytes(16), 4), "o": {"create": "orders"}}
    [event] = ddls_of_entry(command({"applyOps": [row, created]}))
    assert (event.type, event.table) == (DdlType.CREATE, TableName("shop", "orders"))


@pytest.mark.parametrize("id", [5, "other.v", "nowhere"])
def test_what_names_no_view_of_its_database_concerns_nothing(id: object) -> None:
    entry = {"ts": TIME, "ns": "shop.system.views", "op": "i", "o": {"_id": id, "viewOn": "system.buckets.x"}}
    assert ddls_of_entry(entry, telling=BEFORE_ROWS) == ()


def test_known_commands_that_are_no_ddl_give_no_event() -> None:
    assert ddls_of_entry(command({"startIndexBuild": "orders"})) == ()
    assert ddls_of_entry(command({"setMultikeyMetadata": "orders"})) == ()
    assert ddls_of_entry(INSERT | {"ts": TIME}) == ()
