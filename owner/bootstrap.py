"""How a changefeed begins: which tables there are, and at which position that is true."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from changefeed.cluster_time import ClusterTime
from changefeed.configuration import Configuration, Start
from changefeed.event import DdlEvent
from changefeed.position import Position
from changefeed.table import TableName, TableSchema
from owner.ddl_feed import DdlFeed
from schema_store.rewind import rewound
from source.catalog import CatalogReading, Stability, stability_of

_LOOK_AGAIN_SECONDS = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """The changefeed's start, and its tables as they were there."""

    position: Position
    tables: tuple[TableSchema, ...]


class Catalog(Protocol):
    @property
    def feed(self) -> DdlFeed: ...

    def read_catalog(self, wanted: Callable[[TableName], bool]) -> CatalogReading: ...


def begin(catalog: Catalog, configuration: Configuration, stopping: threading.Event) -> Beginning | None:
    """Reads the catalog until nothing disturbed a reading; None when told to stop. Runs in a worker thread."""
    start = configuration.start
    while not stopping.is_set():
        reading = catalog.read_catalog(configuration.filter.wants_table)
        position = reading.position if isinstance(start, Start) else _past(start, reading.position)
        ddls = _shown(catalog.feed, reading, position, configuration, stopping)
        if ddls is not None:
            before = [ddl for ddl in ddls if ddl.position < reading.position]
            return Beginning(position=position, tables=rewound(reading.tables, before, position))
    return None


def _past(start: ClusterTime, now: Position) -> Position:
    """A start in the future is a start now, as nothing happens in between."""
    return min(Position(start), now)


def _shown(
    feed: DdlFeed, reading: CatalogReading, start: Position, configuration: Configuration, stopping: threading.Event
) -> list[DdlEvent] | None:
    """The DDLs in scope from `start` to past the reading; None when one disturbed it."""
    subscription = feed.subscribe(start)
    ddls: list[DdlEvent] = []
    try:
        while not stopping.is_set():
            taken = subscription.take()
            if taken.error is not None:
                raise taken.error
            ddls += _in_scope(taken.events, configuration)
            match stability_of(reading, ddls, taken.resolved):
                case Stability.STABLE:
                    return ddls
                case Stability.DISTURBED:
                    return None
                case Stability.UNDECIDED:
                    stopping.wait(_LOOK_AGAIN_SECONDS)
        return None
    finally:
        subscription.close()


def _in_scope(events: Iterable[DdlEvent], configuration: Configuration) -> list[DdlEvent]:
    return [event for event in events if configuration.filter.ddl(event) is not None]
