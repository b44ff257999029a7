"""Messages in BSON and in JSON say the same, and obey the documented schema."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import bson
import pytest
from bson import json_util

from changefeed.cluster_time import ClusterTime
from changefeed.documents.document import Document
from changefeed.event import DdlEvent, DdlType, RowType
from changefeed.position import Position
from changefeed.records.ddl import DdlRecord, Scope
from changefeed.table import TableId, TableName, TableSchema
from sink.ddl import (
    BeginAgain,
    CreateIndexes,
    CreateTable,
    DownstreamDdl,
    DropIndexes,
    DropTables,
    ModifyTable,
    RenameTable,
    ShardTable,
    Skip,
)
from sink.messages.message import (
    Message,
    copy_end_message,
    ddl_message,
    emptied_message,
    schema_message,
    watermark_message,
)
from sink.messages.row_message import BsonRows, JsonRows
from sink.receipt import CopyEnd
from sink.row import RowChange, RowDetails, TargetTable
from sluice_client.feed_reader import StoredMessage
from sluice_client.pos import pos_after, pos_of
from tests.json_schema import violations

_SCHEMA = json.loads(
    (Path(__file__).parents[4] / "docs" / "reference" / "event-message.schema.json").read_text(encoding="utf-8")
)
_AT = Position(ClusterTime(100, 3), "00000002")
_NAME = TableName("copy", "Aufträge")
_TABLE = TargetTable(
    id=TableId("ab12"), source=TableName("shop", "Aufträge"), name=_NAME, version=Position(ClusterTime(90, 1))
)
_UPDATE = {
    "updatedFields": {"n": 2, "a.b": [1.5]},
    "removedFields": ["old"],
    "truncatedArrays": [{"field": "x", "newSize": 2}],
    "disambiguatedPaths": {"a.b": ["a", "b"]},
    "upsert": True,
}
_CREATED = Document.of({"capped": True, "size": 4096})
_WAS, _IS = bson.encode({"_id": 7, "n": 1}), bson.encode({"_id": 7, "n": 2})
_INDEX = Document.of({"v": 2, "key": {"a": 1}, "name": "a_1"})


def _change(type: RowType, *, document: Any = None, update: Any = None) -> RowChange:
    return RowChange(
        table=_TABLE,
        type=type,
        key=bson.encode({"_id": 7}),
        document=None if document is None else bson.encode(document),
        update=None if update is None else bson.encode(update),
        time=_AT.ts.to_int(),
        token=_AT.token.encode(),
    )


_CHANGES = [
    _change(RowType.INSERT, document={"_id": 7, "n": 1}),
    _change(RowType.REPLACE, document={"_id": 7, "when": datetime(2026, 1, 1, tzinfo=UTC)}),
    _change(RowType.UPDATE, update=_UPDATE),
    _change(RowType.UPDATE, update={"updatedFields": {}, "removedFields": [], "truncatedArrays": []}),
    _change(RowType.DELETE),
    _change(RowType.INSERT, document={"_id": 7})._replace(details=RowDetails(1_767_225_600_123)),
    _change(RowType.DELETE)._replace(details=RowDetails(5, ("ab" * 16, 1 << 40))),
    _change(RowType.INSERT, document={"_id": 7})._replace(details=RowDetails(5, images="after")),
    _change(RowType.REPLACE, document={"_id": 7})._replace(details=RowDetails(5, None, _WAS, None, "both")),
    _change(RowType.UPDATE, update=_UPDATE)._replace(details=RowDetails(5, None, _WAS, _IS, "both")),
    _change(RowType.UPDATE, update=_UPDATE)._replace(details=RowDetails(5, images="missing")),
    _change(RowType.DELETE)._replace(details=RowDetails(5, None, _WAS, None, "before")),
]


def _rows() -> Iterator[tuple[bytes, bytes]]:
    by_bson, by_json = BsonRows("orders"), JsonRows("orders")
    for change in _CHANGES:
        yield by_bson.change(change), by_json.change(change)
    copied = bson.encode({"_id": 7, "n": 1}), bson.encode({"_id": 7}), ClusterTime(99, 1)
    yield by_bson.copied(_TABLE, *copied), by_json.copied(_TABLE, *copied)


def _record(type: DdlType, **more: Any) -> DdlRecord:
    table = None if type is DdlType.DROP_DATABASE else TableName("shop", "x")
    id = None if type is DdlType.DROP_DATABASE else TableId("u1")
    event = DdlEvent(position=_AT, type=type, db="shop", table=table, id=id, **more)
    return DdlRecord(event=event, scope=Scope(tables=frozenset({TableId("u1")})), seen_at=datetime.now(UTC))


_NS = TableName("copy", "x")
_AGAIN = TableSchema(id=TableId("u1"), name=TableName("shop", "x"), valid_from=_AT)
_DDLS: list[tuple[DdlRecord, DownstreamDdl]] = [
    (_record(DdlType.CREATE), CreateTable(name=_NS, options=_CREATED)),
    (_record(DdlType.CREATE_INDEXES), CreateIndexes(name=_NS, indexes=(_INDEX,))),
    (_record(DdlType.DROP_INDEXES), DropIndexes(name=_NS, indexes=("a_1",))),
    (_record(DdlType.MODIFY), ModifyTable(name=_NS, changes=Document.of({"validationLevel": "off"}))),
    (
        _record(DdlType.SHARD_COLLECTION),
        ShardTable(name=_NS, how=DdlType.SHARD_COLLECTION, description=Document.of({"shardKey": {"a": 1}})),
    ),
    (
        _record(DdlType.RENAME, drop_target=TableId("u2")),
        RenameTable(name=_NS, to=TableName("copy", "y"), replaces=True),
    ),
    (_record(DdlType.RENAME), RenameTable(name=_NS, to=TableName("copy", "y"), replaces=False)),
    (_record(DdlType.ENTER), BeginAgain(name=_NS, schema=_AGAIN)),
    (_record(DdlType.ENTER), BeginAgain(name=_NS, schema=_AGAIN, skipped_from=Position(ClusterTime(90, 1)))),
    (_record(DdlType.DROP), DropTables(names=(_NS,))),
    (_record(DdlType.DROP, wall_ms=1_767_225_600_123), DropTables(names=(_NS,))),
    (_record(DdlType.DROP_DATABASE, wall_ms=1_767_225_600_123), DropTables(names=(_NS,))),
]


def _others() -> Iterator[Message]:
    for record, ddl in _DDLS:
        message = ddl_message("orders", record, ddl)
        assert message is not None
        yield message
    yield emptied_message("orders", TableId("u1"), _NS, _AT)
    yield copy_end_message("orders", CopyEnd(table=TableId("u1"), name=_NS, start=_TABLE.version, at=_AT))
    yield watermark_message("orders", _AT)
    yield watermark_message("orders", _AT, {TableId("u1"): Position(ClusterTime(99, 1))})
    for key in (None, Document.of({"a": 1})):
        schema = TableSchema(
            id=TableId("u1"), name=_NS, options=_CREATED, indexes=(_INDEX,), shard_key=key, valid_from=_AT
        )
        yield schema_message("orders", schema, _NS)


def _all() -> list[tuple[bytes, bytes]]:
    return [*_rows(), *((message.bson(), message.json()) for message in _others())]


@pytest.mark.parametrize("message", [message for _, message in _all()])
def test_each_message_obeys_the_schema(message: bytes) -> None:
    assert list(violations(json.loads(message), _SCHEMA, _SCHEMA)) == []


@pytest.mark.parametrize("damage", [{"op": "x"}, {"pos": "1"}, {"v": 2}, {"more": 1}, {"ts": {"t": 1}}, {"after": 1}])
def test_the_schema_refuses_other_messages(damage: dict[str, Any]) -> None:
    _, message = next(_rows())
    assert list(violations(json.loads(message) | damage, _SCHEMA, _SCHEMA)) != []


@pytest.mark.parametrize(("by_bson", "by_json"), _all())
def test_bson_and_json_say_the_same_in_the_same_order(by_bson: bytes, by_json: bytes) -> None:
    assert b"\n" not in by_json
    parsed = json_util.loads(by_json, json_options=json_util.CANONICAL_JSON_OPTIONS)
    assert json_util.dumps(parsed) == json_util.dumps(bson.decode(by_bson))


@pytest.mark.parametrize(("by_bson", "by_json"), _all())
def test_a_reader_shows_bson_as_it_shows_json(by_bson: bytes, by_json: bytes) -> None:
    assert StoredMessage("", "", by_bson).json == StoredMessage("", "", by_json).json == by_json.decode()


def test_a_row_says_its_place_its_table_and_its_content() -> None:
    message = bson.decode(next(_rows())[0])
    assert message == {
        "v": 1,
        "feed": "orders",
        "op": "i",
        "ns": "copy.Aufträge",
        "id": "ab12",
        "pos": pos_of(_AT),
        "ts": {"t": 100, "i": 3},
        "schema": pos_of(_TABLE.version),
        "key": {"_id": 7},
        "after": {"_id": 7, "n": 1},
    }


def test_an_update_says_what_it_does() -> None:
    full, empty = (bson.decode(BsonRows("orders").change(change))["update"] for change in _CHANGES[2:4])
    assert full == {
        "set": {"n": 2, "a.b": [1.5]},
        "unset": ["old"],
        "truncate": [{"field": "x", "size": 2}],
        "paths": {"a.b": ["a", "b"]},
        "upsert": True,
    }
    assert empty == {}


def test_a_copied_document_stands_after_each_event_of_its_time() -> None:
    *_, (copied, _) = _rows()
    message = bson.decode(copied)
    assert (message["op"], message["after"]) == ("r", {"_id": 7, "n": 1})
    at = ClusterTime(99, 1)
    assert pos_of(Position(at, "FFFFFFFF")) < message["pos"] == pos_after(at) < pos_of(Position(at.next()))


def test_a_ddl_that_changes_nothing_downstream_is_no_message() -> None:
    assert ddl_message("orders", _DDLS[0][0], Skip(note="outside")) is None
