from __future__ import annotations

from typing import Any

import bson
import pytest
from bson.objectid import ObjectId

from changefeed.event import RowType
from changefeed.table import TableId, TableName
from sink.mongodb.rows.bulk_command import command_of
from sink.mongodb.rows.bulk_plan import Batch
from sink.row import RowChange, TargetTable

ORDERS = TargetTable(id=TableId("a"), source=TableName("shop", "orders"), name=TableName("copy", "orders"))
SHARDED = TargetTable(id=TableId("a"), source=ORDERS.source, name=ORDERS.name, shard_key=("region",))
ID = ObjectId(b"a document's")


def _change(
    type: RowType,
    key: dict[str, Any],
    *,
    document: dict[str, Any] | None = None,
    sets: dict[str, Any] | None = None,
    table: TargetTable = ORDERS,
) -> RowChange:
    update = bson.encode({"updatedFields": sets, "removedFields": [], "truncatedArrays": []}) if sets else None
    return RowChange(table, type, bson.encode(key), bson.encode(document) if document else None, update, 1, b"")


def _sent(change: RowChange) -> dict[str, Any]:
    """The command's only statement, as the server reads it."""
    _, command = command_of(Batch([change], ordered=False))
    [statement] = command.get("updates") or command["deletes"]
    read: dict[str, Any] = bson.decode(bson.encode(statement))
    return read


@pytest.mark.parametrize(
    ("change", "statement"),
    [
        (
            _change(RowType.UPDATE, {"_id": ID}, sets={"a": 1, "b.c": [2.5]}),
            {"q": {"_id": ID}, "u": {"$set": {"a": 1, "b.c": [2.5]}}, "multi": False},
        ),
        (
            _change(RowType.REPLACE, {"_id": "x"}, document={"_id": "x", "a": 1}),
            {"q": {"_id": "x"}, "u": {"_id": "x", "a": 1}, "multi": False, "upsert": True},
        ),
        (
            _change(RowType.REPLACE, {"_id": 1}, document={"_id": 1, "price": "5 $"}),
            {"q": {"_id": 1}, "u": {"_id": 1, "price": "5 $"}, "multi": False, "upsert": True},
        ),
        (
            _change(RowType.REPLACE, {"_id": 1}, document={"_id": 1, "$set": 5}),
            {
                "q": {"_id": 1},
                "u": [{"$replaceWith": {"$literal": {"_id": 1, "$set": 5}}}],
                "multi": False,
                "upsert": True,
            },
        ),
        (_change(RowType.DELETE, {"_id": 7}), {"q": {"_id": 7}, "limit": 1}),
    ],
)
def test_a_statement_says_what_the_event_says(change: RowChange, statement: dict[str, Any]) -> None:
    assert _sent(change) == statement


@pytest.mark.parametrize(
    ("type", "content"),
    [
        (RowType.UPDATE, {"sets": {"a": 1}}),
        (RowType.REPLACE, {"document": {"_id": ID, "region": "eu"}}),
        (RowType.DELETE, {}),
    ],
)
def test_a_shard_key_counts_only_where_the_target_shards(type: RowType, content: dict[str, Any]) -> None:
    key = {"_id": ID, "region": "eu"}
    assert _sent(_change(type, key, **content))["q"] == {"_id": ID}
    assert _sent(_change(type, key, table=SHARDED, **content))["q"] == key
