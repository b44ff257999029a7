from __future__ import annotations

from typing import Any

import bson
import pytest
from bson.objectid import ObjectId

from changefeed.event import RowType
from changefeed.table import TableId, TableName
from sink.mongodb.rows.bulk_command import command_of, outcome_of
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


@pytest.mark.parametrize("name", ["$set", "price"])
def test_a_document_with_a_text_that_is_not_utf8_is_replaced_as_it_is(name: str) -> None:
    document = bson.encode({"_id": 1, name: 5, "text": "$??"}).replace(b"??", b"\xff\xfe")
    _, command = command_of(Batch([_change(RowType.REPLACE, {"_id": 1})._replace(document=document)], ordered=False))
    [statement] = command["updates"]
    assert isinstance(statement["u"], list) is (name == "$set")
    assert document in bson.encode(statement)


def test_rows_wait_for_the_majority() -> None:
    for change in (_change(RowType.INSERT, {"_id": 1}, document={"_id": 1}), _change(RowType.DELETE, {"_id": 1})):
        assert command_of(Batch([change], ordered=False))[1]["writeConcern"] == {"w": "majority"}


def test_a_new_field_is_only_set_where_it_is_not_yet() -> None:
    """Where it is there, at another place among the fields, the row is looked at instead."""
    update = bson.encode({"updatedFields": {"b": 2, "a": 1}, "removedFields": ["a"], "truncatedArrays": []})
    change = RowChange(ORDERS, RowType.UPDATE, bson.encode({"_id": 1}), None, update, 1, b"")
    [statement] = command_of(Batch([change], ordered=True, first=True))[1]["updates"]
    assert bson.decode(bson.encode(statement))["q"] == {"_id": 1, "a": {"$exists": False}}


_MANY = Batch(
    [_change(RowType.DELETE, {"_id": key}) for key in (7, "x", ID, {"a": [1], "b": None}, 2.5)], ordered=False
)


def test_rows_are_deleted_by_one_statement() -> None:
    [statement] = command_of(_MANY)[1]["deletes"]
    among = [7, "x", ID, {"a": [1], "b": None}, 2.5]
    assert bson.decode(bson.encode(statement)) == {"q": {"_id": {"$in": among}}, "limit": 0}


def test_what_is_said_of_one_statement_is_said_of_each_of_its_rows() -> None:
    assert outcome_of(_MANY, {"n": 3, "ok": 1.0}, []).refusals == []
    refused = outcome_of(_MANY, {"n": 0, "ok": 1.0, "writeErrors": [{"index": 0, "code": 112, "errmsg": "busy"}]}, [])
    assert [(refusal.index, refusal.code) for refusal in refused.refusals] == [(at, 112) for at in range(5)]
    assert refused.done == 5


def test_rows_that_a_target_shards_are_deleted_one_by_one() -> None:
    changes = [_change(RowType.DELETE, {"_id": key, "region": "eu"}, table=SHARDED) for key in (1, 2)]
    _, command = command_of(Batch(changes, ordered=False))
    assert [statement["limit"] for statement in command["deletes"]] == [1, 1]
