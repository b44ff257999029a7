"""`MongoReplica`: makes a MongoDB what the messages of a changefeed say, in their order, with the writer and the DDL applier of a MongoDB sink.

Rows are written in batches, and before each DDL. While a table is copied, a change may not fit, and its indexes wait until the copy is over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import bson

from changefeed.cluster_time import ClusterTime
from changefeed.documents.document import Document
from changefeed.errors import InvariantError
from changefeed.event import DdlType, RowType
from changefeed.table import TableId, TableName
from sink.ddl import (
    CreateIndexes,
    CreateTable,
    DownstreamDdl,
    DropIndexes,
    DropTables,
    ModifyTable,
    RenameTable,
    ShardTable,
    names_of,
)
from sink.files.reading.feed_directory import StoredMessage
from sink.files.reading.reader import Copied, CopyBegins, Shown
from sink.mongodb.connection import Client
from sink.mongodb.ddl.ddl_applier import MongoDdlApplier
from sink.mongodb.rows.row_writer import MongoRowWriter
from sink.row import RowChange, TargetTable

_BATCH = 2_000
_FOREVER = 3600.0
_TYPES: Mapping[str, RowType] = {
    "i": RowType.INSERT,
    "u": RowType.UPDATE,
    "R": RowType.REPLACE,
    "d": RowType.DELETE,
    "r": RowType.REPLACE,
}
_UPDATE_NAMES: tuple[tuple[str, str, Any], ...] = (("set", "updatedFields", {}), ("unset", "removedFields", []))


class MongoReplica:
    """`close` closes the client, too."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._writer = MongoRowWriter(client, permit=lambda: _FOREVER)
        self._ddl = MongoDdlApplier(client, permit=lambda: _FOREVER)
        self._names: dict[TableId, TableName] = {}
        self._copying: set[TableId] = set()
        self._indexes: dict[TableId, tuple[Document, ...]] = {}
        """Those that wait for the end of a copy."""
        self._rows: list[RowChange] = []

    def follow(self, messages: Iterable[Shown]) -> None:
        """Everything is durable when it returns."""
        for message in messages:
            self._take(message)
        self._flush()

    def close(self) -> None:
        self._client.close()

    def _take(self, shown: Shown) -> None:
        match shown:
            case CopyBegins(table):
                self._flush()
                self._copying.add(table)
            case Copied(table):
                self._flush()
                self._copying.discard(table)
                self._build(table)
            case StoredMessage():
                fields = shown.fields
                if fields["op"] in _TYPES:
                    self._rows.append(_change(fields))
                    if len(self._rows) >= _BATCH:
                        self._flush()
                else:
                    self._flush()
                    self._apply(fields)

    def _apply(self, fields: dict[str, Any]) -> None:
        """Of a DDL or a schema."""
        table = TableId(fields.get("id") or "")
        match fields["op"], fields.get("type"):
            case "b", _:
                name, schema = TableName.parse(fields["ns"]), fields["schema"]
                self._do(CreateTable(name=name, options=Document.of(schema["options"])))
                self._names[table], self._indexes[table] = name, tuple(map(Document.of, schema["indexes"]))
                if table not in self._copying:
                    self._build(table)
            case _, "recopy":
                name = TableName.parse(fields["ns"])
                self._client[name.db][name.coll].delete_many({})
            case _, "dropDatabase":
                names = tuple(self._names.pop(TableId(id)) for id in fields["ids"] if id in self._names)
                self._do(DropTables(names=names))
            case _, "dropIndexes" if table in self._indexes:
                self._drop_indexes(table, TableName.parse(fields["ns"]), set(fields["spec"]["indexes"]))
            case _:
                self._do(_ddl(fields))
                self._rename(fields, table)

    def _drop_indexes(self, table: TableId, name: TableName, gone: set[str]) -> None:
        """Some of them may not be built yet, and never are."""
        waiting = {index: index.decode()["name"] for index in self._indexes[table]}
        self._indexes[table] = tuple(index for index, called in waiting.items() if called not in gone)
        if built := tuple(sorted(gone - set(waiting.values()))):
            self._do(DropIndexes(name=name, indexes=built))

    def _rename(self, fields: dict[str, Any], table: TableId) -> None:
        match fields["type"]:
            case "create":
                self._names[table] = TableName.parse(fields["ns"])
            case "rename":
                self._names[table] = TableName.parse(fields["to"])
                self._names.pop(TableId(fields["dropped"] or ""), None)
            case "drop":
                self._names.pop(table, None)

    def _build(self, table: TableId) -> None:
        indexes = self._indexes.pop(table, ())
        if indexes and table in self._names:
            self._do(CreateIndexes(name=self._names[table], indexes=indexes))

    def _do(self, ddl: DownstreamDdl) -> None:
        self._ddl.apply(ddl, self._ddl.observe(names_of(ddl)))

    def _flush(self) -> None:
        rows, self._rows = self._rows, []
        if rows:
            run = self._writer.begin(lambda table: table in self._copying)
            run.prepare(rows, replay=any(row.table.id in self._copying for row in rows))()
            run.settle()


def _change(fields: dict[str, Any]) -> RowChange:
    name = TableName.parse(fields["ns"])
    update, after = fields.get("update"), fields.get("after")
    return RowChange(
        table=TargetTable(id=TableId(fields["id"]), source=name, name=name, ordered=True),
        type=_TYPES[fields["op"]],
        key=bson.encode(fields["key"]),
        document=bson.encode(after) if after is not None else None,
        update=bson.encode(_description(update)) if update is not None else None,
        time=ClusterTime(fields["ts"]["t"], fields["ts"]["i"]).to_int(),
        token=fields["pos"].partition(".")[2][6:].encode(),
    )


def _description(update: dict[str, Any]) -> dict[str, Any]:
    description = {name: update.get(short, empty) for short, name, empty in _UPDATE_NAMES}
    description["truncatedArrays"] = [
        {"field": it["field"], "newSize": it["size"]} for it in update.get("truncate", ())
    ]
    if "paths" in update:
        description["disambiguatedPaths"] = update["paths"]
    if update.get("upsert"):
        description["upsert"] = True
    return description


def _ddl(fields: dict[str, Any]) -> DownstreamDdl:
    kind, name, spec = fields["type"], TableName.parse(fields["ns"]), fields.get("spec", {})
    makers: Mapping[str, Callable[[], DownstreamDdl]] = {
        "create": lambda: CreateTable(name=name, options=Document.of(spec)),
        "createIndexes": lambda: CreateIndexes(name=name, indexes=tuple(map(Document.of, spec["indexes"]))),
        "dropIndexes": lambda: DropIndexes(name=name, indexes=tuple(spec["indexes"])),
        "modify": lambda: ModifyTable(name=name, changes=Document.of(spec)),
        "shard": lambda: ShardTable(name=name, how=DdlType.SHARD_COLLECTION, description=Document.of(spec)),
        "rename": lambda: RenameTable(
            name=name, to=TableName.parse(fields["to"]), replaces=fields["dropped"] is not None
        ),
        "drop": lambda: DropTables(names=(name,)),
    }
    if kind not in makers:
        raise InvariantError(
            f"{kind} of {name} at {fields['pos']}: expected a DDL of the format's first version; use a newer reader"
        )
    return makers[kind]()
