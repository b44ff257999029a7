"""The match contains only equality, and passes at least what the filter wants."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings

from changefeed.config.tables.filter import Filter
from changefeed.event import SHOWN_BY_STREAMS, RowType
from changefeed.table import HEARTBEAT_COLLECTION, HEARTBEAT_DATABASE, TableName
from source.stream import filter_match
from tests.unit.changefeed.config.tables.filter_cases import filters_with_names, made

ROWS = sorted(RowType)


def asked(*tables: str, ignore: list[dict[str, Any]] | None = None) -> Any:
    return filter_match.rows(made(list(tables), ignore))


def beside(heartbeats: str, where: str | dict[str, list[str]]) -> dict[str, list[str]]:
    names = [where] if isinstance(where, str) else where["$in"]
    return {"$in": sorted([heartbeats, *names])}


def shows(query: filter_match.Query, type_: RowType, name: TableName) -> bool:
    """As a server of any version evaluates it."""
    event = {"operationType": type_.value, "ns.db": name.db, "ns.coll": name.coll}
    assert query.keys() <= event.keys()
    return all(
        event[path] == wanted if isinstance(wanted, str) else event[path] in wanted["$in"]
        for path, wanted in query.items()
    )


@given(filters_with_names())
@settings(max_examples=200)
def test_what_the_filter_wants_is_shown_by_equality_and_in_alone(case: tuple[Filter, list[TableName]]) -> None:
    filter_, names = case
    query = filter_match.rows(filter_)
    for wanted in query.values():
        assert isinstance(wanted, str) or (list(wanted) == ["$in"] and wanted["$in"])
    for name, type_ in product(names, RowType):
        assert filter_.ignores_row(name, type_, {"documentKey": {"_id": 1}}) or shows(query, type_, name)


@pytest.mark.parametrize(
    ("tables", "where"),
    [
        (["*.*"], {}),
        (["*.*", "!shop.*"], {}),
        (["shop.*"], {"ns.db": "shop"}),
        (["shop.*", "!shop.tmp_*", "!shop.audit"], {"ns.db": "shop"}),
        (["shop.orders"], {"ns.db": "shop", "ns.coll": "orders"}),
        (["shop.orders", "shop.items"], {"ns.db": "shop", "ns.coll": {"$in": ["items", "orders"]}}),
        (
            ["shop.orders", "crm.notes"],
            {"ns.db": {"$in": ["crm", "shop"]}, "ns.coll": {"$in": ["notes", "orders"]}},
        ),
        (["shop.a*", "*.orders"], {}),
        (["*.orders"], {"ns.coll": "orders"}),
        (["shop-1.a_b.C2"], {"ns.db": "shop-1", "ns.coll": "a_b.C2"}),
        (["shop.a{1}"], {"ns.db": "shop"}),
        (["shop.orders", r"shop.a\*"], {"ns.db": "shop"}),
        (["商.orders"], {"ns.coll": "orders"}),
    ],
)
def test_names_without_wildcards_narrow_what_is_shown(tables: list[str], where: dict[str, Any]) -> None:
    ours = {"ns.db": HEARTBEAT_DATABASE, "ns.coll": HEARTBEAT_COLLECTION}
    expected = {path: beside(ours[path], names) for path, names in where.items()}
    assert asked(*tables) == {"operationType": {"$in": ROWS}, **expected}


def test_many_names_are_not_looked_through_at_the_server() -> None:
    assert len(asked(*(f"shop.t{number}" for number in range(16)))["ns.coll"]["$in"]) == 17
    assert asked(*(f"shop.t{number}" for number in range(17))).keys() == {"operationType", "ns.db"}


@pytest.mark.parametrize("meant", [["*.*"], ["shop.*", "!shop.tmp"]])
def test_types_that_are_ignored_for_all_tables_are_not_shown(meant: list[str]) -> None:
    rules = [{"tables": meant, "ignore": ["delete", "drop"]}, {"tables": ["shop.audit"], "ignore": ["update"]}]
    types = asked("shop.*", "!shop.tmp", ignore=rules)["operationType"]["$in"]
    assert types == ["insert", "replace", "update"]


def test_the_list_of_types_is_never_empty() -> None:
    rule = {"tables": ["*.*"], "ignore": ROWS}
    assert asked("shop.*", ignore=[rule])["operationType"]["$in"] == ROWS


def test_ddl_of_every_kind_and_database_is_asked_for_and_of_rows_heartbeats() -> None:
    ddl, heartbeats = filter_match.DDL["$or"]
    assert ddl == {"operationType": {"$in": sorted(SHOWN_BY_STREAMS)}}
    assert heartbeats == {"ns.db": HEARTBEAT_DATABASE, "ns.coll": HEARTBEAT_COLLECTION}


@given(filters_with_names())
@settings(max_examples=50)
def test_heartbeats_pass_every_filter(case: tuple[Filter, list[TableName]]) -> None:
    heartbeats = TableName(HEARTBEAT_DATABASE, HEARTBEAT_COLLECTION)
    assert shows(filter_match.rows(case[0]), RowType.REPLACE, heartbeats)
