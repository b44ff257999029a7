"""Random filters, and table names for them."""

from __future__ import annotations

import re
from typing import Any

from hypothesis import strategies as st

from changefeed.config.tables.filter import Filter
from changefeed.config.tables.pattern import TablePattern
from changefeed.event import SHOWN_BY_STREAMS, DdlType, RowType
from changefeed.table import TableName

_SPECIAL = "ab.$^+()[]{}|\\*?!\n商 "
_DB_PARTS = ["*", "a*", "a?", "ab", "商", "a(b", r"a\*", r"\!a", "l*"]
_COLL_PIECES = ["*", "?", r"\*", r"\?", r"\!", r"\\", "$", "^", "(", "]", ".", "a", "b", "商", "\n"]
_COLL_PARTS = ["*", "syst*", *_COLL_PIECES, *(left + right for left in _COLL_PIECES for right in _COLL_PIECES)]
_WANTED = st.sampled_from([f"{db}.{coll}" for db in _DB_PARTS for coll in _COLL_PARTS])
_PATTERNS = _WANTED | _WANTED.map("!{}".format)
_TABLES = st.builds(lambda first, more: list(dict.fromkeys([first, *more])), _WANTED, st.lists(_PATTERNS, max_size=4))
_TYPES = st.sampled_from(
    [type_.value for type_ in (*RowType, *sorted(SHOWN_BY_STREAMS)) if type_ is not DdlType.DROP_DATABASE]
)


def _wants_something(tables: list[str]) -> bool:
    return tables[-1] != "!*.*"


def made(tables: list[str], events: list[dict[str, Any]] | None = None) -> Filter:
    return Filter.model_validate({"tables": tables, "events": events or []})


@st.composite
def _filters(draw: st.DrawFn) -> Filter:
    """Some rules cover all wanted tables."""
    tables = draw(_TABLES.filter(_wants_something))
    meant = st.just(tables) | st.just(["*.*"]) | _TABLES.filter(_wants_something)
    ignored = st.lists(_TYPES, min_size=1, max_size=3, unique=True)
    return made(tables, draw(st.lists(st.fixed_dictionaries({"tables": meant, "ignore": ignored}), max_size=2)))


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


def _names(filter_: Filter) -> st.SearchStrategy[TableName]:
    """Mostly names that match patterns of the filter: a random name rarely matches any."""
    patterns = [*filter_.tables, *(pattern for rule in filter_.events for pattern in rule.tables)]
    return st.one_of(_ANY_NAME, st.sampled_from(patterns).flatmap(_name_that_matches))


@st.composite
def filters_with_names(draw: st.DrawFn) -> tuple[Filter, list[TableName]]:
    filter_ = draw(_filters())
    return filter_, draw(st.lists(_names(filter_), min_size=1, max_size=4))
