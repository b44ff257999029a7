"""`printable`: names and messages as a terminal, or a log for people, may show them; `counted`: a number with its noun; `sized`; `shortened`; `named`: the first of
many. Pure.

A name of a collection may hold nearly everything: a line break that makes a second line of a table, an escape sequence that the terminal obeys, letters that
turn the direction of writing. All of it is shown as JSON escapes it, so a line of JSON stays one. Lists as JSON and YAML are exact, they have escapes of their own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable


def printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in text)


def printable_lines(text: str) -> str:
    """Of a text that has lines on purpose."""
    return "\n".join(map(printable, text.split("\n")))


def counted(count: int, what: str) -> str:
    """`1 table`, `2,000 tables`."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def sized(count: float) -> str:
    """Bytes in decimal units, as the servers' tools show sizes: `999 B`, `1.5 GB`."""
    units = iter(("B", "kB", "MB", "GB", "TB"))
    unit = next(units)
    while count >= 1000 and (larger := next(units, None)):
        count, unit = count / 1000, larger
    return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"


def shortened(text: str, most: int) -> str:
    """In characters."""
    more = len(text) - most
    return text if more <= 0 else f"{text[:most]} .. ({more:,} more characters)"


def named(names: Iterable[object], most: int = 5) -> str:
    """`a, b, c and 2,000 more`."""
    found = [str(name) for name in names]
    more = f" and {len(found) - most:,} more" if len(found) > most else ""
    return ", ".join(found[:most]) + more
