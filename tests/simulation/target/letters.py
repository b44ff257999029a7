"""`Letters`: the dead-letter collection of a simulated target, by the few commands that the product sends it."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import bson
from bson import ObjectId
from bson.raw_bson import RawBSONDocument

from changefeed.table import TableId, TableName
from sink.mongodb.letters.dead_letter import Kept, id_of, request_id, row_of
from tests.simulation.source.row_keys import as_key
from tests.simulation.target.majority import Majority

LETTERS = TableName("operations", "letters")
_BEGAN = datetime(2026, 11, 21, tzinfo=UTC)
_COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$in": lambda value, wanted: value in wanted,
}

Letter = dict[str, Any]


class Letters:
    def __init__(self, majority: Majority) -> None:
        self._majority = majority
        self._kept: dict[str, Letter] = {}
        self.ever: set[tuple[TableId, Any]] = set()
        """The rows that have had a letter, by table and key."""

    @property
    def open(self) -> set[tuple[TableId, Any]]:
        """The rows that have one."""
        return {_row(letter) for letter in self._kept.values() if "event" in letter}

    def ask(self, changefeed: str, table: TableId, key: Any) -> None:
        """A user wants the row to be tried again."""
        id = request_id(changefeed, id_of(changefeed, Kept.LETTER, table, row_of(bson.encode({"_id": key}))))
        self._keep(id, {"_id": id, "changefeed": changefeed, "asked": ObjectId()})

    def find(self, condition: Mapping[str, Any]) -> Iterator[RawBSONDocument]:
        return (RawBSONDocument(bson.encode(letter)) for letter in self.matching(condition))

    def matching(self, condition: Mapping[str, Any]) -> list[Letter]:
        return [letter for _, letter in sorted(self._kept.items()) if fits(letter, condition)]

    def update(self, statement: Mapping[str, Any], now: float) -> int:
        """Writes a letter, or renews it; or the note of a row that had one."""
        [stage], id = statement["u"], statement["q"]["_id"]
        before = self._kept.get(id, {"_id": id})
        at = _BEGAN + timedelta(seconds=now)
        letter = before | {name: _value(value, before, at) for name, value in stage["$set"].items()}
        self._keep(id, bson.decode(bson.encode(letter)))
        if "event" in letter:
            self.ever.add(_row(letter))
        return 1

    def delete(self, condition: Mapping[str, Any]) -> int:
        found = self.matching(condition)
        for letter in found:
            self._keep(letter["_id"], None)
        return len(found)

    def _keep(self, id: str, letter: Letter | None) -> None:
        before = self._kept.pop(id, None)
        if letter is not None:
            self._kept[id] = letter

        def undo() -> None:
            self._kept.pop(id, None)
            if before is not None:
                self._kept[id] = before

        self._majority.lacks(undo)


def _row(letter: Letter) -> tuple[TableId, Any]:
    return TableId(letter["table_id"]), as_key(bson.decode(letter["event"]["key"])["_id"])


def _value(expression: Any, letter: Letter, now: datetime) -> Any:
    if expression == "$$NOW":
        return now
    if isinstance(expression, str) and expression.startswith("$"):
        return letter.get(expression[1:])
    match expression:
        case {"$literal": value}:
            return value
        case {"$ifNull": [known, other]}:
            found = _value(known, letter, now)
            return _value(other, letter, now) if found is None else found
        case {"$add": parts}:
            return sum(_value(part, letter, now) for part in parts)
    return expression


def fits(letter: Letter, condition: Mapping[str, Any]) -> bool:
    return all(
        any(fits(letter, each) for each in wanted) if name == "$or" else _holds(letter, name, wanted)
        for name, wanted in condition.items()
    )


def _holds(letter: Letter, name: str, wanted: Any) -> bool:
    if not isinstance(wanted, Mapping) or not all(operator.startswith("$") for operator in wanted):
        return bool(letter.get(name) == wanted)
    if "$exists" in wanted:
        return (name in letter) is wanted["$exists"]
    return name in letter and all(_COMPARISONS[each](letter[name], value) for each, value in wanted.items())
