r"""`TablePattern`: a pattern of table names, of two `Glob`s. `PatternList`: what a list of patterns means.

    shop.orders      that table            *   any characters, dots included, or none
    shop.*           a database            ?   one character
    !shop.tmp_*      not these             \   before * ? ! \ : the character itself

The first dot separates database and collection. The order of a list matters: the last pattern that matches a name decides, so
`["shop.*", "!shop.tmp_*", "shop.tmp_keep"]` matches `shop.orders` and `shop.tmp_keep`, but not `shop.tmp_1`.

Matching takes time in proportion to the name, as often as the part is long at worst, whatever wildcards there are: who may create
collections at the source chooses the names. A backtracking regular expression takes minutes for `*_*_*_*_*_tmp` and 230 times `_`.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema

from changefeed.config.options import Mistake, parsed, shown
from changefeed.table import SYSTEM_DATABASES, TableName

TOKEN = re.compile(r"\\(?P<escaped>[*?!\\])|(?P<wildcard>[*?])|(?P<stray>\\)|(?P<literal>.)", re.DOTALL)


class PatternToken(NamedTuple):
    """One element of a part: a character, or a wildcard."""

    char: str
    wildcard: bool = False

    @property
    def any_text(self) -> bool:
        return self.wildcard and self.char == "*"


def tokens(part: str) -> tuple[PatternToken, ...]:
    return tuple(
        PatternToken(found["wildcard"], wildcard=True)
        if found["wildcard"]
        else PatternToken(found["escaped"] or found["literal"])
        for found in TOKEN.finditer(part)
    )


class Glob:
    """`before` and `after` are the texts up to the first wildcard and from the last one on. Without wildcards, `before` is all."""

    def __init__(self, part: str) -> None:
        found = tokens(part)
        wild = [number for number, token in enumerate(found) if token.wildcard]
        self._part = part
        self.literal = not wild
        first, last = (wild[0], wild[-1] + 1) if wild else (len(found), len(found))
        self.before, self.after = _text(found[:first]), _text(found[last:])
        self._least = first + len(found) - last
        self.one_star = len(wild) == 1 and found[first].any_text

    def matches(self, name: str) -> bool:
        if self.literal:
            return name == self.before
        if len(name) < self._least or not (name.startswith(self.before) and name.endswith(self.after)):
            return False
        return self.one_star or self._expression.match(name) is not None

    @cached_property
    def _expression(self) -> re.Pattern[str]:
        """Each text between two `*` is sought once, from where the one before it ended: its first place leaves most to those after it.

        The group is atomic, so that no other place is tried. The end is `(?![\\s\\S])`, since `$` also matches before a final newline.
        """
        first, *others = _between_stars(self._part)
        middle = "".join(f"(?>.*?{text})" for text in others[:-1] if text)
        last = f".*{others[-1]}" if others else ""
        return re.compile(f"{first}{middle}{last}(?![\\s\\S])", re.DOTALL)


def _between_stars(part: str) -> Iterator[str]:
    text = ""
    for token in tokens(part):
        if token.any_text:
            yield text
            text = ""
        else:
            text += "." if token.wildcard else re.escape(token.char)
    yield text


def _text(found: tuple[PatternToken, ...]) -> str:
    return "".join(token.char for token in found)


@lru_cache(maxsize=16_384)
def glob(part: str) -> Glob:
    return Glob(part)


def literal(part: str) -> str | None:
    """The only name that this part of a pattern matches. None if the part has wildcards."""
    found = glob(part)
    return found.before if found.literal else None


def around_star(part: str) -> tuple[str, str] | None:
    """The texts before and after the part's only wildcard, a `*`. None if the part has another form."""
    found = glob(part)
    return (found.before, found.after) if found.one_star else None


def escaped(name: str) -> str:
    """The part that matches only this name."""
    return re.sub(r"[*?!\\]", r"\\\g<0>", name)


def part_covers(wide: str, narrow: str) -> bool:
    """Whether `wide` matches every name that `narrow` matches.

    It is tested on two names: the shortest one, and one full of a character that only wildcards match, with more of them for each `*` than
    `wide` has `?`.
    """
    stars = "\1" * (wide.count("?") + 1)
    return all(glob(wide).matches(_example(narrow, star)) for star in ("", stars))


def _example(part: str, star: str) -> str:
    return "".join((star if token.any_text else "\1") if token.wildcard else token.char for token in tokens(part))


HINT = "write database.collection with wildcards * and ?, for example shop.* or !shop.tmp_*"

_LONGEST = 1000
"""Names of tables have 255 bytes at most, and a pattern may escape each of them."""


