"""`rewound`: the tables at an earlier position, from the present catalog with the DDLs since then undone. Pure.

A changefeed that starts in the past, and a table that entered the filter a moment ago, need earlier schemas, but a source shows only
the present ones. A DDL event contains enough to undo it, with two exceptions. Of a dropped table only the name, the id and the content
of its own events are known; this suffices, since its drop follows. And a collMod, or what the config servers say of another shard key, does
not say what it replaced: the newer value is used as the older one.

    now: b = A {x_1}        events since: create B as c @5, drop B @6, rename A from a to b @7, createIndexes A x_1 @8
    undone, newest first    A is {} @8, A is named a @7, B exists with unknown options @6, B does not exist @5
    then: a = A {}

`since` must contain every DDL of the source in between, not only those in the filter: a table may have been outside it meanwhile. Of views that
were dropped all at once, only those are known that were changed before.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from changefeed.documents.document import Document
from changefeed.event import DdlEvent, DdlType
from changefeed.position import Position
from changefeed.table import TableId, TableKind, TableName, TableSchema, is_meant, view_id
from schema_store.definition import in_measurements, new_uuid


def rewound(tables: Iterable[TableSchema], since: Iterable[DdlEvent], position: Position) -> tuple[TableSchema, ...]:
    """`tables` and the tables dropped since, with every event of `since` undone, valid from `position`."""
    then = {schema.id: schema for schema in tables}
    for event in sorted(since, key=lambda event: event.position, reverse=True):
        _undo(event, then)
    return tuple(replace(schema, valid_from=position) for _, schema in sorted(then.items()))


def _undo(event: DdlEvent, tables: dict[TableId, TableSchema]) -> None:
    if event.table is None:
        return
    name = event.renamed_to or event.table
    table = event.id or next((id for id, schema in tables.items() if schema.name == name), view_id(name))
    match event.type:
        case DdlType.CREATE:
            tables.pop(table, None)
        case DdlType.DROP:
            _undrop(table, event, tables)
        case DdlType.RENAME:
            tables[table] = replace(tables.get(table) or _unknown(table, event), name=event.table)
            if event.drop_target is not None and event.renamed_to is not None:
                tables[event.drop_target] = replace(_unknown(event.drop_target, event), name=event.renamed_to)
        case DdlType.CREATE_INDEXES | DdlType.DROP_INDEXES if table in tables:
            tables[table] = _indexes_undone(tables[table], in_measurements(event, tables[table]))
        case DdlType.MODIFY if table in tables or event.id == view_id(name):
            tables[table] = _modify_undone(tables.get(table) or _unknown(table, event), event)
        case DdlType.NEW_UUID if (uuid := new_uuid(event)) in tables:
            tables[table] = replace(tables.pop(uuid), id=table)
        case DdlType.SHARD_COLLECTION | DdlType.RESHARD_COLLECTION | DdlType.REFINE_SHARD_KEY if table in tables:
            tables[table] = _sharding_undone(tables[table], event)
        case _:
            pass


def _undrop(table: TableId, event: DdlEvent, tables: dict[TableId, TableSchema]) -> None:
    """The view of a time series is dropped just before its buckets, and is no table beside them."""
    name = event.table or TableName(event.db, "?")
    if table != view_id(name) or all(schema.name != name for schema in tables.values()):
        tables[table] = _unknown(table, event)


def _unknown(table: TableId, event: DdlEvent) -> TableSchema:
    name = event.table or TableName(event.db, "?")
    kind = TableKind.VIEW if table == view_id(name) else TableKind.COLLECTION
    if event.type is DdlType.DROP and "timeseries" in event.description.decode():
        kind = TableKind.TIMESERIES
    return TableSchema(id=table, name=name, kind=kind, valid_from=event.position)


def _sharding_undone(schema: TableSchema, event: DdlEvent) -> TableSchema:
    before = event.description.decode().get("oldShardKey")
    known = before or event.type is DdlType.SHARD_COLLECTION
    return replace(schema, shard_key=Document.of(before) if before else None) if known else schema


def _indexes_undone(schema: TableSchema, event: DdlEvent) -> TableSchema:
    description = event.description.decode()
    specifications = description.get("indexes", [])
    names = {index["name"] for index in specifications} - set(description.get("presumed", ()))
    others = tuple(index for index in schema.indexes if index.decode()["name"] not in names)
    if event.type is DdlType.CREATE_INDEXES:
        return replace(schema, indexes=others)
    return replace(schema, indexes=(*others, *(Document.of(index) for index in specifications)))


def _modify_undone(schema: TableSchema, event: DdlEvent) -> TableSchema:
    """The changed index existed before: for a table dropped since, this event may be the only one that mentions it."""
    changed = event.description.decode().get("index")
    if changed is None or any(is_meant(index.decode(), changed) for index in schema.indexes):
        return schema
    name = changed.get("name") or "_".join(f"{field}_{kind}" for field, kind in changed["keyPattern"].items())
    index = {"v": 2, "key": changed.get("keyPattern", {name: 1}), "name": name}
    return replace(schema, indexes=(*schema.indexes, Document.of(index)))
