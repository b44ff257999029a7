"""`table_lines`, `fact_lines`: rows and facts as lines of a width, for people. Pure.

An id is never cut, and a row is never wrapped in the middle of one. What does not fit goes away on purpose, in this order:

    0. a column of text that says nothing in any row
    1. columns of text, such as an error, are wrapped, down to a width that can be read, in about ten lines
    2. columns that are optional are left out, the last one first; `-o wide` shows them
    3. a column of text goes below its row
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Any, TypeAlias

from changefeed.printable import printable, printable_lines

_GAP = "  "
_LEAST_TEXT = 24
_MOST_LINES = 10
"""About: a text that would take more in its column goes below its row."""
_INDENT = "    "
_SGR = {"bold": "1", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


@dataclass(frozen=True, slots=True)
class Styled:
    """`style`: bold, red, green, yellow, cyan or nothing."""

    plain: str
    style: str = ""

    def __str__(self) -> str:
        return self.plain


Cell: TypeAlias = str | Styled


@dataclass(frozen=True, slots=True)
class Column:
    """`of` returns the cell. `text`: a sentence, which may be wrapped. `optional`: left out where there is no room."""

    name: str
    of: Callable[[Any], Cell]
    right: bool = False
    optional: bool = False
    text: bool = False


@dataclass(frozen=True, slots=True)
class Page:
    """What lines are made for. `width` None: as long as they get, as for a pipe or `-o wide`."""

    width: int | None = None
    colours: bool = False

    def styled(self, text: str, style: str) -> str:
        return f"\x1b[{_SGR[style]}m{text}\x1b[0m" if self.colours and style and text else text


def table_lines(rows: Sequence[Any], columns: Sequence[Column], page: Page) -> Iterator[str]:
    cells = [[_clean(column.of(row)) for column in columns] for row in rows]
    widths = [max(_width(column.name), *(_width(row[at].plain) for row in cells)) for at, column in enumerate(columns)]
    telling = {at for row in cells for at, cell in enumerate(row) if cell.plain}
    shown, below = _fitting(columns, widths, telling, page.width)
    yield _GAP.join(
        _padded(page.styled(columns[at].name, "bold"), columns[at].name, widths[at], right=columns[at].right)
        for at in shown
    ).rstrip()
    for row in cells:
        wrapped = {at: _wrapped(row[at].plain, widths[at]) if columns[at].text else [row[at].plain] for at in shown}
        for line in range(max(map(len, wrapped.values()))):
            yield _GAP.join(
                _padded(page.styled(part, row[at].style), part, widths[at], right=columns[at].right)
                for at in shown
                for part in [wrapped[at][line] if line < len(wrapped[at]) else ""]
            ).rstrip()
        for at in below:
            if row[at].plain:
                text = f"{columns[at].name.lower()}: {row[at].plain}"
                yield from (f"{_INDENT}{part}" for part in _wrapped(text, (page.width or 0) - len(_INDENT)))


def fact_lines(facts: Sequence[tuple[str, Cell]], page: Page) -> Iterator[str]:
    """Facts without a value are left out. A value that has lines keeps them."""
    present = [(name, value if isinstance(value, Styled) else Styled(value)) for name, value in facts if str(value)]
    margin = max((len(name) for name, _ in present), default=0)
    for name, value in present:
        lines = printable_lines(value.plain).split("\n")
        if page.width is not None and len(lines) == 1:
            lines = _wrapped(lines[0], max(_LEAST_TEXT, page.width - margin - len(_GAP)))
        for number, line in enumerate(lines):
            heading = name if number == 0 else ""
            label = _padded(page.styled(heading, "bold"), heading, margin)
            yield f"{label}{_GAP}{page.styled(line, value.style)}".rstrip()


def _fitting(
    columns: Sequence[Column], widths: list[int], telling: Collection[int], room: int | None
) -> tuple[list[int], list[int]]:
    """The columns that are shown, with their widths narrowed, and those that go below each row. `telling`: those with some value."""
    shown = [at for at, column in enumerate(columns) if room is None or not column.text or at in telling]
    below = list[int]()
    while room is not None:
        over = sum(widths[at] for at in shown) + len(_GAP) * (len(shown) - 1) - room
        texts = [at for at in shown if columns[at].text]
        least = {at: max(_LEAST_TEXT, widths[at] // _MOST_LINES, len(columns[at].name)) for at in texts}
        spare = {at: max(0, widths[at] - least[at]) for at in texts}
        if over <= 0:
            break
        if sum(spare.values()) >= over:
            for at in sorted(texts, key=lambda at: spare[at], reverse=True):
                taken = min(spare[at], over)
                widths[at] -= taken
                over -= taken
            break
        optional = next((at for at in reversed(shown) if columns[at].optional), None)
        if optional is not None:
            shown.remove(optional)
        elif texts:
            shown.remove(texts[-1])
            below.insert(0, texts[-1])
        else:
            break
    return shown, below


def _clean(cell: Cell) -> Styled:
    return Styled(printable(cell.plain), cell.style) if isinstance(cell, Styled) else Styled(printable(cell))


def _wrapped(text: str, width: int) -> list[str]:
    """At spaces: a word is never cut, so that what is copied is whole."""
    return wrap(text, max(width, 1), break_long_words=False, break_on_hyphens=False) or [""]


def _padded(shown: str, plain: str, width: int, *, right: bool = False) -> str:
    space = " " * max(0, width - _width(plain))
    return f"{space}{shown}" if right else f"{shown}{space}"


def _width(text: str) -> int:
    """In cells of a terminal: letters of East Asia take two."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(each) else 2 if unicodedata.east_asian_width(each) in "WF" else 1 for each in text
    )
