"""`read_set`: what stands between `[` and `]`. Pure.

Releases of PCRE differ on a hyphen beside a class or behind a range, so it is refused there.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from changefeed.config.tables.regex.character_set import ESCAPES, POSIX, CharacterSet, Ranges, complement, posix
from changefeed.config.tables.regex.cursor import Cursor

_BACKSPACE = 8
_POSIX = re.compile(r"\[:(\^?)([a-z]+):\]")
_CATEGORY_ESCAPES = ("p", "P")


class _Member(NamedTuple):
    """`char`, or one of the others."""

    char: int | None = None
    ranges: Ranges = ()
    category: str = ""


def read_set(cursor: Cursor, *, any_case: bool) -> CharacterSet:
    """Behind its `[`. A `]` that comes first is a member."""
    begun, negated = cursor.at, cursor.take("^")
    chars: list[tuple[int, int]] = []
    classes: list[_Member] = []
    first = True
    while first or not cursor.take("]"):
        if cursor.ended:
            cursor.at = begun
            raise cursor.refused("a [ that is never closed", "close it, or write it as \\[")
        first = False
        member = _member(cursor, any_case=any_case)
        if _hyphen(cursor):
            chars.append(_range(cursor, member, any_case=any_case))
        elif member.char is None:
            classes.append(member)
        else:
            chars.append((member.char, member.char))
    found = CharacterSet(
        members=tuple(chars),
        fixed=tuple(range_ for member in classes for range_ in member.ranges),
        categories=tuple(member.category for member in classes if member.category),
        negated=negated,
        any_case=any_case,
    )
    if found.mixed:
        raise cursor.refused(
            "a set with the option i that has a class such as \\w and letters beyond ASCII",
            "write two sets, for example (?:[äö]|\\w)",
        )
    return found


def _range(cursor: Cursor, member: _Member, *, any_case: bool) -> tuple[int, int]:
    cursor.take("-")
    last = _member(cursor, any_case=any_case)
    if member.char is None or last.char is None:
        raise cursor.refused("a hyphen beside a class", "write it as \\-")
    if last.char < member.char:
        raise cursor.refused("a range that ends before it begins", "write the lower character first")
    if _hyphen(cursor):
        raise cursor.refused("a hyphen behind a range", "write it as \\-")
    return member.char, last.char


def _hyphen(cursor: Cursor) -> bool:
    """One that makes a range."""
    return cursor.char == "-" and not cursor.text.startswith("-]", cursor.at)


def _member(cursor: Cursor, *, any_case: bool) -> _Member:
    if found := cursor.match(_POSIX):
        if found[2] not in POSIX:
            raise cursor.refused(f"[:{found[2]}:]", f"known are {', '.join(POSIX)}")
        ranges = posix(found[2], any_case=any_case)
        return _Member(ranges=complement(ranges) if found[1] else ranges)
    if cursor.text.startswith(("[:", "[.", "[="), cursor.at):
        raise cursor.refused("the beginning of a class such as [:alpha:]", "write the [ as \\[")
    char = cursor.next()
    if char != "\\":
        return _Member(char=ord(char))
    char = cursor.next()
    if char in ESCAPES:
        return _Member(ranges=ESCAPES[char])
    if char in _CATEGORY_ESCAPES:
        return _Member(category=cursor.category(char, any_case=any_case))
    return _Member(char=_BACKSPACE if char == "b" else cursor.escaped(char))
