"""The filter decides which events are in scope, and whether they are applied or ignored."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings

from changefeed.cluster_time import ClusterTime
from changefeed.config.tables.filter import Disposition, Filter
from changefeed.event import DdlEvent, DdlType, RowType
from changefeed.position import Position
from changefeed.table import TableName
from tests.unit.changefeed.config.tables.filter_cases import filters_with_names

APPLY, SCHEMA_ONLY, DISCARDED = Disposition.APPLY, Disposition.SCHEMA_ONLY, None


def filter_of(*tables: str, events: list[dict[str, Any]] | None = None) -> Filter:
    return Filter.model_validate({"tables": tables or ["*.*"], "events": events or []})


def ddl(type_: DdlType, name: str, to: str | None = None) -> DdlEvent:
    whole_database = type_ is DdlType.DROP_DATABASE
    return DdlEvent(
        position=Position(ClusterTime(100, 1)),
        type=type_,
        db=name.partition(".")[0],
        table=None if whole_database else TableName.parse(name),
        renamed_to=TableName.parse(to) if to else None,
    )


@pytest.mark.parametrize(
    "name", ["admin.users", "config.chunks", "local.oplog.rs", "shop.system.views", "shop.system.buckets.weather"]
)
def test_internal_tables_of_the_server_are_never_wanted(name: str) -> None:
    assert not filter_of("*.*").wants_table(TableName.parse(name))
    assert not filter_of("*.*", "a*.*", "l*.*", "shop.*").wants_table(TableName.parse(name))


@pytest.mark.parametrize(
    "passing",
    [
        "shop.tmpHV3Gm.convertToCapped.orders",
        "shop.tmpHV3Gm.renameCollection",
        "shop.sluice.recopy.0123456789abcdef0123456789abcdef",
    ],
)
def test_a_temporary_collection_of_the_server_enters_the_filter_by_its_rename(passing: str) -> None:
    """Not all change streams show how it is filled."""
    wanted = filter_of("shop.*")
    assert not wanted.wants_table(TableName.parse(passing))
    assert wanted.ddl(ddl(DdlType.CREATE, passing)) is DISCARDED
    assert wanted.ddl(ddl(DdlType.RENAME, passing, to="shop.orders")) is APPLY


@pytest.mark.parametrize(
    "name",
    ["shop.convertToCapped.a", "shop.tmp_12.convertToCapped.a", "shop.tmpHV3Gm.renameCollection.a", "shop.tmpHV3Gm"],
)
def test_a_name_that_only_resembles_a_passing_one_is_wanted(name: str) -> None:
    assert filter_of("shop.*").wants_table(TableName.parse(name))


@pytest.mark.parametrize(
    ("tables", "db", "wanted"),
    [
        (["*.*"], "shop", True),
        (["*.*"], "admin", False),
        (["shop.orders"], "shop", True),
        (["shop.orders"], "crm", False),
        (["*.*", "!shop.*"], "shop", False),
        (["*.*", "!shop.orders"], "shop", True),
        (["*.*", "!shop.*", "shop.orders"], "shop", True),
    ],
)
def test_a_database_is_wanted_when_tables_of_it_may_be(tables: list[str], db: str, wanted: bool) -> None:
    assert filter_of(*tables).wants_database(db) is wanted


IGNORE_SOME = filter_of(
    "shop.*",
    "!shop.tmp_*",
    events=[
        {"tables": ["shop.audit"], "ignore": ["delete", "dropIndexes", "rename"]},
        {"tables": ["shop.a*"], "ignore": ["replace"]},
        {"tables": ["shop.*"], "ignore": ["dropDatabase"]},
    ],
)


@pytest.mark.parametrize(
    ("event", "disposition"),
    [
        (ddl(DdlType.CREATE, "shop.orders"), APPLY),
        (ddl(DdlType.CREATE, "shop.tmp_1"), DISCARDED),
        (ddl(DdlType.CREATE, "crm.people"), DISCARDED),
        (ddl(DdlType.DROP_INDEXES, "shop.audit"), SCHEMA_ONLY),
        (ddl(DdlType.CREATE_INDEXES, "shop.audit"), APPLY),
        (ddl(DdlType.RENAME, "shop.orders", to="shop.old"), APPLY),
        (ddl(DdlType.RENAME, "shop.orders", to="shop.tmp_1"), APPLY),
        (ddl(DdlType.RENAME, "shop.tmp_1", to="shop.orders"), APPLY),
        (ddl(DdlType.RENAME, "shop.tmp_1", to="shop.tmp_2"), DISCARDED),
        (ddl(DdlType.RENAME, "shop.audit", to="shop.orders"), SCHEMA_ONLY),
        (ddl(DdlType.RENAME, "shop.orders", to="shop.audit"), APPLY),
        (ddl(DdlType.RENAME, "shop.tmp_1", to="shop.audit"), SCHEMA_ONLY),
        (ddl(DdlType.DROP_DATABASE, "shop"), SCHEMA_ONLY),
        (ddl(DdlType.DROP_DATABASE, "crm"), DISCARDED),
    ],
    ids=str,
)
def test_a_ddl_is_applied_ignored_or_discarded(event: DdlEvent, disposition: Disposition | None) -> None:
    assert IGNORE_SOME.ddl(event) is disposition


@given(filters_with_names())
@settings(max_examples=100)
def test_a_database_with_a_wanted_table_is_wanted(case: tuple[Filter, list[TableName]]) -> None:
    filter_, names = case
    assert all(filter_.wants_table(name) <= filter_.wants_database(name.db) for name in names)


def test_drop_database_is_ignored_only_by_a_rule_about_the_whole_database() -> None:
    narrow = filter_of(events=[{"tables": ["crm.*", "shop.audit"], "ignore": ["dropDatabase"]}])
    with_exception = filter_of(events=[{"tables": ["shop.*", "!shop.orders"], "ignore": ["dropDatabase"]}])

    assert narrow.ddl(ddl(DdlType.DROP_DATABASE, "crm")) is SCHEMA_ONLY
    assert narrow.ddl(ddl(DdlType.DROP_DATABASE, "shop")) is APPLY
    assert with_exception.ddl(ddl(DdlType.DROP_DATABASE, "shop")) is APPLY


@pytest.mark.parametrize(
    ("name", "type_", "ignored"),
    [
        ("shop.orders", RowType.DELETE, False),
        ("shop.audit", RowType.DELETE, True),
        ("shop.audit", RowType.INSERT, False),
        ("shop.audit", RowType.REPLACE, True),
        ("shop.archive", RowType.REPLACE, True),
        ("shop.archive", RowType.DELETE, False),
        ("shop.tmp_1", RowType.INSERT, True),
        ("crm.people", RowType.INSERT, True),
    ],
)
def test_every_rule_that_matches_a_table_applies(name: str, type_: RowType, ignored: bool) -> None:
    assert IGNORE_SOME.ignores_row(TableName.parse(name), type_, {"documentKey": {"_id": 1}}) is ignored


DEBUG = {"level": "debug"}
IGNORE_DEBUG = filter_of(
    events=[
        {
            "tables": ["shop.log"],
            "ignore_where": {
                "insert": DEBUG,
                "update_old": DEBUG,
                "update_new": {"done": True},
                "replace": DEBUG,
                "delete": DEBUG,
            },
        }
    ]
)


def event(before: dict[str, Any] | None = None, after: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"documentKey": {"_id": 1}, "fullDocument": after, "fullDocumentBeforeChange": before}


@pytest.mark.parametrize(
    ("type_", "row", "ignored"),
    [
        (RowType.INSERT, event(after={"level": "debug"}), True),
        (RowType.INSERT, event(after={"level": "info"}), False),
        (RowType.REPLACE, event(before={"level": "info"}, after={"level": "debug"}), True),
        (RowType.REPLACE, event(before={"level": "debug"}, after={"level": "info"}), False),
        (RowType.UPDATE, event(before={"level": "debug"}, after={"level": "info"}), True),
        (RowType.UPDATE, event(before={"level": "info"}, after={"level": "info", "done": True}), True),
        (RowType.UPDATE, event(before={"level": "info"}, after={"level": "debug"}), False),
        (RowType.DELETE, event(before={"level": "debug"}), True),
        (RowType.DELETE, event(before={"level": "info"}), False),
    ],
)
def test_rows_are_ignored_by_what_is_in_them(type_: RowType, row: dict[str, Any], ignored: bool) -> None:
    assert IGNORE_DEBUG.ignores_row(TableName("shop", "log"), type_, row) is ignored
    assert not IGNORE_DEBUG.ignores_row(TableName("shop", "orders"), type_, row)


@pytest.mark.parametrize("type_", [RowType.UPDATE, RowType.DELETE])
def test_a_row_whose_document_is_not_known_is_not_ignored(type_: RowType) -> None:
    not_debug = filter_of(
        events=[
            {"tables": ["*.*"], "ignore_where": {f"{kind}": {"level": {"$ne": "x"}}}}
            for kind in ("update_old", "delete")
        ]
    )

    assert not not_debug.ignores_row(TableName("shop", "log"), type_, event())
    assert not not_debug.ignores_row(TableName("shop", "log"), type_, {"documentKey": {"_id": 1}})


@pytest.mark.parametrize(("kind", "type_"), [("update_new", RowType.UPDATE), ("delete", RowType.DELETE)])
def test_a_condition_on_the_key_needs_no_document(kind: str, type_: RowType) -> None:
    low_keys = filter_of(events=[{"tables": ["*.*"], "ignore_where": {kind: {"_id": {"$lt": 5}}}}])
    of_log = low_keys.of(TableName("shop", "log"))

    assert of_log.ignores_row(type_, {"documentKey": {"_id": 1}})
    assert not of_log.ignores_row(type_, {"documentKey": {"_id": 5}})
    assert not of_log.needs_before_image
    assert not of_log.needs_after_image


def test_conditions_report_which_documents_they_need() -> None:
    log = IGNORE_DEBUG.of(TableName("shop", "log"))
    orders = IGNORE_DEBUG.of(TableName("shop", "orders"))
    inserts = filter_of(events=[{"tables": ["*.*"], "ignore_where": {"insert": DEBUG}}]).of(TableName("shop", "log"))

    assert (log.needs_before_image, log.needs_after_image) == (True, True)
    assert (orders.needs_before_image, orders.needs_after_image) == (False, False)
    assert (inserts.needs_before_image, inserts.needs_after_image) == (False, False)
