"""`CharacterSet`: which characters an element of a regular expression matches, as PCRE understands it, written for RE2. `Cursor` reads it.

Escapes and POSIX names mean ASCII, with `i` too: RE2 would find the Kelvin sign in `(?i)\\w`. So where `i` meets one of them, the other members get
their cases here, and RE2 is not told of `i`. Releases of PCRE differ on a hyphen beside a class or behind a range, so it is refused there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

LAST = 0x10FFFF
Ranges: TypeAlias = tuple[tuple[int, int], ...]

_SIGNS_OF = {"k": 0x212A, "s": 0x017F}
"""What is the same letter without regard to case, beside ASCII's own."""
_ALPHA: Ranges = ((65, 90), (97, 122))
_WORD: Ranges = ((48, 57), (65, 90), (95, 95), (97, 122))
_SPACE: Ranges = ((9, 13), (32, 32))
_PUNCTUATION: Ranges = ((33, 47), (58, 64), (91, 96), (123, 126))

POSIX: dict[str, Ranges] = {
    "alnum": ((48, 57), *_ALPHA),
    "alpha": _ALPHA,
    "ascii": ((0, 127),),
    "blank": ((9, 9), (32, 32)),
    "cntrl": ((0, 31), (127, 127)),
    "digit": ((48, 57),),
    "graph": ((33, 126),),
    "lower": ((97, 122),),
    "print": ((32, 126),),
    "punct": _PUNCTUATION,
    "space": _SPACE,
    "upper": ((65, 90),),
    "word": _WORD,
    "xdigit": ((48, 57), (65, 70), (97, 102)),
}
CATEGORIES = frozenset({
    "L", "Lu", "Ll", "Lt", "Lm", "Lo", "M", "Mn", "Mc", "Me", "N", "Nd", "Nl", "No", "P", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po",
    "S", "Sm", "Sc", "Sk", "So", "Z", "Zs", "Zl", "Zp",
})  # fmt: skip
"""Unicode's general categories that all releases of PCRE and RE2 have."""


def complement(ranges: Iterable[tuple[int, int]]) -> Ranges:
    left, at = [], 0
    for low, high in sorted(ranges):
        if low > at:
            left.append((at, low - 1))
        at = max(at, high + 1)
    return (*left, (at, LAST)) if at <= LAST else tuple(left)


ESCAPES: dict[str, Ranges] = {
    "d": POSIX["digit"],
    "w": _WORD,
    "s": _SPACE,
    "D": complement(POSIX["digit"]),
    "W": complement(_WORD),
    "S": complement(_SPACE),
}


def posix(name: str, *, any_case: bool) -> Ranges:
    return _ALPHA if any_case and name in ("upper", "lower") else POSIX[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class CharacterSet:
    """`members` are affected by `any_case`, `fixed` and `categories` (`\\p{L}`) are not."""

    members: Ranges = ()
    fixed: Ranges = ()
    categories: tuple[str, ...] = ()
    negated: bool = False
    any_case: bool = False

    @property
    def mixed(self) -> bool:
        """Whether neither RE2 nor this module knows the cases of its members."""
        return self._split and any(high > 127 for _, high in self.members)

    def text(self) -> str:
        members = _both_cases(self.members) if self._split else self.members
        ranges = "".join(_written(low, high) for low, high in (*members, *self.fixed))
        written = f"[{'^' if self.negated else ''}{ranges}{''.join(self.categories)}]"
        return f"(?i:{written})" if self.any_case and not self._split else written

    @property
    def _split(self) -> bool:
        return self.any_case and bool(self.fixed or self.categories)


def _both_cases(members: Ranges) -> Ranges:
    letters = {chr(code) for low, high in members for code in range(low, high + 1) if chr(code).isalpha()}
    cases = {ord(case) for letter in letters for case in (letter.lower(), letter.upper())}
    signs = {sign for letter, sign in _SIGNS_OF.items() if {letter, letter.upper()} & letters}
    return (*members, *((code, code) for code in sorted(cases | signs)))


def _written(low: int, high: int) -> str:
    return f"\\x{{{low:x}}}" if low == high else f"\\x{{{low:x}}}-\\x{{{high:x}}}"


_CONTROLS = {"a": 7, "e": 27, "f": 12, "n": 10, "r": 13, "t": 9}
_HEXADECIMAL = re.compile(r"\{([0-9A-Fa-f]{1,6})\}|([0-9A-Fa-f]{2})")
_CATEGORY = re.compile(r"\{(\^?)([A-Za-z]+)\}|([A-Z])")


class Unsupported(ValueError):
    """What was found, and what to write instead."""


class Cursor:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    @property
    def ended(self) -> bool:
        return self.at >= len(self.text)

    @property
    def char(self) -> str:
        """The next one; empty at the end."""
        return self.text[self.at : self.at + 1]

    def next(self) -> str:
        char = self.char
        if not char:
            raise self.refused("an end where something has to follow", "complete it, or write a backslash as \\\\")
        self.at += 1
        return char

    def take(self, text: str) -> bool:
        found = self.text.startswith(text, self.at)
        self.at += len(text) if found else 0
        return found

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self.text, self.at)
        self.at = found.end() if found else self.at
        return found

    def refused(self, what: str, instead: str) -> Unsupported:
        return Unsupported(f"{what} (before character {self.at + 1}); {instead}")

    def escaped(self, char: str) -> int:
        """The character that stands behind a backslash, or for which it stands."""
        if char in _CONTROLS:
            return _CONTROLS[char]
        if char == "x" and (found := self.match(_HEXADECIMAL)):
            code = int(found[1] or found[2], 16)
            if code > LAST or 0xD800 <= code <= 0xDFFF:
                raise self.refused(f"\\x{found[0]}, which is no character", "write another number")
            return code
        if char.isdecimal():
            raise self.refused(
                "a back-reference or an octal number", "write a character as \\x and two digits, and no reference"
            )
        if char.isascii() and char.isalnum():
            raise self.refused(f"\\{char}", "write the characters, or a set such as [a-z]")
        return ord(char)

    def category(self, escape: str, *, any_case: bool) -> str:
        r"""What follows `\p` or `\P`, for RE2."""
        found = self.match(_CATEGORY)
        name = (found[2] or found[3]) if found else ""
        if found is None or name not in CATEGORIES:
            raise self.refused(f"\\{escape} without one of Unicode's general categories", "write for example \\p{Lu}")
        if any_case and name in ("Lu", "Ll", "Lt"):
            raise self.refused(f"\\{escape}{{{name}}} with the option i", "write \\p{L}")
        return f"\\{'P' if (escape == 'P') != bool(found[1]) else 'p'}{{{name}}}"


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
