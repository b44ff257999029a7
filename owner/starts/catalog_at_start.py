"""`begin`, `tables_at`, `check_names`, `look_up`: the source's tables at a position, for a new changefeed, a changed filter, a table that enters the filter.

The catalog shows the tables as they are when it is read. To get them as they were at a position, the DDLs since then are read and undone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from operator import eq
from typing import Protocol

from changefeed.config.configuration import Configuration, Start
from changefeed.config.tables.routes import Routes
from changefeed.documents.document import Document
from changefeed.errors import ConfigurationError, SourceUnavailable
from changefeed.event import DdlEvent, DdlType
from changefeed.position import Position, Window
from changefeed.table import TableId, TableName, TableSchema, TableSize, definition_of
from schema_store.definition import new_uuid
from schema_store.rewind import rewound
from source.tables.catalog import CatalogReading


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """The changefeed's start, and its tables as they were there."""

    position: Position
    tables: tuple[TableSchema, ...]
    copied: bool
    """Whether their documents have to be copied first."""


class Catalog(Protocol):
    """Questions to the source. The answers take a while."""

    def read_tables(self, wanted: Callable[[TableName], bool]) -> CatalogReading:
        """All wanted tables, as they were at one position."""
        ...

    def sizes(self, names: Iterable[TableName]) -> Mapping[TableName, TableSize]:
        """What the source says without counting. A table whose size it does not say is left out."""
        ...

    def ddls(self, window: Window) -> Iterable[DdlEvent]: ...


def begin(source: Catalog, configuration: Configuration, resume_from: Position | None) -> Beginning:
    """A start in the future counts as a start now, since nothing happens in between."""
    reading = source.read_tables(configuration.filter.wants_table)
    start = configuration.start
    asked = resume_from or (None if isinstance(start, Start) else Position(start))
    if asked is None or asked >= reading.position:
        copied = asked is None and start is Start.INITIAL
        return Beginning(position=reading.position, tables=reading.tables, copied=copied)
    tables = _as_of(asked, reading, source, configuration.filter.wants_table)
    return Beginning(position=asked, tables=tables, copied=False)


def tables_at(source: Catalog, wanted: Callable[[TableName], bool], position: Position) -> tuple[TableSchema, ...]:
    """The wanted tables as they were at a past position."""
    reading = source.read_tables(wanted)
    if reading.position < position:
        raise SourceUnavailable(
            f"the source's catalog: expected it as of {position} or later, observed {reading.position}; it will be read again"
        )
    return _as_of(position, reading, source, wanted)


def _as_of(
    position: Position, reading: CatalogReading, source: Catalog, wanted: Callable[[TableName], bool]
) -> tuple[TableSchema, ...]:
    then = rewound(reading.tables, source.ddls(Window(position, reading.position)), position)
    return tuple(table for table in then if wanted(table.name))


def check_names(routes: Routes, tables: Iterable[TableSchema]) -> None:
    """The admin API has checked the tables of that moment; further ones may have been created since."""
    merged = routes.merged(table.name for table in tables)
    if merged:
        raise ConfigurationError(
            [
                f"routes: {', '.join(map(str, names))} would all be {target} at the target, and no rule asks for that; give them different names, or "
                "leave one out (filter.tables)"
                for target, names in merged.items()
            ]
        )


def look_up(source: Catalog, event: DdlEvent) -> Document:
    """A table that a rename brought into the filter, as the rename found it: `{options, indexes, shardKey}`.

    On a cluster the source may know it by a later UUID, if it was resharded or its database's primary shard had changed before.
    """
    name = event.renamed_to
    while True:
        reading = source.read_tables(partial(eq, name))
        ddls = list(source.ddls(Window(event.position, reading.position)))
        id = next((ddl.id for ddl in ddls if ddl.position == event.position), event.id)
        since = [ddl for ddl in ddls if ddl.position > event.position]
        last = _name_after(since, id, event.renamed_to)
        if last == name:
            break
        name = last
    table = next((table for table in rewound(reading.tables, since, event.position) if table.id == id), None)
    if table is None:
        raise SourceUnavailable(
            f"{event}: expected table {event.id} in the source's catalog or in its DDL since, observed neither; they will be read again"
        )
    return definition_of(table)


def _name_after(since: Iterable[DdlEvent], table: TableId | None, name: TableName | None) -> TableName | None:
    """Events after a new UUID name the table by it."""
    for ddl in since:
        if ddl.id == table:
            name = ddl.renamed_to or name
            table = new_uuid(ddl) if ddl.type is DdlType.NEW_UUID else table
    return name
