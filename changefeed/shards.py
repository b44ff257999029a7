"""`Shards`: an immutable map by table that knows what changed. Pure.

100,000 tables are divided by a hash into parts. A changed map shares the unchanged parts with the map before, so a change costs the part
of its table, and two maps are compared part by part: equal parts are mostly the same object.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Generic, TypeVar, overload

from changefeed.table import TableId

PARTS = 3072

V = TypeVar("V")
D = TypeVar("D")

_EMPTY: dict[TableId, Any] = {}


def part_of(table: TableId) -> int:
    return zlib.crc32(table.encode()) % PARTS


class Shards(Mapping[TableId, V], Generic[V]):
    __slots__ = ("_parts", "_size")

    def __init__(self, items: Mapping[TableId, V] | Iterable[tuple[TableId, V]] = ()) -> None:
        self._parts: list[dict[TableId, V]] = [_EMPTY] * PARTS
        self._size = 0
        self._set(dict(items))

    def but(self, changed: Mapping[TableId, V], removed: Iterable[TableId] = ()) -> Shards[V]:
        """With the changed and new entries, without the removed ones."""
        shards: Shards[V] = Shards.__new__(Shards)
        shards._parts, shards._size = list(self._parts), self._size
        own = shards._set(changed)
        for table in removed:
            part = part_of(table)
            if table in shards._parts[part]:
                if part not in own:
                    own.add(part)
                    shards._parts[part] = dict(shards._parts[part])
                del shards._parts[part][table]
                shards._size -= 1
        return shards

    def _set(self, changed: Mapping[TableId, V]) -> set[int]:
        own = set[int]()
        for table, value in changed.items():
            part = part_of(table)
            if part not in own:
                own.add(part)
                self._parts[part] = dict(self._parts[part])
            self._size += table not in self._parts[part]
            self._parts[part][table] = value
        return own

    def part(self, number: int) -> Mapping[TableId, V]:
        return self._parts[number]

    def __getitem__(self, table: TableId) -> V:
        return self._parts[part_of(table)][table]

    @overload
    def get(self, table: TableId, /) -> V | None: ...
    @overload
    def get(self, table: TableId, /, default: V | D) -> V | D: ...
    def get(self, table: TableId, /, default: object = None) -> object:
        return self._parts[part_of(table)].get(table, default)

    def __contains__(self, table: object) -> bool:
        return isinstance(table, str) and table in self._parts[part_of(TableId(table))]

    def __iter__(self) -> Iterator[TableId]:
        return chain.from_iterable(self._parts)

    def __len__(self) -> int:
        return self._size

    def __repr__(self) -> str:
        return f"Shards({dict(self)!r})"

    def differing(self, other: Shards[V]) -> Iterator[TableId]:
        for one, two in zip(self._parts, other._parts, strict=True):
            if one is not two:
                yield from _differing(one, two)


def differing(one: Mapping[TableId, V], other: Mapping[TableId, V]) -> set[TableId]:
    """The tables that only one of the maps has, or that have two values."""
    if one is other:
        return set()
    if isinstance(one, Shards) and isinstance(other, Shards):
        return set(one.differing(other))
    return set(_differing(one, other))


def _differing(one: Mapping[TableId, V], other: Mapping[TableId, V]) -> Iterator[TableId]:
    nothing = object()
    for table, value in one.items():
        found = other.get(table, nothing)
        if found is not value and found != value:
            yield table
    for table in other:
        if table not in one:
            yield table
