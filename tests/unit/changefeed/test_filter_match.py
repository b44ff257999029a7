"""What the server is asked to send is what the filter wants."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import bson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from changefeed import filter_match
from changefeed.cluster_time import ClusterTime
from changefeed.event import DdlEvent, DdlType, RowType
from changefeed.filter import Filter
from changefeed.pattern import TablePattern
from changefeed.position import Position
from changefeed.table import TableName

_SPECIAL = "ab.$^+()[]{}|\\*?!\n商 "
_DB_PARTS = ["*", "a*", "a?", "ab", "商", "a(b", r"a\*", r"\!a", "l*"]
_COLL_PIECES = ["*", "?", r"\*", r"\?", r"\!", r"\\", "$", "^", "(", "]", ".", "a", "b", "商", "\n"]
_COLL_PARTS = ["*", "syst*", *_COLL_PIECES, *(left + right for left in _COLL_PIECES for right in _COLL_PIECES)]
_WANTED = st.sampled_from([f"{db}.{coll}" for db in _DB_PARTS for coll in _COLL_PARTS])
_PATTERNS = _WANTED | _WANTED.map("!{}".format)
_TABLES = st.builds(lambda first, more: list(dict.fromkeys([first, *more])), _WANTED, st.lists(_PATTERNS, max_size=4))
_TYPES = st.sampled_from([type_.value for type_ in (*RowType, *DdlType) if type_ is not DdlType.DROP_DATABASE])


def _wants_something(tables: list[str]) -> bool:
    return tables[-1] != "!*.*"


def _filter(tables: list[str], events: list[dict[str, Any]]) -> Filter:
    return Filter.model_validate({"tables": tables, "events": events})


_RULES = st.fixed_dictionaries(
    {"tables": _TABLES.filter(_wants_something), "ignore": st.lists(_TYPES, min_size=1, max_size=3, unique=True)}
)
FILTERS = st.builds(_filter, _TABLES.filter(_wants_something), st.lists(_RULES, max_size=2))
_ANY_NAME = st.builds(
    TableName,
    st.sampled_from(["a", "ab", "abc", "商", "a(b", "a*", "!a", "local", "l", "admin"]),
    st.text(_SPECIAL, min_size=1, max_size=3) | st.sampled_from(["a", "b", "system.views", "systemx", "a\n"]),
)


@st.composite
def _name_that_matches(draw: st.DrawFn, pattern: TablePattern) -> TableName:
    def filled(part: str, fillings: list[str]) -> str:
        pieces = re.findall(r"\\.|.", part, re.DOTALL)
        return "".join(draw(st.sampled_from(fillings)) if piece in "*?" else piece[-1] for piece in pieces)

    return TableName(filled(pattern.db, ["a", "b"]), filled(pattern.coll, ["a", "b", "\n", "$", "商"]))


def names(filter_: Filter) -> st.SearchStrategy[TableName]:
    """Mostly such that patterns of the filter match them: a name by chance seldom meets any."""
    patterns = [*filter_.tables, *(pattern for rule in filter_.events for pattern in rule.tables)]
    return st.one_of(_ANY_NAME, st.sampled_from(patterns).flatmap(_name_that_matches))


@st.composite
def filters_with_names(draw: st.DrawFn) -> tuple[Filter, TableName, TableName]:
    filter_ = draw(FILTERS)
    return filter_, draw(names(filter_)), draw(names(filter_))


def accepts(query: Mapping[str, Any], event: Mapping[str, Any]) -> bool:
    """The server's side: as much of `$match` as the module says it uses, and no more."""
    return all(_holds(key, condition, event) for key, condition in query.items())


def _holds(key: str, condition: Any, event: Mapping[str, Any]) -> bool:
    if key.startswith("$"):
        assert key in ("$and", "$or", "$nor")
        held = [accepts(part, event) for part in condition]
        return all(held) if key == "$and" else any(held) is (key == "$or")
    value: Any = event
    for step in key.split("."):
        value = value.get(step) if isinstance(value, Mapping) else None
    match condition:
        case {"$in": choices}:
            return value in choices
        case {"$nin": choices}:
            return value not in choices
        case {"$exists": True}:
            return value is not None
        case {"$regex": pattern, **rest}:
            flags = re.DOTALL if rest == {"$options": "s"} else re.NOFLAG
            return value is not None and re.search(pattern, value, flags) is not None
    assert isinstance(condition, str), f"not expected in a $match: {key} {condition}"
    return bool(value == condition)


def _ns(name: TableName) -> dict[str, str]:
    return {"db": name.db, "coll": name.coll}


@given(filters_with_names(), st.sampled_from(RowType))
@settings(max_examples=200, deadline=None)
def test_rows_are_sent_exactly_when_they_are_not_ignored(
    case: tuple[Filter, TableName, TableName], type_: RowType
) -> None:
    filter_, name, _ = case
    event = {"operationType": type_.value, "ns": _ns(name), "documentKey": {"_id": 1}}

    assert accepts(filter_match.rows(filter_), event) is not filter_.ignores_row(name, type_, event)
    assert not accepts(filter_match.ddl(filter_), event)


