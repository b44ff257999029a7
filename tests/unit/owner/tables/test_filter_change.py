"""A changed filter adds and removes tables, and leaves the others unchanged, also after a crash in between."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from changefeed.cluster_time import ClusterTime
from changefeed.config.tables.filter import Filter
from changefeed.config.tables.routes import Routes
from changefeed.documents.document import Document
from changefeed.errors import ConfigurationError, NameTaken
from changefeed.event import DdlEvent, DdlType
from changefeed.lifecycle import ErrorReport
from changefeed.position import Position
from changefeed.records.ddl import DdlRecord, DdlState, Scope
from changefeed.records.node import AssignedTable
from changefeed.table import Beside, TableId, TableName, TableSchema
from owner.tables.filter_change import (
    in_the_way,
    may_take_names,
    plan,
    with_free_names,
)
from owner.tables.known_tables import KnownTables
from owner.target_changes import abandoned_copies
from schema_store.store import FoldStep
from schema_store.versions import SchemaVersions

SEEN = datetime(2026, 11, 21, tzinfo=UTC)
A, B, C, E = (TableId(letter * 32) for letter in "abce")

Bases = dict[TableId, TableSchema]
Records = dict[Position, DdlRecord]


def at(increment: int) -> Position:
    return Position(ClusterTime(100, increment))


def record(increment: int, type: DdlType, coll: str, id: TableId, state: DdlState, **more: Any) -> DdlRecord:
    table = TableName("shop", coll)
    event = DdlEvent(position=at(increment), type=type, db="shop", table=table, id=id, **more)
    return DdlRecord(event=event, scope=Scope(tables=frozenset({id})), state=state, seen_at=SEEN)


def index(name: str) -> Document:
    return Document.of({"indexes": [{"v": 2, "key": {name: 1}, "name": name}]})


def table(id: TableId, coll: str, since: int = 1) -> TableSchema:
    return TableSchema(id=id, name=TableName("shop", coll), valid_from=at(since))


def patterns(*tables: str) -> Filter:
    return Filter.model_validate({"tables": tables})


def by_id(tables: Iterable[TableSchema]) -> Bases:
    return {schema.id: schema for schema in tables}


def by_position(*records: DdlRecord) -> Records:
    return {record.position: record for record in records}


def writes(
    filter: Filter, position: Position, bases: Bases, records: Records, found: list[TableSchema]
) -> list[FoldStep]:
    """Each step is a transaction."""
    change = plan(filter, position, bases, records.values(), found)
    return [*change.steps, *(FoldStep(write=(schema,)) for schema in change.taken_in)]


def carried_out(steps: Iterable[FoldStep], bases: Bases, records: Records) -> tuple[Bases, Records]:
    bases, records = dict(bases), dict(records)
    for step in steps:
        bases |= by_id(step.write)
        bases = {id: schema for id, schema in bases.items() if id not in step.remove}
        records = {place: record for place, record in records.items() if place not in step.ddls}
    return bases, records


RENAMED = TableName("shop", "x")


def test_the_worked_example() -> None:
    bases = by_id([table(A, "a"), table(B, "b"), table(C, "tmp")])
    records = by_position(
        record(5, DdlType.RENAME, "a", A, DdlState.DONE, renamed_to=RENAMED),
        record(7, DdlType.CREATE_INDEXES, "tmp", C, DdlState.EXECUTING, description=index("refused")),
    )
    found = [table(A, "x", 9), table(E, "e", 9)]
    steps = writes(patterns("*.*", "!*.b", "!*.tmp"), at(9), bases, records, found)
    assert steps == [
        FoldStep(ddls=(at(7),)),
        FoldStep(write=(table(A, "x"),), ddls=(at(5),)),
        FoldStep(remove=(B, C)),
        FoldStep(write=(table(E, "e", 9),)),
    ]


def test_an_open_ddl_of_a_table_that_stays_stands_in_the_way() -> None:
    bases = by_id([table(A, "a"), table(B, "b")])
    waiting = record(5, DdlType.CREATE_INDEXES, "a", A, DdlState.PENDING, description=index("i"))
    with pytest.raises(ConfigurationError, match=r"createIndexes.*is not done.*sluice ddl list"):
        plan(patterns("*.*", "!*.b"), at(9), bases, [waiting], [])


def test_what_the_watch_will_show_again_does_not() -> None:
    """The DDL was recorded just before the owner died: no barrier was past it yet."""
    again = record(9, DdlType.CREATE_INDEXES, "a", A, DdlState.PENDING, description=index("i"))
    assert in_the_way(patterns("*.*"), at(9), [again]) == []
    assert writes(patterns("*.*"), at(9), by_id([table(A, "a")]), by_position(again), []) == [FoldStep(ddls=(at(9),))]


def test_what_no_watch_will_show_again_stands_in_the_way_wherever_it_is() -> None:
    """A table that has left to be copied anew would be unknown, and its copy would meet the target's table, which stands still for it."""
    left = record(8, DdlType.LEAVE, "a", A, DdlState.SKIPPED)
    enters = record(9, DdlType.ENTER, "a", A, DdlState.PENDING, description=Document.of({"options": {}, "indexes": []}))
    with pytest.raises(ConfigurationError, match=r"enter shop\.a"):
        plan(patterns("*.*"), at(9), by_id([table(A, "a")]), [left, enters], [table(A, "a", 9)])
    assert in_the_way(patterns("*.*", "!*.a"), at(9), [left, enters]) == []


