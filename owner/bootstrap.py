"""How a changefeed begins: which tables there are, and at which position that is true."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from changefeed.configuration import Configuration, Start
from changefeed.event import DdlEvent
from changefeed.position import Position, Window
from changefeed.table import TableName, TableSchema
from schema_store.rewind import rewound
from source.catalog import CatalogReading


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """The changefeed's start, and its tables as they were there."""

    position: Position
    tables: tuple[TableSchema, ...]
    copied: bool
    """Their documents are to be copied first."""


class Catalog(Protocol):
    """What the source has to answer; the answers take a while."""

    def read_tables(self, wanted: Callable[[TableName], bool]) -> CatalogReading:
        """As they all were at one position."""
        ...

    def ddls(self, window: Window) -> Iterable[DdlEvent]: ...


def begin(source: Catalog, configuration: Configuration, resume_from: Position | None) -> Beginning:
    """A start in the future is a start now, as nothing happens in between."""
    reading = source.read_tables(configuration.filter.wants_table)
    start = configuration.start
    asked = resume_from or (None if isinstance(start, Start) else Position(start))
    if asked is None or asked >= reading.position:
        copied = asked is None and start is Start.INITIAL
        return Beginning(position=reading.position, tables=reading.tables, copied=copied)
    since = source.ddls(Window(asked, reading.position))
    in_scope = [event for event in since if configuration.filter.ddl(event) is not None]
    return Beginning(position=asked, tables=rewound(reading.tables, in_scope, asked), copied=False)
