"""Patterns match tables exactly, whatever characters a name contains."""

from __future__ import annotations

import fnmatch
import pickle
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from changefeed.config.tables.pattern import PatternList, TablePattern, covers, glob
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
    patterns = PatternList(TablePattern.parse(text) for text in ("shop.*", "!shop.tmp_*", "shop.tmp_keep"))

    assert patterns.means(TableName.parse(name)) is meant


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


_TOKENS = st.lists(
    st.sampled_from(["a", "b", ".", "\n", "*", "?", r"\*", r"\?", r"\!", "\\\\"]), min_size=1, max_size=8
).map("".join)
_TEXTS = st.text("ab.\n*?!\\", max_size=10)


def _translated(part: str) -> re.Pattern[str]:
    """A part as a backtracking expression: what it means, whatever it costs."""
    pieces = re.findall(r"\\.|.", part, re.DOTALL)
    return re.compile("".join({"*": ".*", "?": "."}.get(each, re.escape(each[-1])) for each in pieces), re.DOTALL)


@settings(max_examples=1_000)
@given(_TOKENS, _TEXTS)
def test_a_part_means_what_its_plain_translation_means(part: str, name: str) -> None:
    assert glob(part).matches(name) == (_translated(part).fullmatch(name) is not None)


@given(_TOKENS, _TOKENS)
def test_what_covers_a_part_is_asked_of_names_that_are_long_enough(wide: str, narrow: str) -> None:
    """`wide` may have any number of `?`."""
    pieces = re.findall(r"\\.|.", narrow, re.DOTALL)
    names = [
        "".join({"*": star, "?": "\1"}.get(each, each[-1]) for each in pieces) for star in ("", "\1" * (len(wide) + 1))
    ]

    expected = all(_translated(wide).fullmatch(name) for name in names)

    assert covers(TablePattern("a", wide), TablePattern("a", narrow)) is expected


@pytest.mark.parametrize("part", ["*_*_*_*_*_*_*_*_tmp", "*a" * 60, "*?" * 60 + "x", "*__?" * 40 + "*x*"])
def test_a_name_that_nearly_matches_many_stars_is_answered(part: str) -> None:
    """With an expression that goes back for each star, this does not end."""
    assert not glob(part).matches("_" * 230)
    assert not glob(part).matches("a" * 230 + "b")


@given(
    st.lists(st.builds(TablePattern, st.text("ab*", min_size=1, max_size=3), _PARTS, st.booleans()), max_size=12),
    _NAMES,
    st.builds(TablePattern, st.text("ab*", min_size=1, max_size=3), _PARTS),
)
def test_a_list_finds_every_pattern_that_concerns_a_name_or_a_pattern(
    patterns: list[TablePattern], name: TableName, other: TablePattern
) -> None:
    found = PatternList(patterns)
    matching = [number for number, pattern in enumerate(patterns) if pattern.matches(name)]

    assert found.first(name) == min(matching, default=None)
    assert found.means(name) == (bool(matching) and not patterns[max(matching)].negated)
    assert set(matching) <= set(found.like(name))
    assert {number for number, each in enumerate(patterns) if covers(each, other)} <= set(found.wider(other))
    if other.matches(name):
        assert set(matching) <= set(found.near(other))
        assert found.near(other) == sorted(found.near(other))


def test_a_list_is_sent_to_other_processes_as_its_patterns_alone() -> None:
    patterns = PatternList(TablePattern.parse(f"shop.{number}") for number in range(50))
    before = len(pickle.dumps(patterns))
    assert patterns.means(TableName("shop", "7"))

    assert len(pickle.dumps(patterns)) == before
    assert pickle.loads(pickle.dumps(patterns)) == patterns


def test_a_pattern_that_is_longer_than_any_name_is_refused() -> None:
    with pytest.raises(ValueError, match=r"with 1,005 characters; no name is so long, write at most 1,000"):
        TablePattern.parse("shop." + "?" * 1_000)