def test_a_table_taken_in_is_copied_and_the_others_go_on_as_they_were() -> None:
    bases = by_id([table(A, "a"), replace(table(B, "b", 3), copied=True)])
    steps = writes(patterns("*.*"), at(9), bases, {}, [table(A, "a", 9), replace(table(E, "e", 9), copied=True)])
    after, records = carried_out(steps, bases, {})
    assert KnownTables(after, records.values()).replicated == {
        A: AssignedTable(start=at(1)),
        B: AssignedTable(start=at(3), copy=True),
        E: AssignedTable(start=at(9), copy=True),
    }


def test_a_table_without_a_node_that_entered_by_a_rename_is_still_copied_from_there() -> None:
    """The fold removes the record that says so."""
    whole = Document.of({"options": {}, "indexes": []})
    entry = record(5, DdlType.RENAME, "outside", A, DdlState.DONE, renamed_to=RENAMED, description=whole)
    before = KnownTables({}, [entry]).replicated
    steps = writes(patterns("shop.x", "shop.y"), at(9), {}, by_position(entry), [table(A, "x", 9)])
    bases, records = carried_out(steps, {}, by_position(entry))
    assert not records
    assert KnownTables(bases, ()).replicated == before


def test_a_table_that_was_taken_out_and_changed_outside_is_taken_in_as_it_is_now() -> None:
    bases = by_id([table(A, "a"), table(B, "b")])
    out, records = carried_out(writes(patterns("*.a"), at(9), bases, {}, [table(A, "a", 9)]), bases, {})
    changed = replace(table(B, "renamed", 20), indexes=(Document.of({"v": 2, "key": {"n": 1}, "name": "n"}),))
    back, _ = carried_out(writes(patterns("*.*"), at(20), out, records, [changed]), out, records)
    assert back == by_id([table(A, "a"), changed])


def test_a_copy_beside_of_a_table_that_ends_or_begins_anew_is_abandoned() -> None:
    a, b, c = (
        replace(table(id, coll), beside=Beside(name=TableName("dr", f"copy_{coll}"), stands_at=at(1)))
        for id, coll in ((A, "a"), (B, "b"), (C, "c"))
    )
    living = [a, b, c, table(E, "e")]
    left = abandoned_copies(patterns("shop.a", "shop.b"), living, {B})
    assert left == (TableName("dr", "copy_b"), TableName("dr", "copy_c"))
    assert abandoned_copies(patterns("*.*"), living, frozenset()) == ()


COLLECTIONS = st.sampled_from(["a", "b", "c", "d"])


@st.composite
def histories(draw: st.DrawFn) -> list[DdlRecord]:
    """Possible DDLs on any tables of `shop`; the tables' lives and their names are consistent."""
    names: dict[str, TableId] = {}
    done = []
    for increment in range(10, 10 + draw(st.integers(0, 12))):
        coll, kind = draw(COLLECTIONS), draw(st.sampled_from(["create", "rename", "index"]))
        if coll not in names:
            names[coll] = TableId(f"{increment:032x}")
            done.append(record(increment, DdlType.CREATE, coll, names[coll], DdlState.DONE))
        elif kind == "index":
            about = index(f"i{increment}")
            done.append(record(increment, DdlType.CREATE_INDEXES, coll, names[coll], DdlState.DONE, description=about))
        elif kind == "rename" and (to := draw(COLLECTIONS)) != coll:
            moved, replaced = names.pop(coll), names.get(to)
            names[to] = moved
            new = TableName("shop", to)
            done.append(
                record(increment, DdlType.RENAME, coll, moved, DdlState.DONE, renamed_to=new, drop_target=replaced)
            )
        else:
            done.append(record(increment, DdlType.DROP, coll, names.pop(coll), DdlState.DONE))
    return done


