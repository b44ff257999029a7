"""`SchemaLayers`: the timelines of all tables and names, as a base that seldom changes and what has changed since. Pure.

    base       {A: a@0, B: b@0, C: c@0}                   shared by all versions, in every process that has loaded it once
    changes    A: a@0, renamed to x@5; B: dropped@7       names a: A@0, none@5; x: A@5; b: B@0, none@7
    merged     {A: x@5, C: c@0}                           once nobody asks about positions below 7

A table or name among the changes hides its entry in the base. A DDL costs by the number of changes, not of tables. The changes are merged
into a new base when they are as many as the square root of the tables: then the cost of carrying the changes along and the cost of new
bases are about the same.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import merge
from itertools import chain
from math import isqrt
from operator import itemgetter
from typing import Generic, Self, TypeVar

from changefeed.errors import InvariantError
from changefeed.position import Position
from changefeed.table import TableId, TableName, TableSchema
from schema_store.schema_base import NO_BASE, SchemaBase

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Timeline(Generic[Value]):
    """`values[i]` is valid in `[positions[i], positions[i + 1])`. None means no value.

    With positions (5, 9, 12) and values (a, None, b): nothing before 5, `a` at 5 and 8, nothing at 9 and 11, `b` from 12 on.
    """

    positions: tuple[Position, ...] = ()
    values: tuple[Value | None, ...] = ()

    def at(self, position: Position) -> Value | None:
        """The value for an event at `position`."""
        index = bisect_right(self.positions, position)
        return self.values[index - 1] if index else None

    def before(self, position: Position) -> Value | None:
        """The value for the last event below `position`."""
        index = bisect_left(self.positions, position)
        return self.values[index - 1] if index else None

    def after(self, position: Position) -> Value | None:
        """The value that follows the one for an event at `position`."""
        index = bisect_right(self.positions, position)
        return self.values[index] if index < len(self.values) else None

    @property
    def last(self) -> Value | None:
        return self.values[-1] if self.values else None

    @property
    def sole(self) -> Value | None:
        """The only value, if there never was another one, nor an end."""
        return self.values[0] if len(self.values) == 1 else None

    @property
    def began(self) -> Position:
        """The start of the last stretch without a gap. The timeline must not have ended."""
        first = len(self.values)
        while first and self.values[first - 1] is not None:
            first -= 1
        return self.positions[first]

    def changes_at(self, position: Position) -> bool:
        index = bisect_left(self.positions, position)
        return index < len(self.positions) and self.positions[index] == position

    def starts_after(self, position: Position) -> bool:
        return bool(self.positions) and position < self.positions[0]

    def then(self, position: Position, value: Value | None) -> Timeline[Value]:
        """With `value` from `position` on. The last change must be below `position`, or at it: then it is replaced."""
        if not self.positions or self.positions[-1] < position:
            return Timeline((*self.positions, position), (*self.values, value))
        if self.positions[-1] == position:
            return Timeline(self.positions, (*self.values[:-1], value))
        raise InvariantError(
            f"a schema change at {position} is recorded after the one at {self.positions[-1]}; "
            "changes of one table or name must be recorded in stream order"
        )

    def since(self, before: Position) -> Timeline[Value] | None:
        """Without the values that no event at or after `before` needs. None if nothing is left.

        A change at `before` itself stays, even an end: its record still exists, and this change marks it as applied.
        """
        index = max(bisect_left(self.positions, before) - 1, 0)
        if index == len(self.positions) - 1 and self.values[index] is None and self.positions[index] < before:
            return None
        return self if index == 0 else Timeline(self.positions[index:], self.values[index:])

    def shown(self, since: Position) -> tuple[Value | None, tuple[object, ...]]:
        """The value below `since` and each later change: equal if the answers from there on are equal."""
        first = bisect_left(self.positions, since)
        return self.before(since), (*self.positions[first:], *self.values[first:])


_FEW = 64

K = TypeVar("K")
V = TypeVar("V")

_id = itemgetter(0)

_Tables = dict[TableId, Timeline[TableSchema]]
_Names = dict[TableName, Timeline[TableId]]


@dataclass(frozen=True, slots=True)
class SchemaLayers:
    base: SchemaBase = NO_BASE
    tables: _Tables = field(default_factory=dict)
    names: _Names = field(default_factory=dict)
    lasting: int = field(default=0, compare=False)
    """How many changed tables the last merge had to leave: a position that is still needed lies between their versions."""

    @classmethod
    def of(cls, schemas: Iterable[TableSchema]) -> Self:
        return cls(SchemaBase.of(schemas))

    def draft(self) -> Self:
        """A copy whose `tables` and `names` may be changed."""
        return type(self)(self.base, dict(self.tables), dict(self.names), self.lasting)

    def over(self, base: SchemaBase) -> Self:
        """The same changes over another base: over none for transport, over an equal one after it."""
        return type(self)(base, self.tables, self.names, self.lasting)

    def table(self, id: TableId) -> Timeline[TableSchema]:
        changed = self.tables.get(id)
        return _timeline(self.base.get(id)) if changed is None else changed

    def tenants(self, name: TableName) -> Timeline[TableId]:
        """The tables that have had a name."""
        changed = self.names.get(name)
        return _tenant(self.base.named(name)) if changed is None else changed

    def all_tables(self) -> Iterator[tuple[TableId, Timeline[TableSchema]]]:
        """In the order of their ids."""
        unchanged = ((schema.id, _timeline(schema)) for schema in self.base.all() if schema.id not in self.tables)
        return merge(unchanged, sorted(self.tables.items(), key=_id), key=_id) if self.tables else unchanged

    def all_names(self) -> Iterator[TableName]:
        unchanged = (name for text in self.base.names if (name := TableName.parse(text)) not in self.names)
        return chain(unchanged, (name for name, tenants in self.names.items() if tenants.values))

    def names_in(self, db: str) -> Iterator[TableName]:
        unchanged = (name for name in self.base.names_in(db) if name not in self.names)
        return chain(unchanged, (name for name, tenants in self.names.items() if name.db == db and tenants.values))

    def agree(self, other: SchemaLayers, floor: Position) -> bool:
        """Whether the same base has the same changes, as far as positions from `floor` on show them."""
        return (
            self.base is other.base
            and all(
                self.table(id).shown(floor) == other.table(id).shown(floor)
                for id in self.tables.keys() | other.tables.keys()
            )
            and all(
                self.tenants(name).shown(floor) == other.tenants(name).shown(floor)
                for name in self.names.keys() | other.names.keys()
            )
        )

    def since(self, floor: Position) -> SchemaLayers:
        """Without the values that no event at or after `floor` needs."""
        tables = _since(self.tables, floor, self.base.ids.__contains__)
        names = _since(self.names, floor, lambda name: str(name) in self.base.names)
        kept = SchemaLayers(self.base, tables, names, self.lasting)
        return kept.merged(floor) if len(tables) > 2 * self.lasting + max(_FEW, isqrt(len(self.base))) else kept

    def merged(self, floor: Position | None = None) -> SchemaLayers:
        """With the changes in a new base, except for those that a position from `floor` on may fall between."""
        concerned = self.tables.keys() | {schema.id for name in self.names if (schema := self.base.named(name))}
        settled = {id: schema for id in concerned if (schema := self._settled(id, floor))}
        base = self.base.with_changes(concerned.__contains__, settled.values())
        tables = {id: timeline for id in concerned - settled.keys() if (timeline := self.table(id)).positions}
        parted = {schema.name: _tenant(schema) for id in tables if (schema := self.base.get(id))}
        held = {schema.name for schema in settled.values()}
        names = {
            name: tenants for name, tenants in (parted | self.names).items() if name not in held and tenants.positions
        }
        return SchemaLayers(base, tables, names, len(tables))

    def _settled(self, id: TableId, floor: Position | None) -> TableSchema | None:
        """The only version of a table that is the only one with its name."""
        timeline = self.table(id)
        schema = timeline.sole
        if schema is None:
            return None
        tenants = self.tenants(schema.name)
        since = schema.valid_from
        if tenants.sole != id or (tenants.positions[0] != since and (floor is None or floor <= since)):
            return None
        return schema


def _since(changed: Mapping[K, Timeline[V]], floor: Position, hides: Callable[[K], bool]) -> dict[K, Timeline[V]]:
    """An empty timeline remains where it `hides` an entry of the base."""
    kept: dict[K, Timeline[V]] = {}
    for key, timeline in changed.items():
        left = timeline.since(floor)
        if left is not None:
            kept[key] = left
        elif hides(key):
            kept[key] = Timeline()
    return kept


def _timeline(schema: TableSchema | None) -> Timeline[TableSchema]:
    return Timeline() if schema is None else Timeline((schema.valid_from,), (schema,))


def _tenant(schema: TableSchema | None) -> Timeline[TableId]:
    return Timeline() if schema is None else Timeline((schema.valid_from,), (schema.id,))
