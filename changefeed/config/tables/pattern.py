r"""`TablePattern`: a pattern of table names, and the meaning of a list of patterns.

    shop.orders      that table            *   any characters, dots included, or none
    shop.*           a database            ?   one character
    !shop.tmp_*      not these             \   before * ? ! \ : the character itself

The first dot separates database and collection. The order of a list matters: the last pattern that matches a name decides, so
`["shop.*", "!shop.tmp_*", "shop.tmp_keep"]` matches `shop.orders` and `shop.tmp_keep`, but not `shop.tmp_1`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from changefeed.config.wording import Mistake, shown
from changefeed.table import SYSTEM_DATABASES, TableName

HINT = "write database.collection with wildcards * and ?, for example shop.* or !shop.tmp_*"

_TOKEN = re.compile(r"\\(?P<escaped>[*?!\\])|(?P<wildcard>[*?])|(?P<stray>\\)|(?P<literal>.)", re.DOTALL)
_WILDCARDS = {"*": ".*", "?": "."}


@dataclass(frozen=True, slots=True)
class TablePattern:
    """`db` and `coll` as written, without the `!`."""

    db: str
    coll: str
    negated: bool = False

    @classmethod
    def parse(cls, text: str) -> TablePattern:
        negated = text.startswith("!")
        db, _, coll = text.removeprefix("!").partition(".")
        if not db or not coll or "\0" in text:
            raise Mistake(f"found {shown(text)}; {HINT}")
        if re.search(r'[/ "$]', db):
            raise Mistake(f'found {shown(text)}; a database name holds no space and none of / \\ . " $')
        for part in (db, coll):
            if any(token["stray"] for token in _TOKEN.finditer(part)):
                raise Mistake(f"found {shown(text)}; a backslash is allowed only before * ? ! or another backslash")
        if literal(db) in SYSTEM_DATABASES or re.match(r"system\.", coll):
            raise Mistake(
                f"found {shown(text)}; the server's own databases and system.* are never replicated, leave it out"
            )
        return cls(db, coll, negated)

    def matches(self, name: TableName) -> bool:
        return self.matches_database(name.db) and compiled(self.coll).match(name.coll) is not None

    def matches_database(self, db: str) -> bool:
        return compiled(self.db).match(db) is not None

    @property
    def whole_database(self) -> bool:
        return self.coll == "*"

    def __str__(self) -> str:
        return f"{'!' if self.negated else ''}{self.db}.{self.coll}"

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        def validate(value: object) -> TablePattern:
            if isinstance(value, TablePattern):
                return value
            if not isinstance(value, str):
                raise Mistake(f"found {shown(value)}; {HINT}")
            return cls.parse(value)

        return core_schema.no_info_plain_validator_function(
            validate, serialization=core_schema.plain_serializer_function_ser_schema(str)
        )


EVERYTHING = TablePattern("*", "*")


def any_matches(patterns: Sequence[TablePattern], name: TableName) -> bool:
    """Whether the list matches this table."""
    return next((not pattern.negated for pattern in reversed(patterns) if pattern.matches(name)), False)


def literal(part: str) -> str | None:
    """The only name that this part of a pattern matches. None if the part has wildcards."""
    tokens = list(_TOKEN.finditer(part))
    if any(token["wildcard"] for token in tokens):
        return None
    return "".join(token["escaped"] or token["literal"] for token in tokens)


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
        for found in _TOKEN.finditer(part)
    )


def escaped(name: str) -> str:
    """The part that matches only this name."""
    return re.sub(r"[*?!\\]", r"\\\g<0>", name)


def regex(part: str) -> str:
    r"""The part as a regular expression with the same meaning in Python and in the server's PCRE, both with the `s` option.

    It ends in `(?![\s\S])` since `$` also matches before a final newline, and `\z` and `\Z` differ between the two.
    """
    pieces = (
        _WILDCARDS.get(t["wildcard"] or "") or re.escape(t["escaped"] or t["literal"]) for t in _TOKEN.finditer(part)
    )
    return f"^{''.join(pieces)}(?![\\s\\S])"


@lru_cache(maxsize=4096)
def compiled(part: str) -> re.Pattern[str]:
    return re.compile(regex(part), re.DOTALL)


def around_star(part: str) -> tuple[str, str] | None:
    """The texts before and after the part's only wildcard, a `*`. None if the part has another form."""
    tokens = list(_TOKEN.finditer(part))
    wildcards = [number for number, token in enumerate(tokens) if token["wildcard"]]
    if len(wildcards) != 1 or tokens[wildcards[0]]["wildcard"] != "*":
        return None
    texts = [token["escaped"] or token["literal"] or "" for token in tokens]
    return "".join(texts[: wildcards[0]]), "".join(texts[wildcards[0] + 1 :])


def covers(wide: TablePattern, narrow: TablePattern) -> bool:
    """Whether `wide` matches every name that `narrow` matches.

    It is tested on two names: one full of characters that only a wildcard matches, and the shortest one.
    """
    return _part_covers(wide.db, narrow.db) and _part_covers(wide.coll, narrow.coll)


def _part_covers(wide: str, narrow: str) -> bool:
    def example(star: str) -> str:
        return "".join(
            {"*": star, "?": "\1"}.get(t["wildcard"] or "", t["escaped"] or t["literal"] or "")
            for t in _TOKEN.finditer(narrow)
        )

    return all(compiled(wide).match(example(star)) for star in ("", "\1" * (len(wide) + 1)))