@given(filters_with_names(), st.sampled_from(DdlType))
@settings(max_examples=200, deadline=None)
def test_ddl_is_sent_exactly_when_it_is_in_scope(case: tuple[Filter, TableName, TableName], type_: DdlType) -> None:
    filter_, name, to = case
    event: dict[str, Any] = {"operationType": type_.value, "ns": _ns(name)}
    if type_ is DdlType.RENAME:
        event["to"] = _ns(to)
    if type_ is DdlType.DROP_DATABASE:
        event["ns"] = {"db": name.db}
    parsed = DdlEvent(
        position=Position(ClusterTime(1, 1)),
        type=type_,
        db=name.db,
        table=None if type_ is DdlType.DROP_DATABASE else name,
        renamed_to=to if type_ is DdlType.RENAME else None,
    )
    in_scope = filter_.ddl(parsed) is not None

    assert accepts(filter_match.ddl(filter_), event) is in_scope
    assert accepts(filter_match.everything(filter_), event) is in_scope
    assert not accepts(filter_match.rows(filter_), event)


@given(filters_with_names())
@settings(max_examples=100, deadline=None)
def test_a_database_with_a_wanted_table_is_wanted(case: tuple[Filter, TableName, TableName]) -> None:
    filter_, name, _ = case

    assert filter_.wants_table(name) <= filter_.wants_database(name.db)


@pytest.mark.parametrize(
    ("tables", "name", "wanted"),
    [
        (["a.*", "!a.b", "a.bc"], "a.b", False),
        (["a.*", "!a.b", "a.bc"], "a.bc", True),
        (["a.*", "!a.b*", "a.bc"], "a.bc", True),
        (["a.x*"], "a.x\ny", True),
    ],
)
def test_the_last_pattern_decides_at_the_server_too(tables: list[str], name: str, wanted: bool) -> None:
    event = {"operationType": "insert", "ns": _ns(TableName.parse(name))}

    assert accepts(filter_match.rows(_filter(tables, [])), event) is wanted


def test_excluding_some_tables_of_a_database_keeps_its_drop_and_excluding_all_does_not() -> None:
    event = {"operationType": "dropDatabase", "ns": {"db": "a"}}

    assert accepts(filter_match.ddl(_filter(["*.*", "!a.b"], [])), event)
    assert not accepts(filter_match.ddl(_filter(["*.*", "!a.*"], [])), event)


def test_what_the_server_keeps_for_itself_is_not_sent() -> None:
    everything = filter_match.everything(Filter())

    assert not accepts(everything, {"operationType": "insert", "ns": {"db": "a", "coll": "system.views"}})
    assert not accepts(everything, {"operationType": "insert", "ns": {"db": "config", "coll": "b"}})
    assert not accepts(everything, {"operationType": "dropDatabase", "ns": {"db": "config"}})


def test_each_rule_keeps_its_own_events_from_being_sent() -> None:
    rules = [{"tables": ["a.b"], "ignore": ["delete", "drop"]}, {"tables": ["a.*"], "ignore": ["replace"]}]
    query = filter_match.everything(_filter(["*.*"], rules))
    sent = [
        type_
        for type_ in ("insert", "delete", "replace", "drop")
        if accepts(query, {"operationType": type_, "ns": {"db": "a", "coll": "b"}})
    ]

    assert sent == ["insert", "drop"]


def test_what_ignore_where_leaves_out_is_decided_here_and_sent() -> None:
    filter_ = Filter.model_validate(
        {"tables": ["shop.*"], "events": [{"tables": ["shop.log"], "ignore_where": {"insert": {"level": "debug"}}}]}
    )
    event = {"operationType": "insert", "ns": {"db": "shop", "coll": "log"}, "fullDocument": {"level": "debug"}}

    assert filter_.ignores_row(TableName("shop", "log"), RowType.INSERT, event)
    assert accepts(filter_match.rows(filter_), event)


def test_an_event_type_of_a_newer_server_is_not_sent() -> None:
    event = {"operationType": "modifyShardingPolicy", "ns": {"db": "shop", "coll": "log"}}

    assert not accepts(filter_match.everything(Filter()), event)


def test_many_exceptions_nest_no_deeper_than_few() -> None:
    def depth(value: Any) -> int:
        members = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        return 1 + max(map(depth, members), default=0)

    def alternating(count: int) -> Filter:
        tables = [text for number in range(count) for text in (f"shop.a{number}*", f"!shop.a{number}_*")]
        return Filter.model_validate({"tables": tables})

    many = filter_match.everything(alternating(100))

    assert depth(many) == depth(filter_match.everything(alternating(2)))
    assert len(bson.encode(many)) < 4 * 1024 * 1024


@pytest.mark.parametrize("name", ["shop.a\n", "shop.ab", "shop.xa"])
def test_a_name_that_only_begins_or_ends_like_a_pattern_is_not_sent(name: str) -> None:
    filter_ = Filter.model_validate({"tables": ["sho?.a"]})
    event = {"operationType": "insert", "ns": _ns(TableName.parse(name))}

    assert not accepts(filter_match.rows(filter_), event)
