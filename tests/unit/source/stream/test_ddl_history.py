"""The recorded workload, read from the change stream and from the oplog, is one DDL history."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from bson import json_util

from changefeed.cluster_time import ClusterTime
from changefeed.event import SHOWN_BY_STREAMS, DdlEvent, DdlType
from changefeed.table import TableName
from source.oplog.ddl_entry import ddls_of_entry
from source.stream.change_event import ddl_of_change
from source.stream.stream_ddl_watch import DuplicateFolder

RECORDED = Path(__file__).parents[3] / "fixtures" / "mongodb-4.3"


def recorded(name: str) -> list[dict[str, Any]]:
    return [json_util.loads(line) for line in (RECORDED / name).read_text().splitlines()]


def of_stream(name: str) -> list[DdlEvent]:
    events = [ddl_of_change(shown(change)) for change in recorded(name) if change["operationType"] in SHOWN_BY_STREAMS]
    return [event for event in events if event is not None]


def shown(change: dict[str, Any]) -> dict[str, Any]:
    """As servers from 6.0 on show it: with the UUID, which stands in the token behind `5A1004`."""
    uuid = change["_id"]["_data"].partition("5A1004")[2][:32]
    return change | ({"collectionUUID": bytes.fromhex(uuid)} if uuid else {})


@pytest.fixture
def of_oplog() -> list[DdlEvent]:
    return [event for entry in recorded("replica-set-oplog.jsonl") for event in ddls_of_entry(entry)]


def said(event: DdlEvent) -> tuple[object, ...]:
    return event.position.ts, event.type, event.db, event.table, event.id, event.renamed_to


def test_both_watches_show_the_same_history_where_both_can_see_it(of_oplog: list[DdlEvent]) -> None:
    of_changes = of_stream("replica-set-events.jsonl")
    seen_by_both = {DdlType.DROP, DdlType.RENAME, DdlType.DROP_DATABASE}
    of_views = TableName("shop", "system.views")
    comparable = [
        e for e in of_oplog if e.type in seen_by_both and not str(e.id).startswith("view:") and e.table != of_views
    ]
    assert [said(event) for event in of_changes] == [said(event) for event in comparable]
    assert len(of_changes) == 22


def test_the_oplogs_history_is_complete_and_in_order(of_oplog: list[DdlEvent]) -> None:
    assert [f"{event.type} {event.table or event.db}" for event in of_oplog] == [
        "create shop.plain",
        "create shop.capped",
        "create shop.coll_ci",
        "create shop.valid",
        "create shop.v",
        "create shop.implicit",
        "create shop.orders",
        *["createIndexes shop.orders"] * 10,
        "create shop.ids",
        "modify shop.valid",
        "modify shop.orders",
        "modify shop.v",
        *["dropIndexes shop.orders"] * 2,
        "rename shop.plain",
        "create shop.victim",
        "rename shop.renamed",
        "create shop2.tmp1yJ24.renameCollection",
        "rename shop2.tmp1yJ24.renameCollection",
        "drop shop.ids",
        "create shop.a",
        "create shop.b",
        "rename shop.a",
        "rename shop.b",
        "rename shop.tmp",
        "drop shop.v",
        "drop shop.capped",
        "drop shop.valid",
        "create shop.valid",
        "create shop.tmpkHErV.convertToCapped.coll_ci",
        "rename shop.tmpkHErV.convertToCapped.coll_ci",
        "drop shop2.ids",
        "dropDatabase shop2",
        "create arch.x",
        "drop shop.valid",
        "drop shop.system.views",
        "drop shop.a",
        "drop shop.orders",
        "drop shop.coll_ci",
        "drop shop.b",
        "drop shop.victim",
        "drop shop.implicit",
        "dropDatabase shop",
        "drop arch.x",
        "dropDatabase arch",
    ]
    positions = [event.position for event in of_oplog]
    assert positions == sorted(set(positions))


def test_options_and_specifications_of_the_oplog_are_complete(of_oplog: list[DdlEvent]) -> None:
    capped = next(e for e in of_oplog if e.table == TableName("shop", "capped") and e.type is DdlType.CREATE)
    assert capped.description.decode() == {
        "capped": True,
        "size": 8192,
        "max": 10,
        "idIndex": {"v": 2, "key": {"_id": 1}, "name": "_id_"},
    }
    indexes = {
        spec["name"]: spec
        for event in of_oplog
        if event.type is DdlType.CREATE_INDEXES
        for spec in event.description.decode()["indexes"]
    }
    assert indexes["code_1"] == {"v": 2, "key": {"code": 1}, "name": "code_1", "sparse": True, "unique": True}
    assert indexes["name_text"]["key"] == {"name": "text"}
    assert indexes["name_text"]["weights"] == {"name": 3}
    assert indexes["tags_1"]["partialFilterExpression"] == {"m.k": {"$gt": 0}}
    assert indexes["multi2_1"]["collation"]["locale"] == "fr"
    assert list(indexes["cust_mk"]["key"].items()) == [("cust", 1), ("m.k", -1)]


def test_changes_of_options_indexes_and_views_are_in_the_words_of_the_command(of_oplog: list[DdlEvent]) -> None:
    assert [e.description.decode() for e in of_oplog if e.type is DdlType.MODIFY] == [
        {"validator": {"qty": {"$gte": 1}}, "validationAction": "error"},
        {"index": {"name": "at_1", "expireAfterSeconds": 7200}},
        {"viewOn": "plain", "pipeline": [{"$match": {"a": 2}}]},
    ]
    dropped = next(e for e in of_oplog if e.type is DdlType.DROP_INDEXES)
    assert dropped.description.decode() == {"indexes": [{"v": 2, "key": {"cust": 1, "m.k": -1}, "name": "cust_mk"}]}


def test_a_rename_over_a_collection_names_what_it_replaced(of_oplog: list[DdlEvent]) -> None:
    renames = {e.renamed_to: e for e in of_oplog if e.type is DdlType.RENAME}
    replaced = renames[TableName("shop", "victim")]
    victim = next(e for e in of_oplog if e.type is DdlType.CREATE and e.table == TableName("shop", "victim"))
    assert replaced.drop_target == victim.id
    assert renames[TableName("shop", "renamed")].drop_target is None


def test_each_shards_report_of_one_drop_is_one_ddl() -> None:
    folder = DuplicateFolder()
    history = [event for event in of_stream("sharded-events.jsonl") if not folder.is_duplicate(event)]
    dropped = [event.db for event in history if event.type is DdlType.DROP_DATABASE]
    assert dropped == ["shop", "arch"]
    assert len(history) == len(of_stream("sharded-events.jsonl")) - 1


def test_no_recorded_entry_is_unknown() -> None:
    events = [event for entry in recorded("replica-set-oplog.jsonl") for event in ddls_of_entry(entry)]
    assert DdlType.UNKNOWN not in {event.type for event in events}


def test_wall_time_comes_from_the_entry(of_oplog: list[DdlEvent]) -> None:
    assert of_oplog[0].wall_ms == 1795228778100
    assert of_oplog[0].position.ts == ClusterTime(1795228778, 10)
