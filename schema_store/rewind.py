"""The tables as they were at an earlier position: the catalog of now, with the DDLs since then undone. Pure.

A changefeed that starts in the past needs the schemas of then, and a source shows only those of now. Each DDL event says enough
to undo it, but for two things: of a table that has been dropped only the name and id are known, not its options and indexes, and
collMod says what it replaced only from 6.0 on. The first does no harm, since the drop follows; the second leaves the newer value.

    now: b = A {x_1}        events since: create B as c @5, drop B @6, rename A from a to b @7, createIndexes A x_1 @8
    undone, newest first    A {} @8, A named a @7, B there, of unknown options @6, B not there yet @5
    then: a = A {}
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from changefeed.document import Document
from changefeed.event import DdlEvent, DdlType
from changefeed.position import Position
from changefeed.table import TableId, TableName, TableSchema, view_id


def rewound(tables: Iterable[TableSchema], since: Iterable[DdlEvent], position: Position) -> tuple[TableSchema, ...]:
    """`tables` with every event of `since` undone, valid from `position`."""
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
            tables[table] = _unknown(table, event)
        case DdlType.RENAME:
            tables[table] = replace(tables.get(table, _unknown(table, event)), name=event.table)
            if event.drop_target is not None and event.renamed_to is not None:
                tables[event.drop_target] = replace(_unknown(event.drop_target, event), name=event.renamed_to)
        case DdlType.CREATE_INDEXES | DdlType.DROP_INDEXES if table in tables:
            tables[table] = _indexes_undone(tables[table], event)
        case DdlType.MODIFY if table in tables:
            tables[table] = _modify_undone(tables[table], event)
        case DdlType.SHARD_COLLECTION if table in tables:
            tables[table] = replace(tables[table], shard_key=None)
        case _:
            pass


def _unknown(table: TableId, event: DdlEvent) -> TableSchema:
    return TableSchema(id=table, name=event.table or TableName(event.db, "?"), valid_from=event.position)


def _indexes_undone(schema: TableSchema, event: DdlEvent) -> TableSchema:
    specifications = event.description.decode().get("indexes", [])
    names = {index["name"] for index in specifications}
    others = tuple(index for index in schema.indexes if index.decode()["name"] not in names)
    if event.type is DdlType.CREATE_INDEXES:
        return replace(schema, indexes=others)
    return replace(schema, indexes=(*others, *(Document.of(index) for index in specifications)))


def _modify_undone(schema: TableSchema, event: DdlEvent) -> TableSchema:
    before = event.description.decode().get("stateBeforeChange", {}).get("collectionOptions")
    if before is None:
        return schema
    options = {option: value for option, value in before.items() if option != "uuid"}
    return replace(schema, options=Document.of(options))
