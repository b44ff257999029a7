"""`with_ended_views`: the drops of views that the source does not show one by one. Pure.

`db.system.views.drop()`, which MongoDB's manual advises for broken views, drops all views of a database. The oplog shows one drop, of
`system.views`. A change stream shows nothing. There a view that is known goes when another table takes its name, which at the source
it no longer had:

    the oplog     drop shop.system.views @9           drop shop.v @9, drop shop.w @9.0001
    a stream      create shop.v @12, a collection     drop shop.v @12, create shop.v @12.0001
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from changefeed.event import DdlEvent, DdlType
from changefeed.position import Position
from changefeed.table import ALL_VIEWS, TableKind, TableName, TableSchema
from schema_store.definition import created
from schema_store.versions import SchemaVersions


def with_ended_views(event: DdlEvent, tables: SchemaVersions) -> list[DdlEvent]:
    """The event after the drops that it implies, or instead of it these drops, each at a place of its own before that of the next event.

    It is the same each time, also when some of them are in `tables` already.
    """
    before = Position(event.position.ts)
    if event.type is DdlType.DROP and event.table is not None and event.table.coll == ALL_VIEWS:
        of_database = tables.in_database(event.db, before)
        views = sorted(schema.name for schema in of_database if schema.kind is TableKind.VIEW)
        return _in_order([_drop(event, view) for view in views])
    name = event.renamed_to or event.table
    if event.type in (DdlType.CREATE, DdlType.RENAME) and name is not None:
        known = tables.by_name(name, before)
        if known is not None and known.kind is TableKind.VIEW and not _repeated(event, known):
            return _in_order([_drop(event, name), event])
    return [event]


def _in_order(events: Iterable[DdlEvent]) -> list[DdlEvent]:
    return [replace(event, position=_place(event.position, number)) for number, event in enumerate(events)]


def _place(at: Position, number: int) -> Position:
    """Each sorts before the place of the next event, since a dot sorts before all digits."""
    return replace(at, token=f"{at.token}.{number:04X}") if number else at


def _drop(event: DdlEvent, view: TableName) -> DdlEvent:
    return DdlEvent(position=event.position, type=DdlType.DROP, db=view.db, table=view, wall_ms=event.wall_ms)


def _repeated(event: DdlEvent, known: TableSchema) -> bool:
    """Whether it creates the view as it is known."""
    if event.type is not DdlType.CREATE:
        return False
    new = created(event, known.id, known.name)
    return new.kind is TableKind.VIEW and new.options == known.options
