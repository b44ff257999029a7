from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from changefeed.cluster_time import ClusterTime
from changefeed.documents.document import Document
from changefeed.errors import DdlUnsupported
from changefeed.event import DdlEvent, DdlType
from changefeed.position import Position
from changefeed.table import TableId, TableName, TableSchema, view_id
from sink.ddl import (
    CreateIndexes,
    CreateTable,
    DownstreamDdl,
    DropIndexes,
    DropTables,
    ModifyTable,
    RenameTable,
    Routing,
    ShardTable,
    Skip,
    create_copy,
    downstream,
    names_of,
)

Route = Callable[[TableName], TableName | None]


def name(text: str) -> TableName:
    return TableName.parse(text)


def to_copy(table: TableName) -> TableName | None:
    """The filter takes shop.*, the route sends it to copy.*."""
    return TableName("copy", table.coll) if table.db == "shop" else None


def all_into_one(table: TableName) -> TableName | None:
    return name("copy.all") if table.db == "shop" and table.coll != "apart" else to_copy(table)


def asked(
    kind: DdlType,
    table: str | None,
    description: dict[str, Any] | None = None,
    *,
    to: str | None = None,
    replacing: str | None = None,
    route: Route = to_copy,
    tables: tuple[str, ...] = ("shop.orders", "shop.items"),
) -> DownstreamDdl:
    event = DdlEvent(
        position=Position(ClusterTime(100, 1), "82AA"),
        type=kind,
        db=table.partition(".")[0] if table else "shop",
        table=name(table) if table else None,
        renamed_to=name(to) if to else None,
        drop_target=TableId(replacing) if replacing else None,
        description=Document.of(description or {}),
    )
    return downstream(event, Routing(route=route, tables={TableId(table): name(table) for table in tables}))


def test_a_create_keeps_its_options_under_the_routed_name() -> None:
    options = {"capped": True, "size": 4096}
    assert asked(DdlType.CREATE, "shop.log", options) == CreateTable(
        name=name("copy.log"), options=Document.of(options)
    )


def test_a_view_reads_the_routed_name_of_what_it_reads_and_keeps_its_pipeline() -> None:
    lookup = {"$lookup": {"from": "items", "localField": "i", "foreignField": "_id", "as": "i"}}

    def prefixed(table: TableName) -> TableName | None:
        return TableName("copy", f"shop_{table.coll}")

    ddl = asked(DdlType.CREATE, "shop.view", {"viewOn": "orders", "pipeline": [lookup]}, route=prefixed)
    assert isinstance(ddl, CreateTable)
    assert ddl.options.decode() == {"viewOn": "shop_orders", "pipeline": [lookup]}


def test_a_view_on_a_table_outside_the_filter_keeps_that_name() -> None:
    def only_the_view(table: TableName) -> TableName | None:
        return table if table.coll == "view" else None

    ddl = asked(DdlType.CREATE, "shop.view", {"viewOn": "orders", "pipeline": []}, route=only_the_view)
    assert isinstance(ddl, CreateTable)
    assert ddl.options.decode()["viewOn"] == "orders"


def test_a_view_cannot_be_torn_from_the_database_of_what_it_reads() -> None:
    def torn(table: TableName) -> TableName | None:
        return TableName("views", "view") if table.coll == "view" else table

    with pytest.raises(DdlUnsupported, match=r"route shop\.view and shop\.orders to the same database"):
        asked(DdlType.CREATE, "shop.view", {"viewOn": "orders", "pipeline": []}, route=torn)


def test_a_modified_view_reads_the_routed_name_too() -> None:
    ddl = asked(
        DdlType.MODIFY, "shop.view", {"viewOn": "orders", "pipeline": []}, route=lambda t: name(f"copy.x{t.coll}")
    )
    assert ddl == ModifyTable(name=name("copy.xview"), changes=Document.of({"viewOn": "xorders", "pipeline": []}))


def test_index_ddls_carry_whole_specifications_to_create_and_names_to_drop() -> None:
    indexes = [{"v": 2, "key": {"a": 1}, "name": "a_1", "unique": True}, {"v": 2, "key": {"b": 1}, "name": "b_1"}]
    created = asked(DdlType.CREATE_INDEXES, "shop.orders", {"indexes": indexes})
    dropped = asked(DdlType.DROP_INDEXES, "shop.orders", {"indexes": indexes})
    assert created == CreateIndexes(name=name("copy.orders"), indexes=tuple(map(Document.of, indexes)))
    assert dropped == DropIndexes(name=name("copy.orders"), indexes=("a_1", "b_1"))


def test_a_drop_drops_the_routed_name() -> None:
    assert asked(DdlType.DROP, "shop.orders") == DropTables(names=(name("copy.orders"),))


def test_a_rename_inside_the_filter_is_a_rename() -> None:
    assert asked(DdlType.RENAME, "shop.orders", to="shop.old") == RenameTable(
        name=name("copy.orders"), to=name("copy.old"), replaces=False
    )


def test_a_rename_that_replaced_a_table_replaces_it_downstream() -> None:
    ddl = asked(DdlType.RENAME, "shop.orders", to="shop.items", replacing="shop.items")
    assert ddl == RenameTable(name=name("copy.orders"), to=name("copy.items"), replaces=True)


def test_a_table_renamed_out_of_the_filter_is_dropped() -> None:
    assert asked(DdlType.RENAME, "shop.orders", to="archive.orders") == DropTables(names=(name("copy.orders"),))


def test_a_table_renamed_into_the_filter_is_left_to_the_copy() -> None:
    ddl = asked(DdlType.RENAME, "archive.new", to="shop.new")
    assert isinstance(ddl, Skip)
    assert "copied as a new table" in ddl.note


