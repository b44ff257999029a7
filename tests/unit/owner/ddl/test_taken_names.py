"""A table never comes under the name of another one downstream unless a rule of the routes asks for it."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime

from changefeed.cluster_time import ClusterTime
from changefeed.config.tables.filter import Disposition, Filter
from changefeed.config.tables.routes import Routes
from changefeed.event import DdlEvent, DdlType
from changefeed.position import Position
from changefeed.records.ddl import DdlRecord, Scope
from changefeed.table import TableId, TableKind, TableName, TableSchema, view_id
from owner.ddl.scope import DdlClassifier
from owner.ddl.stragglers import nameless, wait
from schema_store.versions import SchemaVersions

NOW = datetime(2026, 11, 22, tzinfo=UTC)
A, B, C, NEW = (TableId(letter * 32) for letter in "abcd")


def at(increment: int) -> Position:
    return Position(ClusterTime(100, increment))


def tables(**names: TableId) -> SchemaVersions:
    """`db__coll=id`."""
    return SchemaVersions.of(
        TableSchema(id=id, name=TableName(*name.split("__")), valid_from=at(1)) for name, id in names.items()
    )


def classified(
    event: DdlEvent, known: SchemaVersions, *rules: tuple[str, str], without_name: Collection[TableId] = ()
) -> DdlRecord:
    classifier = DdlClassifier(
        filter=Filter.model_validate({"tables": ["*.*", "!out.*"]}),
        routes=Routes.model_validate([{"from": taken, "to": given} for taken, given in rules]),
        background_indexes=False,
    )
    record = classifier.classify(event, known, NOW, frozenset(without_name))
    assert record is not None
    return record


def create(name: str, id: TableId | None = NEW) -> DdlEvent:
    table = TableName.parse(name)
    return DdlEvent(position=at(5), type=DdlType.CREATE, db=table.db, table=table, id=id)


def rename(name: str, to: str, id: TableId, replacing: TableId | None = None) -> DdlEvent:
    table, new = TableName.parse(name), TableName.parse(to)
    return DdlEvent(
        position=at(5), type=DdlType.RENAME, db=table.db, table=table, renamed_to=new, id=id, drop_target=replacing
    )


RULE = ("r1.*", "r2.*")


def test_a_create_under_a_taken_name_is_refused_and_touches_nothing_of_the_other_table() -> None:
    record = classified(create("r1.a"), tables(r2__a=A, r2__b=B), RULE)
    assert record.taken
    assert record.scope == Scope(apart=frozenset({NEW}))
    assert record.refused is not None
    assert "r1.a would be r2.a at the target, as r2.a is already" in record.refused.message


def test_a_view_counts_as_a_table() -> None:
    record = classified(create("r1.a", None), tables(r2__a=A), RULE)
    assert record.taken
    assert nameless([record]).keys() == {view_id(TableName("r1", "a"))}


def test_a_rename_to_a_taken_name_holds_only_its_own_table() -> None:
    record = classified(rename("x.b", "r1.a", B), tables(r2__a=A, x__b=B), RULE)
    assert record.taken
    assert record.scope == Scope(tables=frozenset({B}), names=frozenset({TableName("x", "b")}))


def test_a_table_that_enters_the_filter_under_a_taken_name_is_refused() -> None:
    record = classified(rename("out.b", "r1.a", NEW), tables(r2__a=A), RULE)
    assert record.taken
    assert record.scope == Scope(apart=frozenset({NEW}))


def test_names_that_are_free_or_joined_by_one_rule_are_not_taken() -> None:
    fan_in = ("shop_*.orders", "all.orders")
    assert not classified(create("r1.a"), tables(r2__b=A), RULE).taken
    assert not classified(create("shop_us.orders"), tables(shop_eu__orders=A), fan_in).taken
    assert classified(create("all.orders"), tables(shop_eu__orders=A), fan_in).taken
    assert not classified(rename("r2.a", "r1.a", A), tables(r2__a=A), RULE).taken, "its own name"
    assert not classified(rename("x.b", "r1.a", B, replacing=C), tables(r1__a=C, x__b=B), RULE).taken, "it is replaced"
    assert not classified(create("r1.a"), tables(r2__a=A), RULE, without_name={A}).taken, "r2.a never got its name"


def test_later_ddl_of_a_table_without_a_name_changes_its_schema_only() -> None:
    known = tables(r2__a=A, r1__a=B)
    drop = DdlEvent(position=at(7), type=DdlType.DROP, db="r1", table=TableName("r1", "a"), id=B)
    record = classified(drop, known, RULE, without_name={B})
    assert record.disposition is Disposition.SCHEMA_ONLY
    assert record.scope == Scope(tables=frozenset({B}), ended=frozenset({B}))


def test_a_database_is_dropped_without_the_names_that_other_tables_have() -> None:
    event = DdlEvent(position=at(7), type=DdlType.DROP_DATABASE, db="r1")
    record = classified(event, tables(r2__a=A, r1__a=B, r1__c=C), RULE, without_name={B})
    assert record.scope.names == {TableName("r2", "c")}
    assert record.scope.tables == {B, C}


def test_a_taken_create_is_needless_once_its_table_or_view_is_dropped() -> None:
    for id in (NEW, None):
        known = tables(r2__a=A)
        taken = classified(create("r1.a", id), known, RULE)
        subject = id or view_id(TableName("r1", "a"))
        kind = TableKind.COLLECTION if id else TableKind.VIEW
        there = known.adopt([TableSchema(id=subject, name=TableName("r1", "a"), kind=kind, valid_from=at(5))])
        drop = DdlEvent(position=at(7), type=DdlType.DROP, db="r1", table=TableName("r1", "a"), id=id)
        dropped = classified(drop, there, RULE, without_name=nameless([taken]))
        found = wait({}, lambda _table, _rev: True, [taken, dropped], at(9), lambda _table: None)
        assert found.needless == {at(5)}
