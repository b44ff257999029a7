"""`CharacterSet`: which characters an element of a regular expression matches, as PCRE understands it, written for RE2. Pure.

Escapes and POSIX names mean ASCII, with `i` too: RE2 would find the Kelvin sign in `(?i)\\w`. So where `i` meets one of them, the other members get
their cases here, and RE2 is not told of `i`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

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
CATEGORIES = frozenset(
    [
        "L",
        "Lu",
        "Ll",
        "Lt",
        "Lm",
        "Lo",
        "M",
        "Mn",
        "Mc",
        "Me",
        "N",
        "Nd",
        "Nl",
        "No",
        "P",
        "Pc",
        "Pd",
        "Ps",
        "Pe",
        "Pi",
        "Pf",
        "Po",
        "S",
        "Sm",
        "Sc",
        "Sk",
        "So",
        "Z",
        "Zs",
        "Zl",
        "Zp",
    ]
)
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
