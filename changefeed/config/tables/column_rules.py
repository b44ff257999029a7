"""`ColumnRule`: fields of some tables that are left out, masked or hashed on their way to the target.

columns:
  - tables: [shop.users]
    drop: [ssn, address.street]
    mask: {name: "***", phone: null}
    hash: [email]
    hash_key: ${file:/run/secrets/hash-key}
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Annotated, TypeAlias

from pydantic import Field, PlainValidator, StrictStr, field_validator, model_validator

from changefeed.config.options import Mistake, Options, each_once, shown
from changefeed.config.tables.filter import sensible_tables
from changefeed.config.tables.pattern import PatternList, TablePattern
from changefeed.documents.document import meet
from changefeed.table import TableName

_REFERENCE = re.compile(r"\$\{(env|file):[^{}]+\}")
_SMALLEST, _LARGEST = -(2**63), 2**63 - 1


def _path(value: object) -> str:
    hint = "write the path of a field, for example address.street"
    if not isinstance(value, str) or not all(value.split(".")):
        raise Mistake(f"found {shown(value)}; {hint}")
    steps = value.split(".")
    if steps[0] == "_id":
        raise Mistake(f"found {shown(value)}; _id says which row it is at the target, so it stays as it is")
    if any(step.isdigit() for step in steps):
        raise Mistake(f"found {shown(value)}; a path goes through all elements of an array, leave the number out")
    if any(step.startswith("$") for step in steps):
        raise Mistake(f"found {shown(value)}; {hint}")
    return value


def _masks(value: object) -> dict[str, Constant]:
    hint = 'write paths with a text, a number, true, false or null, for example {name: "***"}'
    if not isinstance(value, Mapping):
        raise Mistake(f"found {shown(value)}; {hint}")
    for path, constant in value.items():
        _path(path)
        if not isinstance(constant, str | bool | int | float | None):
            raise Mistake(f"found {shown(constant)} for {path}; {hint}")
        if isinstance(constant, int) and not _SMALLEST <= constant <= _LARGEST:
            raise Mistake(f"found a number for {path} that does not fit into 64 bits; write a smaller one")
    return dict(value)


Constant: TypeAlias = str | bool | int | float | None
ColumnPath: TypeAlias = Annotated[str, PlainValidator(_path)]
Masks: TypeAlias = Annotated[dict[str, Constant], PlainValidator(_masks)]


class ColumnRule(Options):
    """Every rule that matches a table applies. Of two rules for one field, the one that shows less of it."""

    tables: tuple[TablePattern, ...] = Field(description="write a list of table patterns, for example [shop.users]")
    drop: tuple[ColumnPath, ...] = Field((), description="write a list of paths, for example [ssn, address.street]")
    mask: Masks = Field(default_factory=dict)
    hash: tuple[ColumnPath, ...] = Field((), description="write a list of paths, for example [email]")
    hash_key: StrictStr | None = Field(
        None, description="write a reference such as ${env:HASH_KEY} or ${file:/run/secrets/hash-key}"
    )

    @field_validator("tables")
    @classmethod
    def _mean_some_table(cls, tables: tuple[TablePattern, ...]) -> tuple[TablePattern, ...]:
        return sensible_tables(tables)

    @field_validator("hash_key")
    @classmethod
    def _is_a_reference(cls, key: str | None) -> str | None:
        """The error does not repeat the value: it may be the key itself."""
        if key is not None and _REFERENCE.fullmatch(key) is None:
            raise Mistake(
                "found no reference; the key is not part of the configuration, write ${env:NAME} or ${file:/path}"
            )
        return key

    @model_validator(mode="after")
    def _names_each_field_once(self) -> ColumnRule:
        paths = each_once((*self.drop, *self.mask, *self.hash), "path")
        if not paths:
            raise Mistake("found a rule without fields; write drop, mask or hash")
        for one, other in pairwise(sorted(paths, key=lambda path: path.split("."))):
            if other.startswith(f"{one}."):
                raise Mistake(f"found {one} and {other}; the first contains the second, leave one out")
        if bool(self.hash) != (self.hash_key is not None):
            raise Mistake("found one of hash and hash_key; write both, or neither")
        return self

    def means(self, name: TableName) -> bool:
        return PatternList.of(self.tables).means(name)


def shown_otherwise(rules: Iterable[ColumnRule], fields: Iterable[str]) -> list[str]:
    """The paths of the rules at, above or below the fields."""
    wanted = list(fields)
    paths = (path for rule in rules for path in (*rule.drop, *rule.mask, *rule.hash))
    return [path for path in paths if any(meet(path, field) for field in wanted)]
