"""`UniqueRows`: rows whose unique values come and go: kinds of unique indexes, and writes that free a value which others take.

In a part of the runs tables have unique indexes of up to three kinds besides `u`, from their creation or later. A row takes the value of another
one by taking its fields. All is chosen apart from everything else, so that seeds without it do not change by it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Any, NamedTuple

from changefeed.table import TableName
from tests.simulation.source.row_keys import KEYS, keys_of, ordered
from tests.simulation.source.server import SourceServer
from tests.simulation.source.sharded.cluster import ClusterSource
from tests.simulation.source.tables import NotPossible, Row
from tests.simulation.source.unique_index import is_unique

_KINDS_AT_ONCE = 3
_SHARE = 0.5
"""The part of the writes of rows that are those of this module."""
_MISSING = 0.15
"""The part of the rows without the fields of a kind: one row may be so where the index is not sparse."""
_UPDATED = 0.1
"""The part of the other updates that give a row another value."""
_INDEXED_WHEN_CREATED = 0.8
_FIRST_FRESH = 1000
"""Smaller values are those of rows that are inserted in between. They may be taken already: then the source refuses them."""
_PAD = "." * 16
"""So that the diff of a document is smaller than the document."""


class Released(NamedTuple):
    """`after`: the fields of a row that gives its value away. `value`: the fields of the row that takes it."""

    after: Row
    value: Row


@dataclass(frozen=True, slots=True, kw_only=True)
class UniqueKind:
    """An index, and the fields of a row that make its keys."""

    spec: Mapping[str, Any]
    fields: tuple[str, ...]
    made: Callable[[int], Row]
    """The fields with the value of a number."""
    released: Callable[[Row, Row], Released]
    """From the fields of a row, and those with a value that nobody has."""

    @property
    def name(self) -> str:
        return str(self.spec["name"])

    def part(self, row: Mapping[str, Any]) -> Row:
        return {name: deepcopy(row[name]) for name in self.fields if name in row}


def _spec(*paths: str, **options: Any) -> dict[str, Any]:
    name = "_".join(f"{path}_1" for path in paths)
    return {"v": 2, "key": dict.fromkeys(paths, 1), "name": name, "unique": True, **options}


def _by_one_element(part: Row, fresh: Row) -> Released:
    """The last element of an array is cut off, or another one is put in its place."""
    elements = part.get("m", [])
    if len(elements) > 1 and elements[-1]["z"] % 2:
        return Released({"m": elements[:-1]}, {"m": elements[-1:]})
    return Released({"m": [*elements[:-1], *fresh["m"][:1]]}, {"m": elements[-1:]})


KINDS = (
    UniqueKind(
        spec=_spec("u"), fields=("u",), made=lambda n: {"u": n}, released=lambda part, fresh: Released(fresh, part)
    ),
    UniqueKind(
        spec=_spec("p", "q"),
        fields=("p", "q"),
        made=lambda n: {"p": n % 2, "q": n // 2},
        released=lambda part, fresh: Released({**part, "q": fresh["q"]}, part),
    ),
    UniqueKind(
        spec=_spec("k.a"),
        fields=("k",),
        made=lambda n: {"k": {"a": n, "pad": _PAD}},
        released=lambda part, fresh: Released({"k": {**part.get("k", {}), "a": fresh["k"]["a"]}}, part),
    ),
    UniqueKind(
        spec=_spec("m.z"),
        fields=("m",),
        made=lambda n: {"m": [{"z": n, "pad": _PAD}, *[{"z": n, "pad": "again"}] * (n % 3 == 0), {"z": -n}]},
        released=_by_one_element,
    ),
    UniqueKind(
        spec=_spec("s", sparse=True),
        fields=("s",),
        made=lambda n: {"s": n},
        released=lambda part, fresh: Released({}, part),
    ),
    UniqueKind(
        spec=_spec("w", partialFilterExpression={"on": {"$gt": 0}}),
        fields=("w", "on"),
        made=lambda n: {"w": n, "on": n % 4},
        released=lambda part, fresh: Released({**part, "on": 0}, {**part, "on": 2}),
    ),
    UniqueKind(
        spec=_spec("e.id", partialFilterExpression={"e.on": 1}),
        fields=("e",),
        made=lambda n: {"e": {"id": n, "on": min(n % 4, 1), "pad": _PAD}},
        released=lambda part, fresh: Released(
            {"e": {**part.get("e", {}), "on": 0}}, {"e": {**part.get("e", {}), "on": 1}}
        ),
    ),
)


class UniqueRows:
    def __init__(self, source: SourceServer | ClusterSource) -> None:
        self._source = source
        self._random = Random(f"unique rows {source.machine.seed}")
        self._keys = keys_of(source.machine.seed)
        self._kinds = self._random.sample(KINDS, _KINDS_AT_ONCE)
        self._numbers = count(_FIRST_FRESH)
        self._acts: tuple[Callable[[TableName, UniqueKind], None], ...] = (
            self._exchange,
            self._exchange_with_a_delete,
            self._hand_on,
            self._take_what_a_delete_frees,
            self._release_and_take,
            self._alternate,
            self._alternate,
        )

    # what others write

    def made(self) -> Row:
        """The fields of a row that is written whole."""
        parts = (self._value(kind) for kind in self._kinds if self._random.random() >= _MISSING)
        return {name: value for part in parts for name, value in part.items()}

    def changed(self) -> Row:
        return self._value(self._random.choice(self._kinds)) if self._random.random() < _UPDATED else {}

    def of_somebody_else(self, number: int) -> Row:
        """The fields of a row of another client at the target: values that the source never has."""
        return {name: value for kind in KINDS for name, value in kind.made(-_FIRST_FRESH - number).items()}

    def _value(self, kind: UniqueKind) -> Row:
        return kind.made(self._random.randrange(1, 40))

    def _fresh(self, kind: UniqueKind) -> Row:
        return kind.made(next(self._numbers))

    # indexes

    def begin(self, name: TableName) -> None:
        """Gives a new table its indexes."""
        for kind in self._random.sample(self._kinds, 2):
            if self._random.random() < _INDEXED_WHEN_CREATED:
                with suppress(NotPossible):
                    self._source.create_index(name, dict(kind.spec))

    def spec(self) -> dict[str, Any]:
        return dict(self._random.choice(self._kinds).spec)

    # writes

    def write(self, name: TableName) -> bool:
        """Does nothing in a part of the calls."""
        if self._random.random() >= _SHARE:
            return False
        table = self._source.tables[name]
        indexed = {index for index, spec in table.indexes.items() if is_unique(spec)}
        kinds = [kind for kind in KINDS if kind.name in indexed]
        if not kinds:
            return False
        act = self._random.choice(self._acts)
        act(name, self._random.choice(kinds))
        self._source.machine.count(f"source: unique values, {act.__name__.strip('_').replace('_', ' ')}")
        return True

    def _rows(self, name: TableName, number: int) -> list[Any]:
        rows = ordered(self._source.tables[name].rows)
        if len(rows) < number:
            raise NotPossible("there are too few rows")
        return self._random.sample(rows, number)

    def _row(self, name: TableName, key: Any) -> Row:
        return self._source.tables[name].rows[key]

    def _take(self, name: TableName, key: Any, kind: UniqueKind, value: Row) -> None:
        """By an update of these fields only, or of the whole row."""
        row = self._row(name, key)
        others = {field: known for field, known in row.items() if field not in kind.fields}
        if self._random.random() < 0.25:
            self._source.replace(name, {**others, **value})
        else:
            self._source.update(name, key, value, [each for each in kind.fields if each in row and each not in value])

    def _insert(self, name: TableName, key: Any, kind: UniqueKind, value: Row) -> None:
        others = {field: fresh for each in self._kinds if each != kind for field, fresh in self._fresh(each).items()}
        row = {"_id": key, "u": next(self._numbers), "f": self._random.randrange(100), **others, **value}
        self._source.insert(name, row)

    def _new_key(self, name: TableName) -> Any:
        free = [key for key in self._keys[:KEYS] if key not in self._source.tables[name].rows]
        if not free:
            raise NotPossible("all keys are there")
        return self._random.choice(free)

    def _exchange(self, name: TableName, kind: UniqueKind) -> None:
        """Through a value that nobody else has."""
        one, other = self._rows(name, 2)
        ours, theirs = kind.part(self._row(name, one)), kind.part(self._row(name, other))
        self._take(name, one, kind, self._fresh(kind))
        self._take(name, other, kind, ours)
        self._take(name, one, kind, theirs)

    def _exchange_with_a_delete(self, name: TableName, kind: UniqueKind) -> None:
        one, other = self._rows(name, 2)
        ours, theirs = kind.part(self._row(name, one)), kind.part(self._row(name, other))
        self._source.delete(name, one)
        self._take(name, other, kind, ours)
        self._insert(name, one, kind, theirs)

    def _hand_on(self, name: TableName, kind: UniqueKind) -> None:
        """Each row takes the value of the one before it, and the first one a new one. The last may be deleted instead."""
        rows = self._rows(name, 3)
        value = self._fresh(kind)
        for number, key in enumerate(rows):
            before = kind.part(self._row(name, key))
            if number == len(rows) - 1 and self._random.random() < 0.3:
                self._source.delete(name, key)
                self._insert(name, key if self._random.random() < 0.5 else self._new_key(name), kind, before)
                return
            self._take(name, key, kind, value)
            value = before

    def _take_what_a_delete_frees(self, name: TableName, kind: UniqueKind) -> None:
        [one] = self._rows(name, 1)
        value = kind.part(self._row(name, one))
        taker = self._random.choice([key for key in self._keys[:KEYS] if key != one])
        self._source.delete(name, one)
        if taker in self._source.tables[name].rows:
            self._take(name, taker, kind, value)
        else:
            self._insert(name, taker, kind, value)

    def _release_and_take(self, name: TableName, kind: UniqueKind) -> None:
        """The row that had it stays: without the field, with another one, or out of the index by its filter."""
        one, taker = self._rows(name, 2)
        released = kind.released(kind.part(self._row(name, one)), self._fresh(kind))
        self._take(name, one, kind, released.after)
        if self._random.random() < 0.3:
            self._source.delete(name, taker)
            self._insert(name, taker, kind, released.value)
        else:
            self._take(name, taker, kind, released.value)

    def _alternate(self, name: TableName, kind: UniqueKind) -> None:
        """One row after the other, each in another way. They take what those before them had."""
        freed: list[Row] = []
        for key in self._random.sample(self._keys[:KEYS], self._random.randint(3, 5)):
            known = self._source.tables[name].rows.get(key)
            value = freed.pop() if freed and self._random.random() < 0.6 else self._fresh(kind)
            if known is None:
                self._insert(name, key, kind, value)
                continue
            match self._random.choice(("delete", "take", "else")):
                case "delete":
                    self._source.delete(name, key)
                case "take":
                    self._take(name, key, kind, value)
                case _:
                    self._source.update(name, key, {"f": self._random.randrange(100)}, [])
                    continue
            freed.append(kind.part(known))