@dataclass(frozen=True, slots=True)
class TablePattern:
    """`db` and `coll` as written, without the `!`."""

    db: str
    coll: str
    negated: bool = False

    @classmethod
    def parse(cls, text: object) -> TablePattern:
        if not isinstance(text, str):
            raise Mistake(f"found {shown(text)}; {HINT}")
        negated = text.startswith("!")
        db, _, coll = text.removeprefix("!").partition(".")
        if not db or not coll or "\0" in text:
            raise Mistake(f"found {shown(text)}; {HINT}")
        if len(text) > _LONGEST:
            raise Mistake(
                f"found {shown(text)} with {len(text):,} characters; no name is so long, write at most {_LONGEST:,}"
            )
        if re.search(r'[/ "$]', db):
            raise Mistake(f'found {shown(text)}; a database name holds no space and none of / \\ . " $')
        for part in (db, coll):
            if any(token["stray"] for token in TOKEN.finditer(part)):
                raise Mistake(f"found {shown(text)}; a backslash is allowed only before * ? ! or another backslash")
        if literal(db) in SYSTEM_DATABASES or re.match(r"system\.", coll):
            raise Mistake(
                f"found {shown(text)}; the server's own databases and system.* are never replicated, leave it out"
            )
        return cls(db, coll, negated)

    def matches(self, name: TableName) -> bool:
        return self.matches_database(name.db) and glob(self.coll).matches(name.coll)

    def matches_database(self, db: str) -> bool:
        return glob(self.db).matches(db)

    @property
    def whole_database(self) -> bool:
        return self.coll == "*"

    def __str__(self) -> str:
        return f"{'!' if self.negated else ''}{self.db}.{self.coll}"

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return parsed(cls, str)


EVERYTHING = TablePattern("*", "*")


def covers(wide: TablePattern, narrow: TablePattern) -> bool:
    """Whether `wide` matches every name that `narrow` matches."""
    return part_covers(wide.db, narrow.db) and part_covers(wide.coll, narrow.coll)


_END = "\0"
"""No name holds it."""
_FEW = 4
"""So many are compared sooner than sought."""


class PatternList(tuple[TablePattern, ...]):  # noqa: SLOT001 - slots would leave no room for the index
    """The patterns of a list, and which of them a name may be matched by.

    A list may have thousands of patterns, and is asked for each table of thousands. So patterns are found by the text with which all their names
    begin: a name is compared only with those that begin as it does.

        shop.orders     shop.orders and its end          crm_*.people    crm_
        shop.tmp_*      shop.tmp_                        *.x             (nothing: every name is compared)

    It makes its index when it is first asked. The index is not sent to other processes.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return PatternList, (tuple(self),)

    @staticmethod
    def of(patterns: tuple[TablePattern, ...]) -> PatternList:
        """The same object, if it is a list of patterns already."""
        return patterns if isinstance(patterns, PatternList) else PatternList(patterns)

    def means(self, name: TableName) -> bool:
        """Whether the list matches this table: the last pattern that matches it decides."""
        if len(self) <= _FEW:
            return next((not pattern.negated for pattern in reversed(self) if pattern.matches(name)), False)
        last = max((number for number in self.like(name) if self[number].matches(name)), default=None)
        return last is not None and not self[last].negated

    def first(self, name: TableName) -> int | None:
        """The number of the first pattern that matches."""
        return min((number for number in self.like(name) if self[number].matches(name)), default=None)

    def like(self, name: TableName) -> Iterator[int]:
        """The numbers of all patterns that may match the name, in no order."""
        return self._within(f"{name}{_END}")

    def wider(self, narrow: TablePattern) -> Iterator[int]:
        """The numbers of all patterns that may cover it, in no order."""
        return self._within(_beginning(narrow))

    def near(self, other: TablePattern) -> list[int]:
        """The numbers, in order, of all patterns that may have a name in common with it."""
        text, (by_text, _, texts) = _beginning(other), self._index
        found = set(self._within(text))
        for longer in texts[bisect_left(texts, text) :]:
            if not longer.startswith(text):
                break
            found.update(by_text[longer])
        return sorted(found)

    def _within(self, text: str) -> Iterator[int]:
        by_text, lengths, _ = self._index
        for length in lengths:
            if length > len(text):
                return
            yield from by_text.get(text[:length], ())

    @cached_property
    def _index(self) -> tuple[dict[str, list[int]], list[int], list[str]]:
        """The numbers by the beginning of the patterns; the lengths of these beginnings; and these in order."""
        by_text: dict[str, list[int]] = defaultdict(list)
        for number, pattern in enumerate(self):
            by_text[_beginning(pattern)].append(number)
        return dict(by_text), sorted({len(text) for text in by_text}), sorted(by_text)


def _beginning(pattern: TablePattern) -> str:
    """The text with which each name begins that the pattern matches, with the name's end if it is known."""
    db, coll = glob(pattern.db), glob(pattern.coll)
    if not db.literal:
        return db.before
    return f"{db.before}.{coll.before}{_END if coll.literal else ''}"
