"""Names and identities over time: what each table was when an event happened to it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from changefeed.cluster_time import ClusterTime
from changefeed.documents.document import EMPTY, Document
from changefeed.errors import InvariantError
from changefeed.event import DdlEvent, DdlType
from changefeed.position import Position
from changefeed.table import Beside, TableId, TableKind, TableName, TableSchema, definition_of
from schema_store.versions import SchemaVersions
from tests.work import lines_run

A, B, C = TableId("a" * 32), TableId("b" * 32), TableId("c" * 32)


def at(increment: int, token: str = "") -> Position:
    return Position(ClusterTime(100, increment), token)


def base(table: TableId, name: str, valid_from: int = 0) -> TableSchema:
    return TableSchema(id=table, name=TableName.parse(name), valid_from=at(valid_from))


def ddl(
    increment: int,
    kind: DdlType,
    name: str,
    table: TableId | None = None,
    to: str = "",
    drop_target: TableId | None = None,
    token: str = "",
    **description: Any,
) -> DdlEvent:
    return DdlEvent(
        position=at(increment, token),
        type=kind,
        db=name.partition(".")[0],
        table=TableName.parse(name) if "." in name else None,
        id=table,
        renamed_to=TableName.parse(to) if to else None,
        drop_target=drop_target,
        description=Document.of(description) if description else EMPTY,
    )


def named(versions: SchemaVersions, name: str, increment: int) -> TableId | None:
    schema = versions.by_name(TableName.parse(name), at(increment))
    return schema.id if schema else None


def name_of(versions: SchemaVersions, table: TableId, increment: int) -> str | None:
    schema = versions.at(table, at(increment))
    return str(schema.name) if schema else None


def test_a_swap_by_three_renames_then_a_drop_and_a_new_table_of_the_same_name() -> None:
    versions = SchemaVersions.of([base(A, "shop.a"), base(B, "shop.b")]).apply_all(
        [
            ddl(5, DdlType.RENAME, "shop.a", A, to="shop.tmp"),
            ddl(6, DdlType.RENAME, "shop.b", B, to="shop.a"),
            ddl(7, DdlType.RENAME, "shop.tmp", A, to="shop.b"),
            ddl(9, DdlType.DROP, "shop.a", B),
            ddl(12, DdlType.CREATE, "shop.a", C),
        ]
    )
    moments = (4, 5, 6, 7, 8, 9, 11, 12)
    assert [named(versions, "shop.a", moment) for moment in moments] == [A, None, B, B, B, None, None, C]
    assert [named(versions, "shop.b", moment) for moment in moments] == [B, B, None, A, A, A, A, A]
    assert [named(versions, "shop.tmp", moment) for moment in moments] == [None, A, A] + [None] * 5
    assert [name_of(versions, A, moment) for moment in (4, 5, 6, 7)] == ["shop.a", "shop.tmp", "shop.tmp", "shop.b"]
    assert name_of(versions, B, 9) is None


def test_the_version_before_a_ddl_ends_exclusive_at_its_position() -> None:
    versions = SchemaVersions.of([base(A, "shop.a")]).apply(ddl(5, DdlType.DROP, "shop.a", A, token="82"))
    assert versions.at(A, at(5, "81")) is not None
    assert versions.at(A, at(5, "82")) is None
    assert versions.before(A, at(5, "82")) is not None


def test_two_ddls_at_one_cluster_time_are_ordered_by_token() -> None:
    second = ddl(5, DdlType.RENAME, "shop.tmp", A, to="shop.b", token="8202")
    first = ddl(5, DdlType.RENAME, "shop.a", A, to="shop.tmp", token="8201")
    versions = SchemaVersions.of([base(A, "shop.a")]).apply_all([second, first])
    assert [str(versions.at(A, at(5, token)).name) for token in ("8200", "8201", "8202")] == [  # type: ignore[union-attr]  # it lives at all three
        "shop.a",
        "shop.tmp",
        "shop.b",
    ]


def test_a_rename_over_another_table_ends_that_table_there() -> None:
    versions = SchemaVersions.of([base(A, "shop.a"), base(B, "shop.b")]).apply(
        ddl(5, DdlType.RENAME, "shop.a", A, to="shop.b", drop_target=B)
    )
    assert named(versions, "shop.b", 4) == B
    assert named(versions, "shop.b", 5) == A
    assert versions.at(B, at(5)) is None


def test_a_rename_whose_source_does_not_say_what_it_replaced_ends_the_one_of_that_name() -> None:
    versions = SchemaVersions.of([base(A, "shop.a"), base(B, "shop.b")]).apply(
        ddl(5, DdlType.RENAME, "shop.a", to="shop.b")
    )
    assert versions.latest(B) is None
    assert named(versions, "shop.b", 5) == A


def test_a_rename_that_replaces_another_table_than_the_known_one_is_refused() -> None:
    versions = SchemaVersions.of([base(A, "shop.a"), base(B, "shop.b")])
    with pytest.raises(InvariantError, match=f"expected shop.b to be {C}, which it replaces; observed {B}"):
        versions.apply(ddl(5, DdlType.RENAME, "shop.a", A, to="shop.b", drop_target=C))


def test_a_rename_across_databases_is_a_create_a_rename_and_a_drop() -> None:
    versions = SchemaVersions.of([base(A, "shop.ids")]).apply_all(
        [
            ddl(5, DdlType.CREATE, "arch.tmpX.renameCollection", B),
            ddl(8, DdlType.RENAME, "arch.tmpX.renameCollection", B, to="arch.ids"),
            ddl(9, DdlType.DROP, "shop.ids", A),
        ]
    )
    assert [table.id for table in versions.in_database("arch", at(8))] == [B]
    assert versions.in_database("shop", at(9)) == ()


def test_a_dropped_database_takes_all_its_tables_and_no_others() -> None:
    versions = SchemaVersions.of([base(A, "shop.a"), base(B, "shop.b"), base(C, "shopping.a")])
    versions = versions.apply_all([ddl(5, DdlType.DROP, "shop.a", A), ddl(6, DdlType.DROP_DATABASE, "shop")])
    assert [table.id for table in versions.tables_at(at(5))] == [B, C]
    assert [table.id for table in versions.tables_at(at(6))] == [C]


def test_a_dropped_database_applied_again_spares_the_tables_created_since() -> None:
    drop = ddl(6, DdlType.DROP_DATABASE, "shop")
    versions = SchemaVersions.of([base(A, "shop.a")]).apply_all([drop, ddl(8, DdlType.CREATE, "shop.a", B)])
    assert versions.apply(drop) == versions


def test_a_view_is_known_by_its_name_through_drop_and_new_creation() -> None:
    versions = SchemaVersions().apply_all(
        [
            ddl(5, DdlType.CREATE, "shop.v", viewOn="a", pipeline=[]),
            ddl(6, DdlType.DROP, "shop.v"),
            ddl(8, DdlType.CREATE, "shop.v", viewOn="b", pipeline=[]),
            ddl(9, DdlType.MODIFY, "shop.v", viewOn="c", pipeline=[{"$match": {}}]),
        ]
    )
    seen = [versions.by_name(TableName("shop", "v"), at(moment)) for moment in (5, 6, 8, 9)]
    assert [schema and schema.options.decode()["viewOn"] for schema in seen] == ["a", None, "b", "c"]
    assert {schema.kind for schema in seen if schema} == {TableKind.VIEW}
    assert {schema.id for schema in seen if schema} == {"view:shop.v"}


def test_a_view_is_known_by_its_name_even_when_an_event_carries_an_id() -> None:
    versions = SchemaVersions().apply(ddl(5, DdlType.CREATE, "shop.v", viewOn="a", pipeline=[]))
    assert versions.apply(ddl(6, DdlType.DROP, "shop.v", C)).tables_at(at(6)) == ()


@pytest.mark.parametrize("table", [A, None])
def test_a_drop_repeated_by_another_shard_is_no_change(table: TableId | None) -> None:
    versions = SchemaVersions.of([base(A, "shop.a")]).apply(ddl(5, DdlType.DROP, "shop.a", table))
    assert versions.apply(ddl(6, DdlType.DROP, "shop.a", table)) == versions


def test_a_create_repeated_by_another_shard_is_no_change() -> None:
    versions = SchemaVersions().apply(ddl(5, DdlType.CREATE, "shop.a", A))
    assert versions.apply(ddl(6, DdlType.CREATE, "shop.a", A)) == versions


def test_an_event_below_the_base_of_its_table_is_in_the_base_already() -> None:
    versions = SchemaVersions.of([base(A, "shop.a", valid_from=7)])
    assert versions.apply(ddl(5, DdlType.MODIFY, "shop.a", A, cappedSize=5)) == versions


@pytest.mark.parametrize(
    "event",
    [
        ddl(5, DdlType.DROP, "shop.x", C),
        ddl(5, DdlType.DROP, "shop.x"),
        ddl(5, DdlType.DROP, "shop.a", C),
        ddl(5, DdlType.MODIFY, "shop.x", C, cappedSize=5),
        ddl(5, DdlType.RENAME, "shop.x", C, to="shop.y"),
        ddl(5, DdlType.CREATE_INDEXES, "shop.x", C, indexes=[]),
    ],
    ids=str,
)
def test_an_event_of_an_unknown_table_is_refused_with_what_was_expected(event: DdlEvent) -> None:
    with pytest.raises(InvariantError, match=r"expected table .* to be known at 100.5, observed no such table"):
        SchemaVersions.of([base(A, "shop.a")]).apply(event)


def test_a_change_of_a_table_that_has_ended_is_refused() -> None:
    versions = SchemaVersions.of([base(A, "shop.a")]).apply(ddl(5, DdlType.DROP, "shop.a", A))
    with pytest.raises(InvariantError, match="that it has ended"):
        versions.apply(ddl(6, DdlType.MODIFY, "shop.a", A, cappedSize=5))


@pytest.mark.parametrize(("name", "table"), [("shop.a", C), ("shop.b", A)])
def test_a_create_of_a_name_or_id_in_use_is_refused(name: str, table: TableId) -> None:
    with pytest.raises(InvariantError, match="expected neither this id nor this name to exist"):
        SchemaVersions.of([base(A, "shop.a")]).apply(ddl(5, DdlType.CREATE, name, table))


def test_changes_of_one_table_out_of_order_are_refused() -> None:
    versions = SchemaVersions.of([base(A, "shop.a")]).apply(ddl(7, DdlType.MODIFY, "shop.a", A, cappedSize=7))
    with pytest.raises(InvariantError, match="recorded in stream order"):
        versions.apply(ddl(5, DdlType.MODIFY, "shop.a", A, cappedSize=5))


def test_independent_changes_may_be_applied_in_any_order() -> None:
    bases = SchemaVersions.of([base(A, "shop.a"), base(B, "shop.b")])
    one, other = ddl(5, DdlType.DROP, "shop.a", A), ddl(7, DdlType.RENAME, "shop.b", B, to="shop.c")
    assert bases.apply(one).apply(other) == bases.apply(other).apply(one)


def test_a_table_that_left_the_filter_and_came_back_has_two_lives() -> None:
    versions = SchemaVersions.of([base(A, "shop.a")]).apply(ddl(5, DdlType.DROP, "shop.a", A))
    versions = versions.adopt([base(A, "shop.again", valid_from=9)])
    assert [name_of(versions, A, moment) for moment in (4, 5, 8, 9)] == ["shop.a", None, None, "shop.again"]


def test_a_rename_into_the_filter_begins_a_table_with_all_that_its_record_says() -> None:
    index = {"v": 2, "key": {"x": 1}, "name": "x_1"}
    enters = ddl(
        5, DdlType.RENAME, "private.x", C, to="shop.a", drop_target=A, options={"capped": True}, indexes=[index]
    )
    versions = SchemaVersions.of([base(A, "shop.a")]).apply(enters)
    entered = versions.latest(C)
    assert entered is not None
    assert (entered.name, entered.options.decode()) == (TableName("shop", "a"), {"capped": True})
    assert [index.decode()["name"] for index in entered.indexes] == ["x_1"]
    assert versions.latest(A) is None, "it was replaced"
    assert versions.apply(enters) == versions


def test_collecting_garbage_keeps_the_version_that_is_valid_at_the_checkpoint() -> None:
    versions = SchemaVersions.of([base(A, "shop.a"), base(B, "shop.b")]).apply_all(
        [
            ddl(5, DdlType.RENAME, "shop.a", A, to="shop.c"),
            ddl(6, DdlType.DROP, "shop.b", B),
            ddl(9, DdlType.RENAME, "shop.c", A, to="shop.d"),
        ]
    )
    kept = versions.gc(at(8))
    assert name_of(kept, A, 8) == "shop.c"
    assert kept.at(A, at(4)) is None
    assert kept.at(B, at(5)) is None, "ended below the checkpoint"
    assert len(kept.tables_at(at(9))) == 1


def test_an_end_exactly_at_the_checkpoint_is_still_known() -> None:
    drop = ddl(6, DdlType.DROP, "shop.b", B, token="82")
    versions = SchemaVersions.of([base(B, "shop.b")]).apply(drop).gc(drop.position)
    assert versions.apply(drop) == versions


def test_many_tables_are_no_more_work_for_each_of_them() -> None:
    assert lines_run(partial(_load_and_drop, 4_000)) < 6 * lines_run(partial(_load_and_drop, 1_000))


def _load_and_drop(count: int) -> None:
    bases = [base(TableId(f"{n:032x}"), f"db{n % 10}.t{n}") for n in range(count)]
    drops = [ddl(1, DdlType.DROP, str(b.name), b.id, token=f"{n:08X}") for n, b in enumerate(bases)]
    versions = SchemaVersions.of(bases).apply_all(drops)
    assert versions.tables_at(at(2)) == ()


def test_names_include_former_and_present_ones() -> None:
    versions = SchemaVersions.of([base(A, "s.a")]).apply(ddl(5, DdlType.RENAME, "s.a", A, to="s.b"))
    assert {str(name) for name in versions.names()} == {"s.a", "s.b"}


def test_a_table_that_is_copied_beside_has_two_lives_and_then_its_name_again() -> None:
    beside = {"name": "dr.sluice.recopy.a", "standsAt": "100.5"}
    whole: dict[str, Any] = {"options": {"capped": True}, "indexes": [], "beside": beside}
    begun = SchemaVersions.of([base(A, "shop.a")]).apply_all(
        [ddl(5, DdlType.LEAVE, "shop.a", A), ddl(6, DdlType.ENTER, "shop.a", A, **whole)]
    )
    assert begun.at(A, at(4)) == base(A, "shop.a")
    assert begun.at(A, at(5)) is None
    assert [first for first, _ in begun.living()] == [at(6)]
    renamed = begun.apply(ddl(7, DdlType.RENAME, "shop.a", A, to="shop.z"))
    ended = renamed.apply(ddl(9, DdlType.EXCHANGE, "shop.z", A))
    found = [ended.at(A, at(increment)) for increment in (6, 7, 9)]
    copy = Beside(name=TableName.parse("dr.sluice.recopy.a"), stands_at=at(5))
    assert [(str(schema.name), schema.beside) for schema in found if schema] == [
        ("shop.a", copy),
        ("shop.z", copy),
        ("shop.z", None),
    ]
    assert SchemaVersions.of(schema for schema in found[:1] if schema).merged().latest(A) == found[0]


def test_a_definition_that_is_written_down_is_read_as_it_was() -> None:
    index = Document.of({"v": 2, "key": {"n": 1}, "name": "n_1", "unique": True})
    copy = Beside(name=TableName.parse("dr.x"), stands_at=at(3))
    table = replace(base(A, "shop.a", 6), indexes=(index,), shard_key=Document.of({"n": 1}))
    event = replace(ddl(6, DdlType.ENTER, "shop.a", A), description=definition_of(table, copy))
    assert SchemaVersions().apply(event).latest(A) == replace(table, beside=copy)


def test_a_table_keeps_its_id_when_its_rows_get_another_uuid() -> None:
    versions = SchemaVersions.of([base(A, "shop.a")]).apply(ddl(5, DdlType.NEW_UUID, "shop.a", A, uuid=B))
    renamed = versions.apply(ddl(7, DdlType.RENAME, "shop.a", A, to="shop.b"))
    assert named(renamed, "shop.b", 8) == A
    assert renamed.by_uuid() == {B: A}
    assert versions.apply(ddl(5, DdlType.NEW_UUID, "shop.a", A, uuid=B)).by_uuid() == {B: A}
    again = versions.apply(ddl(6, DdlType.NEW_UUID, "shop.a", A, uuid=C))
    assert again.by_uuid() == again.gc(at(9)).merged().by_uuid() == {B: A, C: A}
    assert SchemaVersions.of([base(A, "shop.a")]).by_uuid() == {}
    folded = versions.gc(at(9)).merged()
    assert folded.by_uuid() == {B: A}
    entered = definition_of(folded.latest(A) or base(A, "shop.a")).decode()
    assert entered["uuids"] == [B]
