"""What a table that a rename brings into the filter was at that rename, from the source's catalog of now."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from changefeed.cluster_time import ClusterTime
from changefeed.documents.document import Document
from changefeed.event import DdlEvent, DdlType
from changefeed.position import Position, Window
from changefeed.table import TableId, TableName, TableSchema, TableSize
from owner.connections import SourceConnection
from owner.table_starts import look_up
from source.tables.catalog import CatalogReading

OLD, NEW, NEWEST = TableId("a" * 32), TableId("b" * 32), TableId("c" * 32)
INDEX = Document.of({"v": 2, "key": {"x": 1}, "name": "x_1"})


def at(increment: int) -> Position:
    return Position(ClusterTime(100, increment))


def ddl(increment: int, type: DdlType, coll: str, id: TableId, **more: object) -> DdlEvent:
    return DdlEvent(position=at(increment), type=type, db="shop", table=TableName("shop", coll), id=id, **more)  # type: ignore[arg-type]


@dataclass
class PresentCatalog:
    """The tables of now, and all DDLs."""

    tables: tuple[TableSchema, ...]
    events: tuple[DdlEvent, ...]

    def read_tables(self, wanted: Callable[[TableName], bool]) -> CatalogReading:
        found = tuple(table for table in self.tables if wanted(table.name))
        return CatalogReading(tables=found, position=at(90), after_ts=at(90).ts)

    def sizes(self, names: Iterable[TableName]) -> Mapping[TableName, TableSize]:
        raise AssertionError("the question is not asked")

    def ddls(self, window: Window) -> Iterable[DdlEvent]:
        return [event for event in self.events if window.start <= event.position < window.end]


def looked_up(now: TableSchema, events: tuple[DdlEvent, ...], event: DdlEvent) -> dict[str, Any]:
    return look_up(cast("SourceConnection", PresentCatalog((now,), events)), event).decode()


def test_a_table_is_found_under_the_name_that_it_got_after_another_uuid() -> None:
    entered = ddl(4, DdlType.RENAME, "outside", OLD, renamed_to=TableName("shop", "a"))
    now = TableSchema(
        id=NEWEST, name=TableName("shop", "c"), indexes=(INDEX,), options=Document.of({}), valid_from=at(90)
    )
    since = (
        ddl(5, DdlType.NEW_UUID, "a", OLD, description=Document.of({"uuid": NEW})),
        ddl(6, DdlType.RENAME, "a", NEW, renamed_to=TableName("shop", "b")),
        ddl(7, DdlType.NEW_UUID, "b", NEW, description=Document.of({"uuid": NEWEST})),
        ddl(8, DdlType.RENAME, "b", NEWEST, renamed_to=TableName("shop", "c")),
    )
    assert looked_up(now, (entered, *since), entered)["indexes"] == [INDEX.decode()]
