r"""`RegularExpression`: a `$regex` that takes time in proportion to the text, with the result of MongoDB's own.

The server's engine (PCRE) and Python's `re` go back and try again: `^(a+)+$` against 44 a's and a b takes years. RE2 reads a text once. Where it
means something else than PCRE, the expression is rewritten; what it cannot express, and what releases of PCRE understand differently, is refused.

    $  without m        also true before a last newline: `\n?\z`, so nothing may follow it
    ^  with m           not true behind a last newline: something has to follow it
    \s, \w, [:alpha:]   ASCII's, with i too; `\s` has the vertical tab
    (a), (?<name>a)     match, and capture nothing

A text that is no UTF-8 matches nothing, as at the server. On a text that takes it too many steps the server gives up, and says that it does not
match. This engine does not give up.

Refused is what no linear engine can have (look-around, back-references, possessive and atomic groups, recursion), what releases of PCRE understand
differently (`{,3}`, octal numbers), and `\B`, which RE2 finds inside a character.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple, TypeAlias

import re2

from changefeed.config.tables.character_set import (
    ESCAPES,
    LAST,
    CharacterSet,
    Cursor,
    Unsupported,
    complement,
    read_set,
)

OPTIONS = ("i", "m", "s", "x")


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
        text = text_of(read(pattern, frozenset(options)))
        try:
            return cls(pattern, options, re2.compile(text.encode(), settings))
        except re2.error as error:
            reason = error.args[0].decode() if error.args else "no reason given"
            raise Unsupported(
                f"{reason}; repeat at most 1000 times, also where one repetition is inside another"
            ) from None

    def __reduce__(self) -> tuple[object, ...]:
        return RegularExpression.parse, (self.pattern, self.options)

    def matches(self, text: str) -> bool:
        try:
            return self._program.search(text.encode()) is not None
        except UnicodeEncodeError:  # a text of the source that is no UTF-8
            return False


class After(NamedTuple):
    """What follows an element, which decides what an assertion becomes. `end`: the expression ends here. `more`: at least one character has to follow.

    `$` is also true before a last newline, which RE2 cannot look for, only read: so nothing may follow it. With `m`, `^` is not true behind a last
    newline: RE2 says so too only where something has to follow.
    """

    end: bool
    more: bool


class Assertion(Enum):
    """A place in a text, by the form that RE2 has for it."""

    START = r"\A"
    LINE_START = "(?m:^)"
    LAST_LINE_END = r"\n?\z"
    LINE_END = "(?m:$)"
    END = r"\z"
    WORD_EDGE = r"\b"

    @classmethod
    def of(cls, char: str, *, lines: bool) -> Assertion | None:
        """What `^` and `$` mean, with the option m or without."""
        match char:
            case "^":
                return cls.LINE_START if lines else cls.START
            case "$":
                return cls.LINE_END if lines else cls.LAST_LINE_END
            case _:
                return None

    @property
    def more(self) -> bool:
        return False

    def text(self, after: After) -> str:
        if self is Assertion.LAST_LINE_END and not after.end:
            raise Unsupported(r"$ or \Z in the middle; write it where the expression ends, or write the newline as \n")
        if self is Assertion.LINE_START and not after.more:
            raise Unsupported(
                "^ with the option m where nothing has to follow; write what follows so that it is at least one character"
            )
        return self.value


@dataclass(frozen=True, slots=True)
class One:
    """One character."""

    of: CharacterSet

    @property
    def more(self) -> bool:
        return True

    def text(self, _: After) -> str:
        return self.of.text()


@dataclass(frozen=True, slots=True)
class Repeat:
    part: Node
    times: str
    least: int

    @property
    def more(self) -> bool:
        return self.least > 0 and self.part.more

    def text(self, _: After) -> str:
        return f"(?:{self.part.text(After(end=False, more=False))}){self.times}"


@dataclass(frozen=True, slots=True)
class Choice:
    branches: Sequence[Sequence[Node]]

    @property
    def more(self) -> bool:
        return all(any(part.more for part in branch) for branch in self.branches)

    def text(self, after: After) -> str:
        return f"(?:{'|'.join(_sequence(branch, after) for branch in self.branches)})"


Node: TypeAlias = Assertion | One | Repeat | Choice


def _sequence(parts: Sequence[Node], after: After) -> str:
    texts = []
    for part in reversed(parts):
        texts.append(part.text(after))
        after = After(end=False, more=after.more or part.more)
    return "".join(reversed(texts))


def text_of(found: Choice) -> str:
    """The whole expression for RE2."""
    return found.text(After(end=True, more=False))


_DEEPEST = 100
_NOT_A_NEWLINE = complement(((10, 10),))
_SPACES = " \t\n\v\f\r"
_QUANTIFIER = re.compile(r"[*+?]|\{(\d{1,5})(,(\d{0,5}))?\}")
_SIMILAR = re.compile(r"[\d,\s]*\}")
_NAMED = re.compile(r"\?(?:P?<[A-Za-z_]\w*>|'[A-Za-z_]\w*')", re.ASCII)
_OPTIONS = re.compile(r"\?([imsx]*)(?:-([imsx]*))?([:)])")
_LOOKS = ("?=", "?!", "?<=", "?<!")
_INSTEAD = 'write a condition of its own instead, for example {$not: {$regex: "^tmp_"}}, or two of them in $and'
_PLACES = {"A": Assertion.START, "z": Assertion.END, "Z": Assertion.LAST_LINE_END, "b": Assertion.WORD_EDGE}


def read(pattern: str, options: frozenset[str]) -> Choice:
    """Raises `Unsupported`."""
    cursor = Cursor(pattern)
    if "\0" in pattern:
        raise cursor.refused("a NUL character", "write it as \\x00")
    found = _Reader(cursor, options).choice(0)
    if not cursor.ended:
        raise cursor.refused("a ) that closes nothing", "write it as \\)")
    return found


class _Reader:
    def __init__(self, cursor: Cursor, options: frozenset[str]) -> None:
        self._cursor = cursor
        self._options = options
        self._quoted = False

    def choice(self, depth: int) -> Choice:
        """As far as the end or a closing bracket. Options that are set inside end there."""
        if depth > _DEEPEST:
            raise self._cursor.refused(f"groups in each other, more than {_DEEPEST} deep", "write fewer")
        options, branches = self._options, [self._branch(depth)]
        while self._cursor.take("|"):
            branches.append(self._branch(depth))
        self._options = options
        return Choice(branches)

    def _branch(self, depth: int) -> list[Node]:
        parts: list[Node] = []
        while True:
            self._skip()
            if self._cursor.ended or (not self._quoted and self._cursor.char in "|)"):
                return parts
            part = self._part(depth)
            if part is not None:
                parts.append(self._repeated(part))

    def _skip(self) -> None:
        r"""Passes `\Q` and `\E`, and with `x` white space and comments."""
        cursor = self._cursor
        while True:
            free = not self._quoted and "x" in self._options and not cursor.ended
            if cursor.take("\\E"):
                self._quoted = False
            elif not self._quoted and cursor.take("\\Q"):
                self._quoted = True
            elif free and cursor.char in _SPACES:
                cursor.next()
            elif free and cursor.take("#"):
                cursor.at = (cursor.text + "\n").find("\n", cursor.at)
            else:
                return

    def _part(self, depth: int) -> Node | None:
        """None: it only sets options."""
        cursor = self._cursor
        char = cursor.next()
        if self._quoted:
            return self._literal(ord(char))
        if char == "(":
            return self._group(depth)
        return Assertion.of(char, lines="m" in self._options) or self._one(char)

    def _one(self, char: str) -> Node:
        cursor = self._cursor
        match char:
            case "[":
                return One(read_set(cursor, any_case="i" in self._options))
            case ".":
                return One(CharacterSet(fixed=((0, LAST),) if "s" in self._options else _NOT_A_NEWLINE))
            case "\\":
                return self._escape()
            case "*" | "+" | "?":
                raise cursor.refused(f"a {char} that repeats nothing", f"write it as \\{char}")
            case "{" if _SIMILAR.match(cursor.text, cursor.at):
                raise cursor.refused("a { that repeats nothing, or is not like {2}, {2,} or {2,5}", "write it as \\{")
            case _:
                return self._literal(ord(char))

    def _group(self, depth: int) -> Node | None:
        cursor, outer = self._cursor, self._options
        if found := cursor.match(_OPTIONS):
            if len(set(found[1])) < len(found[1]):
                raise cursor.refused(f"({found[0]}", "write each option once")
            self._options = (self._options | set(found[1])) - set(found[2] or "")
            if found[3] == ")":
                return None
        elif not cursor.match(_NAMED):
            if cursor.text.startswith(_LOOKS, cursor.at):
                raise cursor.refused("a look-ahead or a look-behind", _INSTEAD)
            if cursor.char in ("?", "*"):
                raise cursor.refused(
                    f"a group that begins with {cursor.char}", "only (?: (?<name> and (?i) are supported"
                )
        begun, inner = cursor.at, self.choice(depth + 1)
        if not cursor.take(")"):
            cursor.at = begun
            raise cursor.refused("a ( that is never closed", "close it, or write it as \\(")
        self._options = outer
        return inner

    def _repeated(self, part: Node) -> Node:
        cursor = self._cursor
        self._skip()
        found = None if self._quoted else cursor.match(_QUANTIFIER)
        if found is None:
            return part
        if isinstance(part, Assertion):
            raise cursor.refused("an assertion that is repeated, such as ^*", "drop the repetition")
        least = 1 if found[0] == "+" else int(found[1] or 0)
        if found[3] and least > int(found[3]):
            raise cursor.refused(f"{found[0]}, which ends before it begins", "write the smaller number first")
        if cursor.take("+"):
            raise cursor.refused("a possessive repetition", "drop its second +, if it is there only to save time")
        lazy = cursor.take("?")
        self._skip()
        if not self._quoted and cursor.match(_QUANTIFIER):
            raise cursor.refused("two repetitions after each other", "put the first one in a group")
        return Repeat(part, found[0] + "?" * lazy, least)

    def _escape(self) -> Node:
        cursor = self._cursor
        char = cursor.next()
        if char in _PLACES:
            return _PLACES[char]
        if char == "N":
            return One(CharacterSet(fixed=_NOT_A_NEWLINE))
        if char in ("p", "P"):
            return One(CharacterSet(categories=(cursor.category(char, any_case="i" in self._options),)))
        if char in ESCAPES:
            return One(CharacterSet(fixed=ESCAPES[char]))
        return self._literal(cursor.escaped(char))

    def _literal(self, code: int) -> One:
        return One(CharacterSet(members=((code, code),), any_case="i" in self._options))
