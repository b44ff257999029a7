"""A name that two changefeeds would both write is found before any of their tables exists."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from changefeed.config.configuration import Configuration
from changefeed.config.overlap import common_target, common_texts
from changefeed.config.tables.pattern import compiled, escaped


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
    assert all(compiled(one).match(text) and compiled(other).match(text) for text in found)
    if not found:
        short = [text for length in range(7) for text in _texts(length)]
        assert not [text for text in short if compiled(one).match(text) and compiled(other).match(text)]


def _texts(length: int) -> list[str]:
    return [""] if length == 0 else [char + rest for char in "ab" for rest in _texts(length - 1)]


@given(name=st.text(r"a*?!\\.", min_size=1))
def test_an_escaped_name_matches_itself_alone(name: str) -> None:
    assert re.fullmatch(compiled(escaped(name)), name)
    assert not compiled(escaped(name)).match(name + "a")
