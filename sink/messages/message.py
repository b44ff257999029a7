"""`Message`: what an event sink says besides rows, in the format `sluice`: DDL, watermarks, and the schema of a table. Pure.

    create   {"v": 1, "feed": "orders", "op": "ddl", "type": "create", "ns": "shop.x", "id": "u1", "pos": "..", "spec": {options}}
    indexes  {.., "type": "createIndexes", "ns": "shop.x", "id": "u1", "spec": {"indexes": [{..}]}, "async": true}
             {.., "type": "dropIndexes", "ns": "shop.x", "id": "u1", "spec": {"indexes": ["a_1"]}}
    modify   {.., "type": "modify", "ns": "shop.x", "id": "u1", "spec": {the fields of collMod}}
    shard    {.., "type": "shard", "ns": "shop.x", "id": "u1", "spec": {"shardKey": ..}}
    rename   {.., "type": "rename", "ns": "shop.x", "to": "shop.y", "id": "u1", "dropped": "u2" or null}
    drop     {.., "type": "drop", "ns": "shop.y", "id": "u1"}; dropDatabase {.., "type": "dropDatabase", "db": "shop", "ids": ["u3", ..]}
    recopy   {.., "type": "recopy", "ns": "shop.x", "id": "u1"}: the table is empty from here, and copied again
             {.., "anew": true, "skipped": {"from": "..", "to": ".."}}: it is made anew, as a schema at this pos says; what is skipped is never sent
    copied   {"v": 1, "feed": "orders", "op": "c", "ns": "shop.x", "id": "u1", "pos": "..", "start": ".."}: the copy that began at `start` is
             complete, and each change from pos on fits it; not in files, where the manifests say it
    mark     {"v": 1, "feed": "orders", "op": "w", "pos": "..", "tables": "all"}: everything before pos is there
    schema   {"v": 1, "feed": "orders", "op": "b", "ns": "shop.x", "id": "u1", "pos": "..", "copy": true if it began with a copy,
              "schema": {"kind": "collection", "options": {..}, "indexes": [{..}], "shardKey": null}}

A DDL has "wall", milliseconds by the source's clock, behind its pos if the source shows it. Names are those downstream, after routing. `pos` of a schema is where this version of the table begins.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import bson
from bson.raw_bson import RawBSONDocument

from changefeed.documents.document import Document
from changefeed.errors import DdlUnsupported
from changefeed.event import DdlType
from changefeed.position import Position
from changefeed.records.ddl import DdlRecord
from changefeed.table import TableId, TableKind, TableName, TableSchema, view_id
from sink.ddl import (
    BeginAgain,
    CreateIndexes,
    CreateTable,
    DownstreamDdl,
    DropIndexes,
    DropTables,
    ModifyTable,
    RenameTable,
    ReplaceView,
    ShardTable,
    Skip,
    Together,
)
from sink.receipt import CopyEnd
from sluice_client.feed_reader import VERSION, DdlMessage, StoredMessage, Watermark
from sluice_client.pos import pos_of

Fields: TypeAlias = dict[str, Any]

EMPTIED = DdlMessage.EMPTIED.value
"""The type of the message that says that a table is empty from there, and copied again."""


@dataclass(frozen=True, slots=True)
class Message:
    """Documents of users in it are raw: canonical Extended JSON in JSON. Everything else is plain."""

    fields: Fields

    def json(self) -> bytes:
        return StoredMessage("", "", self.bson()).json.encode()

    def bson(self) -> bytes:
        return bson.encode(self.fields)


def ddl_message(  # noqa: C901 - one case for each kind of DDL
    feed: str, record: DdlRecord, ddl: DownstreamDdl
) -> Message | None:
    """None for a DDL that changes nothing downstream."""
    event = record.event
    head: Fields = {"v": VERSION, "feed": feed, "op": "ddl"}
    at: Fields = {"pos": pos_of(event.position), **({} if event.wall_ms is None else {"wall": event.wall_ms})}
    about: Fields = {"id": _id(record), **at}
    match ddl:
        case Skip():
            return None
        case CreateTable():
            own: Fields = {"type": "create", "ns": str(ddl.name), **about, "spec": _raw(ddl.options)}
        case CreateIndexes():
            own = {
                "type": "createIndexes",
                "ns": str(ddl.name),
                **about,
                "spec": {"indexes": list(map(_raw, ddl.indexes))},
            }
            own["async"] = record.background
        case DropIndexes():
            own = {"type": "dropIndexes", "ns": str(ddl.name), **about, "spec": {"indexes": list(ddl.indexes)}}
        case ModifyTable():
            own = {"type": "modify", "ns": str(ddl.name), **about, "spec": _raw(ddl.changes)}
        case ShardTable():
            own = {"type": "shard", "ns": str(ddl.name), **about, "spec": _raw(ddl.description)}
        case RenameTable():
            own = {"type": "rename", "ns": str(ddl.name), "to": str(ddl.to), **about, "dropped": event.drop_target}
        case DropTables() if event.type is DdlType.DROP_DATABASE:
            own = {"type": "dropDatabase", "db": event.db, "ids": _ended(record), **at}
        case DropTables():
            own = {"type": "drop", "ns": str(ddl.names[0]), **about, "id": next(iter(_ended(record)), _id(record))}
        case BeginAgain(name=name, skipped_from=skipped_from):
            own = {"type": EMPTIED, "ns": str(name), **about, "anew": True}
            if skipped_from is not None:
                own["skipped"] = {"from": pos_of(skipped_from), "to": pos_of(event.position)}
        case Together() | ReplaceView():
            raise DdlUnsupported(f"{event}: an event sink has no copies beside a table")
    return Message({**head, **own})


def emptied_message(feed: str, table: TableId, name: TableName, at: Position) -> Message:
    head: Fields = {"v": VERSION, "feed": feed, "op": "ddl", "type": EMPTIED}
    return Message({**head, "ns": str(name), "id": table, "pos": pos_of(at)})


def copy_end_message(feed: str, end: CopyEnd) -> Message:
    head: Fields = {"v": VERSION, "feed": feed, "op": "c", "ns": str(end.name), "id": end.table}
    return Message({**head, "pos": pos_of(end.at), "start": pos_of(end.start)})


def watermark_message(feed: str, at: Position, tables: Mapping[TableId, Position] | None = None) -> Message:
    """`tables`: those that are not as far as `at`."""
    return Message(Watermark(at, tables or {}).fields(feed))


def schema_message(feed: str, schema: TableSchema, name: TableName) -> Message:
    """`name`: the table's name downstream."""
    about: Fields = {
        "kind": schema.kind.value,
        "options": _raw(schema.options),
        "indexes": list(map(_raw, schema.indexes)),
        "shardKey": schema.shard_key and _raw(schema.shard_key),
    }
    head: Fields = {"v": VERSION, "feed": feed, "op": "b", "ns": str(name), "id": schema.id}
    copy: Fields = {"copy": True} if schema.copied and schema.kind is not TableKind.VIEW else {}
    return Message({**head, "pos": pos_of(schema.valid_from), **copy, "schema": about})


def _id(record: DdlRecord) -> str | None:
    event = record.event
    if event.id is not None or event.table is None:
        return event.id
    return view_id(event.table)


def _ended(record: DdlRecord) -> list[str]:
    scope = record.scope
    return sorted(scope.ended or scope.tables | scope.apart)


def _raw(document: Document) -> RawBSONDocument:
    return RawBSONDocument(document.raw)
