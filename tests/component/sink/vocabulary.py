"""Tables, positions, rows and DDL for tests of sinks of messages, and short texts of what a reader shows."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import bson

from changefeed.cluster_time import ClusterTime
from changefeed.event import DdlEvent, DdlType, RowType
from changefeed.position import Position
from changefeed.records.ddl import DdlRecord, Observation, Scope
from changefeed.table import TableId, TableName, TableSchema
from sink.receipt import CopyEnd
from sink.row import RowChange, TargetTable
from sink.sink import NamedTables
from sluice_client.feed_reader import Content, Copied, CopyBegins

LIFE = "c/1"
A, B = TableId("aa" * 16), TableId("bb" * 16)
NOTHING_SEEN = Observation(tables={})


def moment(seconds: int, index: int | None = None) -> Position:
    return Position(ClusterTime(seconds, 1), "" if index is None else f"{index:08X}")


def named(coll: str) -> TableName:
    return TableName("shop", coll)


def target(table: TableId = A, name: str = "a") -> TargetTable:
    return TargetTable(id=table, source=named(name), name=named(name), version=moment(100))


def described(
    table: TableId = A, name: str = "a", at: Position | None = None, *, copied: bool = False
) -> tuple[TableSchema, TableName]:
    return TableSchema(id=table, name=named(name), valid_from=at or moment(100), copied=copied), named(name)


def begin_of(tables: NamedTables) -> Position:
    """Of a changefeed that begins with these tables."""
    return max((schema.valid_from for schema, _ in tables), default=moment(100))


def insert(table: TableId, at: int, key: int, name: str = "a", size: int | None = None) -> RowChange:
    """`size`: that of a text which makes the row large."""
    document = bson.encode({"_id": key, "at": at} | ({} if size is None else {"text": "x" * size}))
    return RowChange(
        table=target(table, name),
        type=RowType.INSERT,
        key=bson.encode({"_id": key}),
        document=document,
        update=None,
        time=ClusterTime(at, 1).to_int(),
        token=b"00000000",
    )


def changed(type: RowType, table: TableId, at: int, index: int, key: int, name: str = "a", **update: Any) -> RowChange:
    described = {"updatedFields": update, "removedFields": [], "truncatedArrays": []}
    return RowChange(
        table=target(table, name),
        type=type,
        key=bson.encode({"_id": key}),
        document=bson.encode({"_id": key} | update) if type in (RowType.INSERT, RowType.REPLACE) else None,
        update=bson.encode(described) if type is RowType.UPDATE else None,
        time=ClusterTime(at, 1).to_int(),
        token=f"{index:08X}".encode(),
    )


def recorded(type: DdlType, at: int, table: TableId = A, **more: Any) -> DdlRecord:
    event = DdlEvent(position=moment(at, 0), type=type, db="shop", table=named("a"), id=table, **more)
    return DdlRecord(
        event=event, scope=Scope(tables=frozenset({table}), ended=frozenset({table})), seen_at=datetime.now(UTC)
    )


def entered(at: int, name: str = "a") -> DdlRecord:
    """Of table A, which begins again."""
    event = DdlEvent(position=moment(at), type=DdlType.ENTER, db="shop", table=named(name), id=A)
    return DdlRecord(event=event, scope=Scope(apart=frozenset({A})), seen_at=datetime.now(UTC))


def copy_end(start: int) -> CopyEnd:
    return CopyEnd(table=A, name=named("a"), start=moment(start), at=moment(start + 1))


def text_of(shown: Content) -> str:
    if isinstance(shown, Copied | CopyBegins):
        return "copied" if isinstance(shown, Copied) else "copy"
    fields = shown.fields
    match fields["op"]:
        case "ddl":
            return f"{fields['type']} {fields.get('ns', fields.get('db'))}"
        case "b":
            return f"schema {fields['ns']}"
        case op:
            row = fields.get("after") or {}
            return f"{op}{fields['key']['_id']}" + (f"@{row['at']}" if "at" in row else "")
