"""No name reaches a terminal with what the terminal obeys; sizes are told in decimal units."""

from __future__ import annotations

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
        ("\x1b[2J\x1b]0;title\x07", r"\x1b[2J\x1b]0;title\x07"),
        ("\u202egnp.exe", r"\u202egnp.exe"),
        ("zero\u200bwidth", r"zero\u200bwidth"),
        ("\udcff", r"\udcff"),
        ("\x9b31m", r"\x9b31m"),
    ],
)
def test_what_cannot_be_shown_is_shown_as_its_escape(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(st.text())
def test_what_is_shown_is_printable_and_is_shown_as_it_is(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable()
    assert printable(shown) == shown


def test_a_text_that_has_lines_on_purpose_keeps_them() -> None:
    assert printable_lines("id: a\nsource: \x1b") == "id: a\nsource: \\x1b"


@pytest.mark.parametrize(
    ("count", "told"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (1_500_000_000, "1.5 GB"), (2.5e15, "2500.0 TB")],
)
def test_a_size_has_the_largest_unit_that_it_fills(count: float, told: str) -> None:
    assert sized(count) == told
