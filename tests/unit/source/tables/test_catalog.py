"""Whether a DDL disturbed a reading of the catalog, and what is read again then."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import count

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from changefeed.cluster_time import ClusterTime
from changefeed.documents.document import Document
from changefeed.errors import SourceUnavailable
from changefeed.event import DdlEvent, DdlType
from changefeed.position import Position
from changefeed.table import TableId, TableName, TableSchema
from source.ddl_watch import DdlBatch, DdlWatch
from source.tables.catalog import CatalogReading, disturbs, passed, read_undisturbed

READING = CatalogReading(tables=(), position=Position(ClusterTime(100, 5)), after_ts=ClusterTime(100, 9))
BEYOND = Position(ClusterTime(100, 10))


def ddl(increment: int) -> DdlEvent:
    return DdlEvent(position=Position(ClusterTime(100, increment), "82"), type=DdlType.DROP_DATABASE, db="shop")


@pytest.mark.parametrize("increment", [5, 7, 9])
def test_a_ddl_while_reading_disturbs_it(increment: int) -> None:
    assert disturbs(READING, ddl(increment))


@pytest.mark.parametrize("increment", [4, 10])
def test_a_ddl_before_or_after_does_not_disturb_it(increment: int) -> None:
    assert not disturbs(READING, ddl(increment))


@pytest.mark.parametrize(
    "resolved", [Position(ClusterTime(100, 5)), Position(ClusterTime(100, 9)), Position(ClusterTime(100, 9), "82")]
)
def test_nothing_is_decided_before_the_watch_has_passed_the_reading(resolved: Position) -> None:
    assert not passed(READING, resolved)
    assert passed(READING, BEYOND)


def test_an_idle_source_can_be_read_too() -> None:
    idle = CatalogReading(tables=(), position=Position(ClusterTime(100, 6)), after_ts=ClusterTime(100, 5))
    assert not disturbs(idle, ddl(5))
    assert passed(idle, Position(ClusterTime(100, 6)))


class Source:
    """Users change it at each step of a reading, as `users` says; each change takes one increment of its clock. `b` is a view."""

    def __init__(self, users: Callable[[Source], None], tables: Iterable[str] = ()) -> None:
        self.users = users
        self.now = 0
        self.history: list[DdlEvent] = []
        self.tables: dict[TableName, TableSchema] = {}
        self.readings: list[tuple[str, ...]] = []
        self.opened = 0
        for coll in tables:
            self.create(TableName("shop", coll))

    def _ddl(self, type: DdlType, name: TableName | str, renamed_to: TableName | None = None) -> DdlEvent:
        self.now += 1
        db, table = (name, None) if isinstance(name, str) else (name.db, name)
        at = Position(ClusterTime(100, self.now), "82")
        self.history.append(DdlEvent(position=at, type=type, db=db, table=table, renamed_to=renamed_to))
        return self.history[-1]

    def create(self, name: TableName) -> None:
        at = self._ddl(DdlType.CREATE, name).position
        self.tables[name] = TableSchema(id=TableId(f"{self.now:032x}"), name=name, valid_from=at)

    def index(self, name: TableName) -> None:
        self._ddl(DdlType.CREATE_INDEXES, name)
        schema = self.tables[name]
        self.tables[name] = replace(schema, indexes=(*schema.indexes, Document.of({"name": str(self.now)})))

    def drop(self, name: TableName) -> None:
        self._ddl(DdlType.DROP, name)
        del self.tables[name]

    def rename(self, name: TableName, to: TableName) -> None:
        """Replaces one of that name."""
        self._ddl(DdlType.RENAME, name, to)
        self.tables[to] = replace(self.tables.pop(name), name=to)

    def drop_database(self, db: str) -> None:
        """No DDL of their own tells of views."""
        for name in [each for each in self.tables if each.db == db and each.coll != "b"]:
            self.drop(name)
        self.tables.pop(TableName(db, "b"), None)
        self._ddl(DdlType.DROP_DATABASE, db)

    def read(self, wanted: Callable[[TableName], bool]) -> CatalogReading:
        """Lists the tables, then the indexes of each, as `read_catalog` does."""
        self.users(self)
        position = Position(ClusterTime(100, self.now + 1))
        self.users(self)
        listed = [schema for name, schema in self.tables.items() if wanted(name)]
        found: list[TableSchema] = []
        for schema in listed:
            self.users(self)
            now = self.tables.get(schema.name)
            found.append(replace(schema, indexes=now.indexes if now is not None else (), valid_from=position))
        self.readings.append(tuple(schema.name.coll for schema in listed))
        return CatalogReading(tables=tuple(found), position=position, after_ts=ClusterTime(100, self.now))

    def watch(self, start: Position) -> DdlWatch:
        self.opened += 1
        return _Watch(self, start)

    def stable(self, wanted: Callable[[TableName], bool] = lambda name: name.db == "shop") -> CatalogReading:
        return read_undisturbed(self.read, wanted, self.watch)


class _Watch:
    def __init__(self, source: Source, start: Position) -> None:
        self._source, self._resolved = source, start

    def poll(self) -> DdlBatch:
        self._source.users(self._source)
        end = Position(ClusterTime(100, self._source.now + 1))
        events = tuple(ddl for ddl in self._source.history if self._resolved <= ddl.position < end)
        self._resolved = end
        return DdlBatch(events=events, resolved=end, end=end)

    def close(self) -> None: ...


def definitions(tables: Iterable[TableSchema]) -> dict[TableName, tuple[TableId, tuple[Document, ...]]]:
    return {schema.name: (schema.id, schema.indexes) for schema in tables}


MANY = [f"t{number}" for number in range(40)]


def test_what_a_ddl_disturbed_is_read_again_alone() -> None:
    """Otherwise a changefeed cannot begin where DDL comes more often than all tables can be read."""
    steps = count()

    def users(source: Source) -> None:
        if (step := next(steps)) % 15 == 10:
            source.index(TableName("shop", f"t{step % 40}"))

    source = Source(users, MANY)
    reading = source.stable()
    assert len(source.readings[0]) == 40
    assert all(len(part) <= 3 for part in source.readings[1:])
    assert source.opened == 1, "one watch shows the DDL between the parts, too"
    assert all(schema.valid_from == reading.position for schema in reading.tables)
    assert len(reading.tables) == 40


_KINDS = st.sampled_from(["index", "index", "create", "drop", "rename", "database", "", "", "", "", "", ""])
_NAMES = [TableName(db, coll) for db in ("shop", "bank") for coll in "abc"]


_A, _VIEW = TableName("shop", "a"), TableName("shop", "b")
_QUIET = ("", _A, _A)


@settings(max_examples=500)
@example([_QUIET, _QUIET, ("rename", _A, _VIEW)])
@example([_QUIET, _QUIET, ("index", _VIEW, _A), _QUIET, _QUIET, _QUIET, ("database", _A, _A)])
@given(st.lists(st.tuples(_KINDS, st.sampled_from(_NAMES), st.sampled_from(_NAMES)), max_size=60))
def test_a_reading_in_parts_is_what_the_source_had_at_one_time(
    acts: list[tuple[str, TableName, TableName]],
) -> None:
    todo = iter(acts)
    states: dict[Position, dict[TableName, TableSchema]] = {}

    def users(source: Source) -> None:
        kind, name, other = next(todo, _QUIET)
        if kind == "create" and name not in source.tables:
            source.create(name)
        elif kind in ("index", "drop") and name in source.tables:
            getattr(source, kind)(name)
        elif kind == "rename" and name in source.tables and name.db == other.db and name != other:
            source.rename(name, other)
        elif kind == "database" and TableName(name.db, "a") in source.tables:
            source.drop_database(name.db)
        states[Position(ClusterTime(100, source.now + 1))] = dict(source.tables)

    def wanted(name: TableName) -> bool:
        return name != TableName("shop", "c")

    source = Source(users, "abc")
    states[Position(ClusterTime(100, source.now + 1))] = dict(source.tables)
    try:
        reading = source.stable(wanted)
    except SourceUnavailable:
        return
    there = states[reading.position]
    assert definitions(reading.tables) == definitions(schema for name, schema in there.items() if wanted(name))


def test_a_database_without_wanted_tables_may_be_dropped() -> None:
    source = Source(lambda source: source.drop_database("scratch"), "ab")
    assert len(source.stable().tables) == 2
    assert len(source.readings) == 1


def test_a_table_that_always_changes_is_named() -> None:
    source = Source(lambda source: source.index(TableName("shop", "a")), "ab")
    with pytest.raises(SourceUnavailable, match=r"createIndexes shop\.a at .*filter\.tables"):
        source.stable()
