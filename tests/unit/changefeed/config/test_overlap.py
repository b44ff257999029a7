"""A name that two changefeeds would both write is found before any of their tables exists."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from changefeed.config.configuration import Configuration
from changefeed.config.overlap import common_target, common_texts
from changefeed.config.tables.pattern import escaped, glob


def feed(tables: list[str], *routes: tuple[str, str]) -> Configuration:
    fields: dict[str, Any] = {
        "id": "f",
        "source": "mongodb://s",
        "sink": "mongodb://t",
        "filter": {"tables": tables},
        "routes": [{"from": taken, "to": given} for taken, given in routes],
    }
    return Configuration.parse(fields)


@pytest.mark.parametrize(
    ("one", "other", "common"),
    [
        (feed(["shop.*"]), feed(["shop.*"]), "shop.example"),
        (feed(["*.*"]), feed(["shop.orders"]), "shop.orders"),
        (feed(["shop.orders"]), feed(["shop.items"]), None),
        (feed(["shop.a*"]), feed(["shop.*b"]), "shop.aexampleb"),
        (feed(["shop.*", "!shop.tmp_*"]), feed(["shop.tmp_*"]), None),
        (feed(["shop.*", "!shop.tmp_*", "shop.tmp_keep"]), feed(["shop.tmp_*"]), "shop.tmp_keep"),
        (feed(["shop.*"], ("shop.*", "dr.*")), feed(["shop.*"]), None),
        (feed(["shop.*"], ("shop.*", "dr.*")), feed(["dr.orders"]), "dr.orders"),
        (feed(["shop.*"], ("*.*", "dr_*.*")), feed(["*.*"], ("*.*", "dr_*.*")), "dr_shop.example"),
        (feed(["shop.*"], ("*.*", "dr_*.*")), feed(["crm.*"], ("*.*", "dr_*.*")), None),
        (feed(["shop.*"], ("shop.*", "all.rows")), feed(["crm.*"], ("crm.*", "all.rows")), "all.rows"),
        (feed(["shop.tmp_*"], ("shop.tmp_*", "old.*")), feed(["old.1"]), "old.1"),
        (feed([r"shop.a\*"]), feed(["shop.a?"]), "shop.a*"),
        (feed(["shop.*"], ("shop.orders", "dr.orders")), feed(["dr.*", "shop.orders"]), "dr.orders"),
        (feed(["shop.orders"], ("shop.orders", "dr.orders")), feed(["shop.*"]), None),
    ],
)
def test_a_name_that_both_would_write(one: Configuration, other: Configuration, common: str | None) -> None:
    for pair in ((one, other), (other, one)):
        found = common_target(*pair)
        assert (None if found is None else str(found)) == common


PARTS = st.text("ab*?", min_size=1, max_size=6)


@settings(max_examples=200)
@given(one=PARTS, other=PARTS)
def test_texts_in_common_match_both_and_are_found_if_there_are_any(one: str, other: str) -> None:
    found = list(common_texts(one, other))
    assert all(glob(one).matches(text) and glob(other).matches(text) for text in found)
    if not found:
        short = [text for length in range(7) for text in _texts(length)]
        assert not [text for text in short if glob(one).matches(text) and glob(other).matches(text)]


def _texts(length: int) -> list[str]:
    return [""] if length == 0 else [char + rest for char in "ab" for rest in _texts(length - 1)]


@given(name=st.text(r"a*?!\\.", min_size=1))
def test_an_escaped_name_matches_itself_alone(name: str) -> None:
    assert glob(escaped(name)).matches(name)
    assert not glob(escaped(name)).matches(name + "a")


@settings(max_examples=200)
@given(one=PARTS, other=PARTS, ends=st.tuples(PARTS, PARTS))
def test_long_patterns_with_stars_have_a_text_in_common_where_short_ones_have(
    one: str, other: str, ends: tuple[str, str]
) -> None:
    """More `*` beside a `*` change nothing but the size of the search."""
    long_one, long_other = (f"{each}{'*' * 60}{end}" for each, end in zip((one, other), ends, strict=True))
    one, other = f"{one}*{ends[0]}", f"{other}*{ends[1]}"

    found = list(common_texts(long_one, long_other))

    assert bool(found) == bool(list(common_texts(one, other)))
    assert all(glob(long_one).matches(text) and glob(long_other).matches(text) for text in found)


def test_lists_of_thousands_that_share_nothing_are_compared_and_found_apart() -> None:
    names = [f"shop.t{number}" for number in range(4_000)]
    routes = [(name, f"dr{name.removeprefix('shop')}") for name in names]

    assert common_target(feed(["shop.*", *(f"!{name}" for name in names)]), feed(names)) is None
    assert common_target(feed(names, *routes), feed([f"other.{number}_*" for number in range(4_000)])) is None
    assert str(common_target(feed(names, *routes), feed(["crm.*", "dr.t3999"]))) == "dr.t3999"


def test_patterns_of_250_stars_are_compared() -> None:
    assert common_target(feed(["shop." + "*a" * 250 + "*"]), feed(["shop." + "*b" * 250 + "*"])) is not None
    assert common_target(feed(["shop." + "*a" * 250]), feed(["shop." + "*b" * 250])) is None
