r"""`RegularExpression`: a `$regex` that takes time in proportion to the text, with the result of MongoDB's own.

The server's engine (PCRE) and Python's `re` go back and try again: `^(a+)+$` against 44 a's and a b takes years. RE2 reads a text once. What both
understand alike is taken as it is written, but for three forms:

    $     without m    also true before a last newline: `\n?\z`, so nothing may follow it
    \s                 has the vertical tab
    \w    with i       ASCII's only, so the option is off there: RE2 would find the Kelvin sign

All else is refused: what no linear engine can have (look-around, back-references), what releases of PCRE understand differently (`{,3}`,
octal numbers, a hyphen beside a class), and forms that can be written otherwise (`\Q`, `\v`, the option x).

A text that is no UTF-8 matches nothing, as at the server. On a text that takes it too many steps the server gives up, and says that it does not
match. This engine does not give up.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import re2

OPTIONS = ("i", "m", "s")

_CHARACTER = r"\\x\{[0-9A-Fa-f]{1,6}\}|\\x[0-9A-Fa-f]{2}|\\[tnrfa]|\\[!-/:-@\[-`{-~ ]"
_CATEGORY = r"\\[pP]\{[LMNPSZ][a-z]?\}|\\[pP][LMNPSZ]"
_IN_SET = rf"(?:{_CHARACTER}|\[(?![:.=])|[^\\\[\]-])"
_CLASS_IN_SET = rf"(?:\\[dDwWsS]|\[:\^?[a-z]+:\]|{_CATEGORY})"
_TOKEN = re.compile(
    rf"""(?P<set>\[\^?(?:\](?!-))?-?(?:(?:{_IN_SET}(?:-{_IN_SET})?|{_CLASS_IN_SET})(?!-[^\]]))*-?\])
    |(?P<times>(?:[*+?]|\{{\d{{1,5}}(?:,\d{{0,5}})?\}})\??)
    |(?P<opens>\((?:\?(?::|P?<[A-Za-z_]\w*>)|(?![?*])))
    |(?P<ends>\$)
    |(?P<place>\^|\\[Abz])
    |(?P<or>\|)
    |(?P<closes>\))
    |(?P<one>\\[dDwWsS]|{_CATEGORY}|{_CHARACTER}|\{{(?![\d,\s]*\}})|[^\\^$.|?*+()\[{{]|\.)""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_OPTIONAL = re.compile(r"[*?]|\{0")
_FIRST_OPTIONS = re.compile(r"\(\?([ims]+)\)")
_SPACES = r"\t\n\v\f\r "
_NO_SPACES = r"\x{0}-\x{8}\x{e}-\x{1f}\x{21}-\x{10ffff}"
_LETTERS_IN_SET = re.compile(rf"\\[wW]|\[:|{_CATEGORY}")
_WITHOUT_CASE = re.compile(
    r"\[\^?-?(?:\\[wWdDsS]|\[:\^?(?!lower|upper)[a-z]+:\]|[0-9]-[0-9]|(?:\\[!-/:-@\[-`{-~ ]|[!-,.-@_~ ])(?!-[^\]]))*-?\]"
)
"""A set whose members but for classes are no letters, so that only classes have a case."""
_INSTEAD = {
    "(": "a look-ahead, a look-behind or a group of another kind than (a), (?:a) and (?<name>a); write a condition of its own instead, for example "
    '{$not: {$regex: "^tmp_"}}, or two of them in $and; options such as (?i) stand first, or in $options',
    "[": "a set in a form that is not supported; write ranges such as a-z, classes such as \\d or [:alpha:], a hyphen last, and \\] \\[ \\\\",
    "\\": "an escape that is not supported, such as a back-reference or an octal number; write the character, \\x and two digits, or a set such as "
    "[a-z]",
    "{": "a { that is not like {2}, {2,} or {2,5}; write the character as \\{",
}


class Unsupported(ValueError):
    """What was found, and what to write instead."""


@dataclass(frozen=True, slots=True)
class RegularExpression:
    pattern: str
    options: str
    _program: Any = field(repr=False, compare=False)

    @classmethod
    def parse(cls, pattern: str, options: str = "") -> RegularExpression:
        """Raises `Unsupported`."""
        settings = re2.Options()
        settings.log_errors, settings.never_capture = False, True
        first = _FIRST_OPTIONS.match(pattern)
        letters = {*options, *(first[1] if first else "")}
        text = "".join(_for_re2(pattern, first.end() if first else 0, letters))
        flags = f"(?{''.join(sorted(letters))})" if letters else ""
        try:
            return cls(pattern, options, re2.compile(f"{flags}{text}".encode(), settings))
        except re2.error as error:
            reason = error.args[0].decode() if error.args else "no reason given"
            raise Unsupported(f"{reason}; repeat at most 1000 times, also inside another repetition") from None

    def __reduce__(self) -> tuple[object, ...]:
        return RegularExpression.parse, (self.pattern, self.options)

    def matches(self, text: str) -> bool:
        try:
            return self._program.search(text.encode()) is not None
        except UnicodeEncodeError:  # a text of the source that is no UTF-8
            return False


def _for_re2(pattern: str, at: int, options: set[str]) -> Iterator[str]:
    """The elements from `at` on, as RE2 has to read them."""
    before, depth = "", 0
    while at < len(pattern):
        found = _TOKEN.match(pattern, at)
        if found is None or pattern[at] == "\0":
            what = _INSTEAD.get(pattern[at], "a NUL character; write it as \\x00")
            raise _refused(what, at)
        kind, text, begun, at = str(found.lastgroup), found[0], at, found.end()
        depth += (kind == "opens") - (kind == "closes")
        if kind == "times" and before not in ("one", "set", "closes"):
            raise _refused(
                f"a repetition ({text}) that repeats no character, set or group; write it as \\{text}", begun
            )
        if before == "^" and (kind not in ("one", "set") or _OPTIONAL.match(pattern, at)):
            raise _refused(
                "^ with the option m before something else than a character; write what begins the line", begun
            )
        before = "^" if text == "^" and "m" in options else kind
        match kind:
            case "ends":
                yield text if "m" in options else _last(pattern, at, depth)
            case "opens":
                yield "(?:"
            case "set":
                yield _set(text, begun, any_case="i" in options)
            case "one":
                yield _one(text, begun, any_case="i" in options)
            case _:
                yield text
    if before == "^":
        raise _refused("^ with the option m at the end; write what begins the line", at - 1)


def _last(pattern: str, at: int, depth: int) -> str:
    rest = pattern[at:].lstrip(")")
    if rest and (depth or not pattern.startswith("|", at)):
        raise _refused("$ in the middle; write it where the expression ends, or write the newline as \\n", at - 1)
    return r"\n?\z"


def _one(text: str, at: int, *, any_case: bool) -> str:
    match text:
        case "{":
            return r"\{"
        case r"\s":
            return f"[{_SPACES}]"
        case r"\S":
            return f"[^{_SPACES}]"
        case r"\w" | r"\W" if any_case:
            return f"(?-i:{text})"
    if any_case and text.startswith((r"\p", r"\P")):
        raise _refused(f"{text} with the option i; write a set such as [a-zäöü]", at)
    return text


def _set(text: str, at: int, *, any_case: bool) -> str:
    spaced = re.sub(r"\\(.)", lambda found: {"s": _SPACES, "S": _NO_SPACES}.get(found[1], found[0]), text)
    if not any_case or not _LETTERS_IN_SET.search(text):
        return spaced
    if _WITHOUT_CASE.fullmatch(text) is None:
        raise _refused(
            "a set with the option i that has letters and a class that has letters; write two sets: (?:[äö]|\\w)", at
        )
    return f"(?-i:{spaced})"


def _refused(what: str, at: int) -> Unsupported:
    found, _, instead = what.partition("; ")
    return Unsupported(f"{found} (at character {at + 1}); {instead}")
