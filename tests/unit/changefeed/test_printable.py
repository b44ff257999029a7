"""No name reaches a terminal with what the terminal obeys; sizes are told in decimal units."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from changefeed.printable import printable, printable_lines, sized


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("shop.orders", "shop.orders"),
        ("shop.注文", "shop.注文"),
        ("a\nb", r"a\nb"),
        ("\x1b[2J\x1b]0;title\x07", r"\u001b[2J\u001b]0;title\u0007"),
        ("\u202egnp.exe", r"\u202egnp.exe"),
        ("zero\u200bwidth", r"zero\u200bwidth"),
        ("\udcff", r"\udcff"),
        ("1\xa0000\x7f", r"1\u00a0000\u007f"),
        ("\U0001fae8", r"\ud83e\udee8"),
        ("\x9b31m", r"\u009b31m"),
    ],
)
def test_what_cannot_be_shown_is_shown_as_its_escape(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(st.text())
def test_what_is_shown_is_printable_and_is_shown_as_it_is(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable()
    assert printable(shown) == shown


@given(st.text())
def test_a_line_of_json_says_the_same_as_before(text: str) -> None:
    assert json.loads(printable(json.dumps({text: text}, ensure_ascii=False))) == {text: text}


def test_a_text_that_has_lines_on_purpose_keeps_them() -> None:
    assert printable_lines("id: a\nsource: \x1b") == "id: a\nsource: \\u001b"


@pytest.mark.parametrize(
    ("count", "told"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (1_500_000_000, "1.5 GB"), (2.5e15, "2500.0 TB")],
)
def test_a_size_has_the_largest_unit_that_it_fills(count: float, told: str) -> None:
    assert sized(count) == told
