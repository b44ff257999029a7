"""Routes give a table its name downstream."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from changefeed.config.tables.pattern import TablePattern
from changefeed.config.tables.routes import Routes
from changefeed.errors import ConfigurationError
from changefeed.table import TableName


def routes(*rules: tuple[str, str]) -> Routes:
    return Routes.model_validate([{"from": taken, "to": given} for taken, given in rules])


def target(name: str, *rules: tuple[str, str]) -> str:
    return str(routes(*rules).target(TableName.parse(name)))


@pytest.mark.parametrize(
    ("taken", "given", "name", "expected"),
    [
        ("shop.*", "shop_dr.*", "shop.a.b", "shop_dr.a.b"),
        ("shop.orders", "dr.all_orders", "shop.orders", "dr.all_orders"),
        ("shop_*.*", "dr_*.*", "shop_eu.orders", "dr_eu.orders"),
        ("shop.tmp_*", "dr.*_old", "shop.tmp_x", "dr.x_old"),
        ("shop.a?b*", "dr.a?b*", "shop.a1b2", "dr.a1b2"),
        ("shop.orders_*", "dr.orders", "shop.orders_2026", "dr.orders"),
        (r"shop.\*x", r"dr.\*y", "shop.*x", "dr.*y"),
        ("*.*", "all_*.*", "商.品", "all_商.品"),
    ],
)
def test_a_rule_makes_the_new_name(taken: str, given: str, name: str, expected: str) -> None:
    assert target(name, (taken, given)) == expected


def test_the_first_rule_that_matches_decides_and_without_one_a_table_keeps_its_name() -> None:
    rules = [("shop.orders", "dr.all_orders"), ("shop.*", "shop_dr.*")]

    assert target("shop.orders", *rules) == "dr.all_orders"
    assert target("shop.items", *rules) == "shop_dr.items"
    assert target("crm.people", *rules) == "crm.people"


@pytest.mark.parametrize(
    ("rule", "shares"),
    [
        (("gather_*.t", "all.t"), True),
        (("*.*", "all.t"), True),
        (("shop.t", "all.t"), False),
        (("shop.*", "all.*"), False),
        (("*.t", "*.t"), False),
        (("crm.*", "all.t"), False),
    ],
)
def test_tables_may_share_a_name_only_by_a_rule_that_asks_for_it(rule: tuple[str, str], shares: bool) -> None:
    asked = TableName("gather_1", "t") if rule[0].startswith("gather") else TableName("shop", "t")
    assert routes(rule).may_share(asked) is shares


_PARTS = st.sampled_from(["*", "a*", "*b", "a*b", "x"])


@given(_PARTS, _PARTS, st.text("abx.", min_size=1, max_size=4), st.text("abx.", min_size=1, max_size=4))
def test_a_rule_with_as_many_wildcards_as_from_never_joins_two_tables(
    taken: str, given: str, left: str, right: str
) -> None:
    if ("*" in taken) != ("*" in given):
        return
    moved = routes((f"shop.{taken}", f"dr.{given}"))
    names = [TableName("shop", left), TableName("shop", right)]
    if left != right and all(TablePattern("shop", taken).matches(name) for name in names):
        try:
            targets = [moved.target(name) for name in names]
        except ConfigurationError:
            return
        assert targets[0] != targets[1]


@pytest.mark.parametrize(
    ("rules", "db", "databases"),
    [
        ([("shop.*", "dr.*")], "shop", {"dr"}),
        ([("shop.orders", "dr.orders")], "shop", {"dr", "shop"}),
        ([("shop.orders", "old.orders"), ("shop.*", "dr.*")], "shop", {"old", "dr"}),
        ([("shop.*", "dr.*"), ("*.*", "rest.*")], "shop", {"dr"}),
        ([("shop_*.*", "dr_*.*")], "shop_eu", {"dr_eu"}),
        ([("shop.*", "dr.*")], "crm", {"crm"}),
        ([], "shop", {"shop"}),
    ],
)
def test_tables_of_a_database_are_in_these_databases_downstream(
    rules: list[tuple[str, str]], db: str, databases: set[str]
) -> None:
    assert routes(*rules).target_databases(db) == databases


@given(
    st.lists(st.sampled_from(["shop.*", "shop.a", "*.b", "s*.?"]), unique=True), st.text("ab", min_size=1, max_size=2)
)
def test_no_table_is_outside_the_target_databases(taken: list[str], coll: str) -> None:
    rules = [{"from": each, "to": f"dr{number}.fixed"} for number, each in enumerate(taken)]
    try:
        moved = Routes.model_validate(rules)
    except ValidationError:
        return

    assert moved.target(TableName("shop", coll)).db in moved.target_databases("shop")


def test_a_name_that_a_rule_leaves_empty_is_an_error_that_says_so() -> None:
    with pytest.raises(ConfigurationError, match=r"routes: shop\.tmp_ has no name under dr\.\*"):
        target("shop.tmp_", ("shop.tmp_*", "dr.*"))


@pytest.mark.parametrize("given", ["dr.*_*", "dr.?", "d*.x"])
def test_a_wildcard_that_stands_for_nothing_is_refused(given: str) -> None:
    with pytest.raises(ValidationError, match=r"write the (database|collection) as it is in from"):
        routes(("shop.*", given))


def test_routes_come_back_from_json() -> None:
    written: list[dict[str, Any]] = [{"from": "shop.*", "to": "dr.*"}]

    assert Routes.model_validate(written).model_dump(mode="json") == written


@given(
    st.lists(
        st.sampled_from([("s.*", "t.*"), ("s.a*", "t.b*"), ("*.a", "*.z"), ("s.b", "t.bb"), ("s.x*", "u.x*_1")]),
        unique=True,
    ),
    st.sampled_from(["s", "t", "u"]),
    st.text("abxz_1", min_size=1, max_size=4),
)
def test_the_origins_of_a_name_are_exactly_the_tables_that_have_it_downstream(
    rules: list[tuple[str, str]], db: str, coll: str
) -> None:
    try:
        made = routes(*rules)
    except ValidationError:
        return
    everything = [
        TableName(db, "".join(coll)) for db in "stu" for size in (1, 2, 3) for coll in product("abxz", repeat=size)
    ]
    name = TableName(db, coll)
    assert name in (made.origins(made.target(name)) or frozenset())
    origins = made.origins(name)
    assert origins is not None
    assert {origin for origin in everything if made.target(origin) == name} <= origins
    assert all(made.target(origin) == name for origin in origins)


def test_a_table_that_a_rule_leaves_without_a_name_is_the_origin_of_none() -> None:
    rule = ("tmp_*.*", "*.*")
    assert routes(rule).origins(TableName("tmp_", "a")) == frozenset({TableName("tmp_tmp_", "a")})


def test_the_origins_of_a_fan_in_are_unlimited() -> None:
    assert routes(("s.*", "t.all")).origins(TableName("t", "all")) is None
    assert routes(("s.*", "t.all")).origins(TableName("t", "other")) == frozenset({TableName("t", "other")})


@pytest.mark.parametrize(
    ("rules", "names", "merged"),
    [
        ([("r1.*", "r2.*")], ["r1.a", "r2.a", "r2.b"], {"r2.a": ("r1.a", "r2.a")}),
        ([("r1.*", "r2.*")], ["r1.a", "r2.b"], {}),
        ([("shop_*.orders", "all.orders")], ["shop_eu.orders", "shop_us.orders"], {}),
        (
            [("shop_*.orders", "all.orders")],
            ["shop_eu.orders", "all.orders"],
            {"all.orders": ("all.orders", "shop_eu.orders")},
        ),
        (
            [("shop_*.*", "all.*")],
            ["shop_eu.orders", "shop_us.orders"],
            {"all.orders": ("shop_eu.orders", "shop_us.orders")},
        ),
        ([("a.x", "b.x")], ["a.x", "b.x"], {"b.x": ("a.x", "b.x")}),
        ([("a.x", "b.x"), ("b.x", "a.x")], ["a.x", "b.x"], {}),
    ],
)
def test_tables_come_under_one_name_only_by_a_rule_that_names_it(
    rules: list[tuple[str, str]], names: list[str], merged: dict[str, tuple[str, ...]]
) -> None:
    found = routes(*rules).merged(map(TableName.parse, names))
    assert {str(target): tuple(map(str, tables)) for target, tables in found.items()} == merged
