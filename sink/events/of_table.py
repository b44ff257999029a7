"""`OfTable`: what is the same in all messages of one version of a table, made once. Pure, and called for each change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from sink.row import TargetTable

_MOST_TABLES = 10_000
V = TypeVar("V")


class OfTable(Generic[V]):
    """Changes of one table mostly follow each other, so the last one is kept at hand."""

    def __init__(self, make: Callable[[TargetTable], V]) -> None:
        self._make = make
        self._made: dict[TargetTable, V] = {}
        self._last: tuple[TargetTable, V] | None = None

    def __call__(self, table: TargetTable) -> V:
        last = self._last
        if last is not None and last[0] is table:
            return last[1]
        made = self._made.get(table)
        if made is None:
            if len(self._made) >= _MOST_TABLES:
                self._made.clear()
            made = self._made[table] = self._make(table)
        self._last = table, made
        return made
