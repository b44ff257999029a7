"""`OfTable`: what is the same in all messages of one version of a table, made once. Pure, and called for each change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from sink.row import TargetTable

_MOST_TABLES = 10_000
V = TypeVar("V")


class OfTable(Generic[V]):
    """Changes of one table mostly follow each other, so what was made for the last one is at hand, without a call: `last` of `table`."""

    def __init__(self, make: Callable[[TargetTable], V]) -> None:
        self._make = make
        self._made: dict[TargetTable, V] = {}
        self.table: TargetTable | None = None
        self.last: V

    def __call__(self, table: TargetTable) -> V:
        if table is self.table:
            return self.last
        made = self._made.get(table)
        if made is None:
            if len(self._made) >= _MOST_TABLES:
                self._made.clear()
            made = self._made[table] = self._make(table)
        self.table, self.last = table, made
        return made
