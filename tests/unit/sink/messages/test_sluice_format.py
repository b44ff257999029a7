"""What a broker gets in the format `sluice`: the messages of the files, with keys and headers."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import bson
import pytest
from bson.int64 import Int64

from changefeed.cluster_time import ClusterTime
from changefeed.config.sinks.message_options import MessageEncoding, MessageOptions
from changefeed.event import DdlEvent, DdlType, RowType
from changefeed.position import Position
from changefeed.records.ddl import DdlRecord, Scope
from changefeed.table import TableId, TableName, TableSchema
from sink.ddl import DropTables, Skip
from sink.messages.formats import message_format
from sink.messages.message import copy_end_message, emptied_message, schema_message, watermark_message
from sink.messages.message_format import KeyedMessage, MessageFormat
from sink.messages.row_message import BsonRows, JsonRows
from sink.receipt import CopyEnd
from sink.row import RowChange, TargetTable
from sluice_client.pos import pos_after, pos_of

_AT = Position(ClusterTime(100, 3), "00000002")
_NAME = TableName("shop", "orders")
_TABLE = TargetTable(id=TableId("ab12"), source=_NAME, name=_NAME, version=Position(ClusterTime(90, 1)))
_CHANGE = RowChange(
    table=_TABLE,
    type=RowType.INSERT,
    key=bson.encode({"_id": 7, "region": "eu"}),
    document=bson.encode({"_id": 7, "region": "eu"}),
    update=None,
    time=_AT.ts.to_int(),
    token=_AT.token.encode(),
)


def _format(encoding: MessageEncoding = MessageEncoding.JSON) -> MessageFormat:
    return message_format("orders", "shop", MessageOptions(encoding=encoding))


@pytest.mark.parametrize("encoding", MessageEncoding)
def test_a_row_is_the_message_of_a_file_with_a_key_and_headers(encoding: MessageEncoding) -> None:
    (message,) = _format(encoding).change(_CHANGE)
    key = bson.encode({"_id": Int64(7)}) if encoding is MessageEncoding.BSON else b'{"_id": {"$numberLong": "7"}}'
    rows = BsonRows("orders") if encoding is MessageEncoding.BSON else JsonRows("orders")
    assert (message.key, message.value) == (key, rows.change(_CHANGE))
    assert dict(message.headers) == {
        "sluice.v": b"1",
        "sluice.pos": pos_of(_AT).encode(),
        "sluice.op": b"i",
        "sluice.table": b"ab12",
        "sluice.schema": pos_of(_TABLE.version).encode(),
    }


def test_a_copied_document_has_the_pos_of_its_time() -> None:
    (message,) = _format().copied(_TABLE, bson.encode({"_id": 7}), bson.encode({"_id": 7}), _AT.ts)
    headers = dict(message.headers)
    assert (headers["sluice.op"], headers["sluice.pos"]) == (b"r", pos_after(_AT.ts).encode())


def _record() -> DdlRecord:
    event = DdlEvent(position=_AT, type=DdlType.DROP, db="shop", table=_NAME, id=_TABLE.id)
    return DdlRecord(event=event, scope=Scope(tables=frozenset({_TABLE.id})), seen_at=datetime.now(UTC))


_SCHEMA = TableSchema(id=_TABLE.id, name=_NAME, valid_from=_AT)
_END = CopyEnd(table=_TABLE.id, name=_NAME, start=_TABLE.version, at=_AT)


@pytest.mark.parametrize(
    ("message", "op", "fields"),
    [
        (_format().ddl(_record(), DropTables(names=(_NAME,))), b"ddl", {"type": "drop"}),
        (_format().told(schema_message("orders", _SCHEMA, _NAME)), b"b", {"op": "b"}),
        (_format().told(emptied_message("orders", _TABLE.id, _NAME, _AT)), b"ddl", {"type": "recopy"}),
        (_format().told(copy_end_message("orders", _END)), b"c", {"start": pos_of(_TABLE.version)}),
    ],
)
def test_what_is_not_a_row_has_no_key_and_says_its_table(
    message: KeyedMessage, op: bytes, fields: dict[str, Any]
) -> None:
    headers = dict(message.headers)
    assert (message.key, headers["sluice.op"], headers["sluice.table"]) == (None, op, b"ab12")
    assert message.value is not None
    assert json.loads(message.value).items() >= {"pos": pos_of(_AT), **fields}.items()


def test_a_watermark_concerns_no_table() -> None:
    message = _format().told(watermark_message("orders", _AT))
    assert message is not None
    assert dict(message.headers) == {"sluice.v": b"1", "sluice.pos": pos_of(_AT).encode(), "sluice.op": b"w"}
    assert message.value is not None
    assert json.loads(message.value)["tables"] == "all"


def test_a_ddl_that_changes_nothing_downstream_is_no_message() -> None:
    assert _format().ddl(_record(), Skip(note="outside")) is None


def test_the_size_of_a_message_is_all_that_it_has() -> None:
    assert KeyedMessage(b"12", b"345", [("n", b"67")]).size == 8
    assert KeyedMessage(None, None, []).size == 0
