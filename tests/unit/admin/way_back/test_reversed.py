"""Which changefeed brings back what another one brought, and for which there is none."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admin.way_back.reversed import notes, reversed_configuration, strangers, unlike
from changefeed.cluster_time import ClusterTime
from changefeed.config.configuration import Configuration
from changefeed.documents.document import Document
from changefeed.errors import ConfigurationError
from changefeed.position import Position
from changefeed.records.requests import ChangefeedId
from changefeed.table import TableId, TableKind, TableName, TableSchema

_BACK = ChangefeedId("back")


def configured(**fields: Any) -> Configuration:
    return Configuration.parse({"id": "there", "source": "mongodb://old", "sink": "mongodb://new", **fields})


def tables(*names: str, **fields: Any) -> list[TableSchema]:
    at = Position(ClusterTime(1, 1))
    return [TableSchema(id=TableId(name), name=TableName.parse(name), valid_from=at, **fields) for name in names]


def test_sides_routes_and_patterns_are_exchanged() -> None:
    there = configured(
        filter={"tables": ["shop.*", "!shop.tmp_*", "crm.people"]},
        routes=[{"from": "shop.orders", "to": "all.orders"}, {"from": "shop.*", "to": "dr.*"}],
        dead_letter="sluice.rejected",
        ddl={"async_indexes": False},
    )
    back = reversed_configuration(there, _BACK)
    assert (back.id, back.source.reference, back.sink.reference) == ("back", "mongodb://new", "mongodb://old")
    assert list(map(str, back.filter.tables)) == ["all.orders", "dr.*", "!dr.tmp_*", "crm.people"]
    assert [(str(each.from_), str(each.to)) for each in back.routes.root] == [
        ("all.orders", "shop.orders"),
        ("dr.*", "shop.*"),
    ]
    assert (back.dead_letter, back.ddl.async_indexes) == (TableName("sluice", "rejected"), False)
    assert list(unlike(there, back, tables("shop.orders", "shop.items", "shop.tmp_1", "crm.people"))) == []


def test_a_sign_that_a_pattern_may_escape_and_need_not_is_one_sign_of_a_name() -> None:
    routes = [{"from": "shop.a!*", "to": "shop.b*"}]
    patterns = {"tables": ["shop.a!c*", "shop.a\\!d*"]}
    back = reversed_configuration(configured(filter=patterns, routes=routes), _BACK)
    assert list(map(str, back.filter.tables)) == ["shop.bc*", "shop.bd*"]


_PARTS = st.sampled_from(["shop", "crm", "shop_1", "tmp_a", "orders"])


@given(
    st.lists(st.tuples(_PARTS, _PARTS), min_size=1, max_size=6),
    st.lists(st.sampled_from(["shop.*", "crm.*", "*.orders", "shop.orders", "tmp_a.tmp_a"]), unique=True, max_size=2),
    st.sampled_from(
        [["*.*"], ["shop.*", "crm.*"], ["shop.*", "!shop.tmp_*"], ["*.orders"], ["shop.orders", "crm.shop"]]
    ),
)
def test_each_table_comes_back_to_where_it_was_or_a_problem_names_it(
    names: list[tuple[str, str]], froms: list[str], patterns: list[str]
) -> None:
    routes = [
        {"from": each, "to": "dr_" + each if "*" not in each.partition(".")[0] else f"{each}_2"} for each in froms
    ]
    try:
        there = configured(filter={"tables": patterns}, routes=routes)
        back = reversed_configuration(there, _BACK)
    except ConfigurationError:
        return
    found = tables(*{f"{db}.{coll}" for db, coll in names})
    problems = " ".join(unlike(there, back, found))
    for table in found:
        at_target = there.routes.target(table.name)
        returns = back.filter.wants_table(at_target) and back.routes.target(at_target) == table.name
        assert returns or str(table.name) in problems or not there.filter.wants_table(table.name)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"sink": "file:///messages"}, "sink: a file has no documents that could come back"),
        ({"columns": [{"tables": ["shop.users"], "drop": ["ssn"]}]}, "columns: the rules for shop.users drop"),
        ({"filter": {"events": [{"tables": ["shop.a"], "ignore": ["delete"]}]}}, "filter.events: changes of shop.a"),
        ({"routes": [{"from": "r?.*", "to": "all.all"}]}, "several tables under one name"),
        ({"on_occupied": "keep"}, "on_occupied: keep left rows"),
        (
            {"filter": {"tables": ["a*.x"]}, "routes": [{"from": "ab.*", "to": "c.*"}]},
            "have some tables in common, and some not",
        ),
    ],
)
def test_what_cannot_come_back_is_named(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        reversed_configuration(configured(**fields), _BACK)


def test_expiry_at_both_sides_and_names_that_cannot_be_told_apart_are_named() -> None:
    index = Document.of({"name": "at_1", "key": {"at": 1}, "expireAfterSeconds": 60})
    there = configured(ddl={"ttl": "copied"})
    back = reversed_configuration(there, _BACK)
    assert list(unlike(there, back, tables("shop.a"))) == []
    assert "ddl.ttl: copied lets documents of shop.a" in next(unlike(there, back, tables("shop.a", indexes=(index,))))
    there = configured(routes=[{"from": "shop.*", "to": "dr.*"}])
    back = reversed_configuration(there, _BACK)
    assert "dr.x would come back under another name" in next(unlike(there, back, tables("dr.x", "shop.y")))


def test_what_a_user_should_know_is_told() -> None:
    index = Document.of({"name": "at_1", "key": {"at": 1}, "expireAfterSeconds": 60})
    found = tables("shop.log", options=Document.of({"capped": True, "size": 1}))
    found += tables("shop.sessions", indexes=(index,)) + tables("shop.m", kind=TableKind.TIMESERIES)
    told = list(notes(configured(users=True), found))
    assert [text.partition(": ")[2].partition(",")[0] for text in told] == [
        "documents of shop.sessions expire at the target alone; the source's expiry is suspended until the return",
        "users and roles are brought back",
        "what rolls off the capped shop.log at the target is deleted at the source",
        "rows of the time series shop.m come back between servers of one release only",
    ]


def test_tables_that_the_target_alone_has_are_named() -> None:
    there = configured(routes=[{"from": "shop.*", "to": "dr.*"}])
    names = [TableName("shop", "a")]
    assert list(strangers(there, names, [TableName("dr", "a")])) == []
    assert "the target has dr.b" in next(strangers(there, names, [TableName("dr", "a"), TableName("dr", "b")]))