@settings(max_examples=200)
@given(history=histories(), wanted=st.sets(COLLECTIONS, min_size=1), pending=st.booleans(), new=st.booleans())
def test_whoever_takes_over_half_way_ends_at_the_same_tables(
    history: list[DdlRecord], wanted: set[str], pending: bool, new: bool
) -> None:
    place = at(99)
    records = by_position(*history)
    living = SchemaVersions().apply_all(known.event for known in history).tables_at(place)
    filter = patterns(*(f"shop.{coll}" for coll in sorted(wanted)), "other.*")
    unwanted = [schema for schema in living if schema.name.coll not in wanted]
    if pending and unwanted:
        waiting = record(50, DdlType.DROP, unwanted[0].name.coll, unwanted[0].id, DdlState.PENDING)
        records[waiting.position] = waiting
    outside = TableSchema(id=E, name=TableName("other", "e"), valid_from=place)
    found = [replace(schema, valid_from=place) for schema in living if schema.name.coll in wanted]
    found += [outside] if new else []
    steps = writes(filter, place, {}, records, found)
    whole = carried_out(steps, {}, records)
    definitions = {id: replace(schema, valid_from=place) for id, schema in whole[0].items()}
    assert definitions == by_id(found)
    assert not whole[1]
    for prefix in range(len(steps)):
        bases, left = carried_out(steps[:prefix], {}, records)
        KnownTables(bases, left.values())
        assert carried_out(writes(filter, place, bases, left, found), bases, left) == whole


def taken(increment: int, type: DdlType, coll: str, id: TableId, **more: Any) -> DdlRecord:
    made = record(increment, type, coll, id, DdlState.PENDING, **more)
    scope = Scope(apart=frozenset({id})) if type is DdlType.CREATE else made.scope
    return replace(made, scope=scope, taken=True, refused=ErrorReport.of(NameTaken("taken"), SEEN))


def test_tables_without_a_name_begin_anew_once_it_is_free() -> None:
    """A was renamed, and C was created, under names that other tables had; C has an index since."""
    bases = by_id([table(A, "a"), table(B, "b")])
    records = by_position(
        taken(5, DdlType.RENAME, "a", A, renamed_to=RENAMED),
        taken(6, DdlType.CREATE, "c", C),
        record(7, DdlType.CREATE_INDEXES, "c", C, DdlState.PENDING, description=index("i")),
    )
    found = [table(A, "x", 9), table(B, "b", 9), table(C, "c", 9)]
    assert may_take_names(records.values(), at(9))
    assert with_free_names(Routes(), records.values(), found) == ({A, C}, set())
    change = plan(patterns("*.*"), at(9), bases, records.values(), found, anew={A, C})
    assert change.steps == (FoldStep(remove=(A,), ddls=(at(5),)), FoldStep(ddls=(at(7), at(6))))
    assert change.taken_in == (table(A, "x", 9), table(C, "c", 9))


def test_a_table_whose_name_is_still_taken_stays_as_it_is() -> None:
    bases = by_id([table(A, "a"), table(B, "b")])
    records = by_position(taken(5, DdlType.RENAME, "a", A, renamed_to=RENAMED), taken(6, DdlType.CREATE, "c", C))
    found = [table(A, "x", 9), table(B, "b", 9), table(C, "c", 9)]
    merging = Routes.model_validate([{"from": "shop.x", "to": "shop.b"}, {"from": "shop.c", "to": "shop.a"}])
    assert with_free_names(merging, records.values(), found) == ({C}, {A})
    change = plan(patterns("*.*"), at(9), bases, records.values(), found, anew={C}, without_name={A})
    assert change.steps == (FoldStep(ddls=(at(6),)),)
    assert change.taken_in == (table(C, "c", 9),)


def test_a_resume_takes_no_names_while_another_ddl_is_open() -> None:
    waiting = [taken(6, DdlType.CREATE, "c", C)]
    other = record(7, DdlType.CREATE_INDEXES, "b", B, DdlState.PENDING, description=index("i"))
    enters = record(9, DdlType.ENTER, "b", B, DdlState.PENDING, description=Document.of({"options": {}, "indexes": []}))
    assert may_take_names(waiting, at(9))
    assert not may_take_names([*waiting, other], at(9))
    assert not may_take_names([*waiting, enters], at(9))
    assert not may_take_names([], at(9))


def test_a_copy_to_another_name_ends_a_table_and_begins_it_again_after_any_crash() -> None:
    bases = by_id([table(A, "a"), table(B, "b")])
    records = by_position(record(5, DdlType.CREATE_INDEXES, "a", A, DdlState.DONE, description=index("i")))
    found = [table(A, "a", 9), table(B, "b", 9)]
    change = plan(patterns("*.*"), at(9), bases, records.values(), found, anew={A})
    steps = [*change.steps, *(FoldStep(write=(schema,)) for schema in change.taken_in)]
    for crash in range(len(steps) + 1):
        left, rest = carried_out(steps[:crash], bases, records)
        again = plan(patterns("*.*"), at(9), left, rest.values(), found, anew={A})
        after, settled = carried_out(again.steps, left, rest)
        after |= by_id(again.taken_in)
        assert (after, settled) == (by_id(found[:1]) | by_id([table(B, "b")]), {})
