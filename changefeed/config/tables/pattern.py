r"""`TablePattern`: a pattern of table names. `PatternList` says what a list of patterns means.

    shop.orders      that table            *   any characters, dots included, or none
    shop.*           a database            ?   one character
    !shop.tmp_*      not these             \   before * ? ! \ : the character itself

The first dot separates database and collection. The order of a list matters: the last pattern that matches a name decides, so
`["shop.*", "!shop.tmp_*", "shop.tmp_keep"]` matches `shop.orders` and `shop.tmp_keep`, but not `shop.tmp_1`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from changefeed.config.tables.glob import TOKEN, glob, literal, part_covers
from changefeed.config.wording import Mistake, shown
from changefeed.table import SYSTEM_DATABASES, TableName

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
    def parse(cls, text: str) -> TablePattern:
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


def covers(wide: TablePattern, narrow: TablePattern) -> bool:
    """Whether `wide` matches every name that `narrow` matches."""
    return part_covers(wide.db, narrow.db) and part_covers(wide.coll, narrow.coll)