def test_a_table_renamed_into_the_filter_drops_what_it_replaced() -> None:
    ddl = asked(DdlType.RENAME, "archive.orders", to="shop.orders", replacing="shop.orders")
    assert ddl == DropTables(names=(name("copy.orders"),))


def test_a_rename_outside_the_filter_is_skipped() -> None:
    assert isinstance(asked(DdlType.RENAME, "archive.a", to="archive.b"), Skip)


def test_a_rename_between_names_routed_to_one_is_nothing() -> None:
    ddl = asked(DdlType.RENAME, "shop.orders", to="shop.b", route=all_into_one, tables=("shop.orders",))
    assert ddl == Skip(note="shop.orders and shop.b are both copy.all downstream")


def test_dropping_a_database_drops_its_tables_by_name_and_no_more() -> None:
    ddl = asked(DdlType.DROP_DATABASE, None, tables=("shop.b", "shop.a", "archive.x"))
    assert ddl == DropTables(names=(name("copy.a"), name("copy.b")))


def test_dropping_a_database_spares_a_name_that_holds_rows_of_another_database() -> None:
    ddl = asked(
        DdlType.DROP_DATABASE,
        None,
        tables=("shop.a", "shop.b", "second.a"),
        route=lambda table: TableName("merged", table.coll),
    )
    assert ddl == DropTables(names=(name("merged.b"),))


def test_a_database_without_replicated_tables_is_skipped() -> None:
    assert asked(DdlType.DROP_DATABASE, None, tables=()) == Skip(note="no table of shop is left downstream")


def test_dropping_one_of_two_tables_under_one_name_keeps_the_other_ones_rows() -> None:
    ddl = asked(DdlType.DROP, "shop.orders", route=all_into_one)
    assert ddl == Skip(note="copy.all also holds shop.items; the rows of shop.orders stay in it")


@pytest.mark.parametrize(("table", "to"), [("shop.orders", "shop.apart"), ("shop.apart", "shop.new")])
def test_rows_under_a_shared_name_cannot_be_renamed_apart_or_together(table: str, to: str) -> None:
    with pytest.raises(DdlUnsupported, match="cannot be told apart"):
        asked(DdlType.RENAME, table, to=to, route=all_into_one, tables=("shop.orders", "shop.items", "shop.apart"))


@pytest.mark.parametrize("table", ["shop.system.buckets.t", "admin.x", "config.y"])
def test_what_the_server_keeps_for_itself_is_skipped(table: str) -> None:
    assert isinstance(asked(DdlType.CREATE, table, route=lambda table: table), Skip)


def test_a_table_outside_the_filter_is_skipped() -> None:
    assert asked(DdlType.DROP, "archive.x") == Skip(note="archive.x is outside the filter")


def test_sharding_keeps_its_kind_and_description() -> None:
    ddl = asked(DdlType.REFINE_SHARD_KEY, "shop.orders", {"shardKey": {"a": 1, "b": 1}})
    assert ddl == ShardTable(
        name=name("copy.orders"), how=DdlType.REFINE_SHARD_KEY, description=Document.of({"shardKey": {"a": 1, "b": 1}})
    )


def test_a_copied_view_reads_the_routed_name() -> None:
    view = TableSchema(
        id=view_id(name("shop.view")),
        name=name("shop.view"),
        options=Document.of({"viewOn": "orders", "pipeline": []}),
        valid_from=Position(ClusterTime(1, 1)),
    )
    copy = create_copy(view, name("copy.xview"), lambda table: name(f"copy.x{table.coll}"))
    assert copy.options.decode() == {"viewOn": "xorders", "pipeline": []}


def test_a_rename_names_both_tables_and_a_skip_none() -> None:
    assert names_of(RenameTable(name=name("a.x"), to=name("a.y"), replaces=False)) == (name("a.x"), name("a.y"))
    assert names_of(Skip(note="")) == ()


TABLES = [TableName(db, coll) for db in ("shop", "second", "archive") for coll in ("a", "b", "c")]
TARGETS = [TableName("copy", coll) for coll in ("a", "b", "c", "d")]


@st.composite
def routed_events(draw: st.DrawFn) -> tuple[DdlEvent, Routing]:
    """Any route, often one that merges tables, and any DDL that may remove rows."""
    routes = {table: draw(st.sampled_from([None, *TARGETS])) for table in TABLES}
    live = [table for table in draw(st.lists(st.sampled_from(TABLES), unique=True)) if routes[table]]
    kind = draw(st.sampled_from([DdlType.DROP, DdlType.RENAME, DdlType.DROP_DATABASE]))
    table, new = draw(st.permutations(TABLES))[:2]
    event = DdlEvent(
        position=Position(ClusterTime(100, 1), "82AA"),
        type=kind,
        db=table.db,
        table=None if kind is DdlType.DROP_DATABASE else table,
        renamed_to=new if kind is DdlType.RENAME else None,
        drop_target=TableId(str(new)) if kind is DdlType.RENAME and new in live else None,
    )
    return event, Routing(route=routes.get, tables={TableId(str(table)): table for table in live})


def _gone(ddl: DownstreamDdl) -> set[TableName]:
    match ddl:
        case DropTables():
            return set(ddl.names)
        case RenameTable(name=old, to=new, replaces=True):
            return {old, new}
        case RenameTable(name=old):
            return {old}
        case _:
            return set()


@given(routed_events())
def test_no_ddl_takes_away_rows_of_a_table_it_does_not_concern(case: tuple[DdlEvent, Routing]) -> None:
    event, routing = case
    try:
        ddl = downstream(event, routing)
    except DdlUnsupported:
        return
    for table in routing.tables.values():
        concerned = table.db == event.db if event.table is None else table in (event.table, event.renamed_to)
        assert concerned or routing.route(table) not in _gone(ddl)
