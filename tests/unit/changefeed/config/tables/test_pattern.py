"""Patterns match tables exactly, whatever characters a name contains."""

from __future__ import annotations

import fnmatch
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from changefeed.config.tables.pattern import TablePattern, any_matches, covers
from changefeed.table import TableName

_PARTS = st.text("ab*?", min_size=1, max_size=5)
_NAMES = st.builds(TableName, st.text("ab", min_size=1, max_size=4), st.text("ab", min_size=1, max_size=4))


def matches(pattern: str, name: str) -> bool:
    return TablePattern.parse(pattern).matches(TableName.parse(name))


@pytest.mark.parametrize(
    ("pattern", "name", "expected"),
    [
        ("shop.orders", "shop.orders", True),
        ("shop.orders", "shop.orders2", False),
        ("shop.orders", "shop.orders\n", False),
        ("shop.*", "shop.a.b.c", True),
        ("shop.*", "shop2.a", False),
        ("shop.a.*", "shop.a.b", True),
        ("shop.a.*", "shop.axb", False),
        ("*.*", "any.thing\nat all", True),
        ("shop_?.x", "shop_商.x", True),
        ("shop_?.x", "shop_12.x", False),
        ("shop.a+(b)[c]$", "shop.a+(b)[c]$", True),
        (r"shop.what\?", "shop.what?", True),
        (r"shop.what\?", "shop.whats", False),
        (r"shop.\*", "shop.*", True),
        (r"shop.\*", "shop.x", False),
        (r"\!shop.x", "!shop.x", True),
        (r"shop.a\\b", "shop.a\\b", True),
        ("shop.a!b", "shop.a!b", True),
        ("Shop.x", "shop.x", False),
    ],
)
def test_a_pattern_matches(pattern: str, name: str, expected: bool) -> None:
    assert matches(pattern, name) is expected


@given(_PARTS, _PARTS, _NAMES)
def test_wildcards_are_those_of_the_shell(db: str, coll: str, name: TableName) -> None:
    expected = fnmatch.fnmatchcase(name.db, db) and fnmatch.fnmatchcase(name.coll, coll)

    assert TablePattern.parse(f"{db}.{coll}").matches(name) == expected


@given(st.text(st.characters(exclude_characters='\0./ "$', exclude_categories=["Cs"]), min_size=1), st.text(min_size=1))
def test_a_name_with_its_special_characters_escaped_matches_itself(db: str, coll: str) -> None:
    name = TableName(db, coll.replace("\0", "0"))
    if not name.system:
        escaped = re.sub(r"([*?!\\])", r"\\\1", str(name))

        assert TablePattern.parse(escaped).matches(name)


@pytest.mark.parametrize(
    ("name", "meant"),
    [("shop.orders", True), ("shop.tmp_1", False), ("shop.tmp_keep", True), ("crm.people", False)],
)
def test_the_last_pattern_that_matches_decides(name: str, meant: bool) -> None:
    patterns = [TablePattern.parse(text) for text in ("shop.*", "!shop.tmp_*", "shop.tmp_keep")]

    assert any_matches(patterns, TableName.parse(name)) is meant


@given(st.builds(TablePattern, _PARTS, _PARTS, st.booleans()))
def test_a_pattern_round_trips_through_text_and_json(pattern: TablePattern) -> None:
    adapter = TypeAdapter(TablePattern)

    assert TablePattern.parse(str(pattern)) == pattern
    assert adapter.validate_json(adapter.dump_json(pattern)) == pattern


@given(_PARTS, _PARTS, _NAMES)
def test_what_covers_a_pattern_matches_all_its_names(wide: str, narrow: str, name: TableName) -> None:
    left, right = TablePattern.parse(f"a.{wide}"), TablePattern.parse(f"a.{narrow}")
    name = TableName("a", name.coll)

    if covers(left, right) and right.matches(name):
        assert left.matches(name)


@pytest.mark.parametrize(
    ("wide", "narrow", "expected"),
    [
        ("shop.*", "shop.orders", True),
        ("shop.*", "shop.*", True),
        ("*.*", "shop.tmp_*", True),
        ("shop.t*", "shop.tmp_*", True),
        ("shop.tmp_*", "shop.t*", False),
        ("shop.?", "shop.*", False),
        ("shop.*", "crm.*", False),
    ],
)
def test_a_wider_pattern_covers_a_narrower_one(wide: str, narrow: str, expected: bool) -> None:
    assert covers(TablePattern.parse(wide), TablePattern.parse(narrow)) is expected
