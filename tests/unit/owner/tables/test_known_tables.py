"""The owner derives the same from the records however often they were folded, and so does its successor."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from unittest.mock import Mock, patch

from changefeed.cluster_time import ClusterTime
from changefeed.documents.document import Document
from changefeed.event import DdlEvent, DdlType
from changefeed.position import Position
from changefeed.records.ddl import DdlRecord, DdlState, Scope
from changefeed.records.node import AssignedTable
from changefeed.table import TableId, TableName, TableSchema
from owner.tables.known_tables import KnownTables
from schema_store.store import fold
from schema_store.versions import SchemaVersions

SEEN = datetime(2026, 11, 21, tzinfo=UTC)
A, B = TableId("a" * 32), TableId("b" * 32)


def at(increment: int) -> Position:
    return Position(ClusterTime(100, increment))


def done(increment: int, type: DdlType, coll: str, id: TableId, to: str = "", **description: object) -> DdlRecord:
    event = DdlEvent(
        position=at(increment),
        type=type,
        db="shop",
        table=TableName("shop", coll),
        id=id,
        renamed_to=TableName("shop", to) if to else None,
        description=Document.of(description),
    )
    return DdlRecord(event=event, scope=Scope(), state=DdlState.DONE, seen_at=SEEN)


def base(id: TableId, coll: str) -> TableSchema:
    return TableSchema(id=id, name=TableName("shop", coll), valid_from=at(1))


def history() -> list[DdlRecord]:
    """300 DDLs of a few tables."""
    records = []
    for number in range(100):
        id = TableId(f"{number:032x}")
        records.append(done(10 + 3 * number, DdlType.CREATE, f"t{number}", id))
        records.append(done(11 + 3 * number, DdlType.RENAME, f"t{number}", id, to=f"u{number}"))
        if number % 2:
            records.append(done(12 + 3 * number, DdlType.DROP, f"u{number}", id))
    return records


def test_after_folding_the_tables_are_those_that_a_new_owner_derives() -> None:
    bases, records = {A: base(A, "a")}, {record.position: record for record in history()}
    known = KnownTables(bases, records.values())
    while (step := next(fold(bases, records.values(), at(200), max_operations=20), None)) is not None:
        bases |= {table.id: table for table in step.write}
        bases = {id: table for id, table in bases.items() if id not in step.remove}
        records = {position: record for position, record in records.items() if position not in step.ddls}
        known.gc(at(200))
        known.take(records.values())
        derived = KnownTables(bases, records.values())
        assert known.replicated.keys() == derived.replicated.keys()
        assert known.tip.tables_at(at(999)) == derived.tip.tables_at(at(999))
    assert len(records) < 150


def test_a_table_that_begins_with_a_copy_does_so_for_each_new_owner_though_its_records_are_folded() -> None:
    """Simulation, seed 9800035: it had fallen behind, so the others went on, and their DDLs had its own ones folded. Its rows went to no table."""
    leave, enter = done(4, DdlType.LEAVE, "a", A), done(5, DdlType.ENTER, "a", A, to="a", options={}, indexes=[])
    index = done(6, DdlType.CREATE_INDEXES, "b", B, indexes=[{"key": {"x": 1}, "name": "x_1"}])
    bases = {A: base(A, "a"), B: replace(base(B, "b"), copied=True)}
    records = {record.position: record for record in (leave, enter, index)}
    before = KnownTables(bases, records.values())
    for step in fold(bases, records.values(), at(200)):
        bases |= {table.id: table for table in step.write}
    assert {schema.valid_from for schema in bases.values()} == {at(5), at(6)}
    derived = KnownTables(bases, ())
    assert before.to_copy == derived.to_copy == {A, B}


def test_folded_tables_take_the_next_ddl() -> None:
    known = KnownTables({A: base(A, "a")}, history())
    known.gc(at(200))
    later = done(500, DdlType.RENAME, "a", A, to="b")
    known.take([later])
    known.seen(known.tip.apply(later.event))
    assert known.tip.by_name(TableName("shop", "b"), at(501)) is not None


def test_a_ddl_visits_no_other_table_and_the_names_are_read_when_somebody_asks() -> None:
    """An owner of 100,000 tables spent half a second on each DDL, for names that only topics of Kafka need."""
    known = KnownTables({A: base(A, "a")}, history())
    visits = Mock(side_effect=AssertionError("visits all tables"))
    with patch.object(SchemaVersions, "living", visits):
        known.take([*history(), done(500, DdlType.RENAME, "a", A, to="b")])
        names = known.names
        assert known.names is names
    found = names()
    assert TableName("shop", "b") in found
    assert TableName("shop", "a") not in found
    assert names() is found


def test_a_table_that_enters_the_filter_again_is_copied_again_from_there() -> None:
    whole: dict[str, object] = {"options": {}, "indexes": []}
    into = replace(done(10, DdlType.RENAME, "outside", A, to="a"))
    into = replace(into, event=replace(into.event, description=Document.of(whole)))
    out = done(20, DdlType.DROP, "a", A)
    again = replace(into, event=replace(into.event, position=at(30)))
    known = KnownTables({}, [into])
    assert known.replicated == {A: AssignedTable(start=at(10), copy=True)}
    known.take([into, out])
    assert known.replicated == {}
    known.take([into, out, again])
    assert known.replicated == {A: AssignedTable(start=at(30), copy=True)}
    assert KnownTables({}, [into, out, again]).replicated == known.replicated
