"""`TableSet`: the tables of a default lane, as a packed set that seldom changes and the difference from it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from math import isqrt
from typing import TypeVar

from changefeed.table import TableId
from schema_store.packed_texts import NO_TEXTS, PackedTexts

_FEW = 64

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class TableSet(AbstractSet[TableId]):
    """The base is shared by many sets, and each process loads it once (`ContextBase`)."""

    base: PackedTexts = NO_TEXTS
    without: frozenset[TableId] = frozenset()
    """Tables of the base only."""
    beside: frozenset[TableId] = frozenset()
    """No tables of the base."""

    @classmethod
    def of(cls, tables: Iterable[TableId]) -> TableSet:
        return cls(PackedTexts.of(tables))

    @classmethod
    def _from_iterable(cls, tables: Iterable[T]) -> AbstractSet[T]:
        """What the operators of sets return."""
        return frozenset(tables)

    def __contains__(self, table: object) -> bool:
        return table in self.beside or (table not in self.without and table in self.base)

    def __iter__(self) -> Iterator[TableId]:
        yield from (TableId(table) for table in self.base if table not in self.without)
        yield from self.beside

    def __len__(self) -> int:
        return len(self.base) - len(self.without) + len(self.beside)

    def over(self, base: PackedTexts) -> TableSet:
        """The same difference from another base: from none for transport, from an equal one after it."""
        return TableSet(base, self.without, self.beside)

    def changed(self, gone: AbstractSet[TableId], come: AbstractSet[TableId]) -> TableSet:
        """With a new base when the difference has become large."""
        without = (self.without | {table for table in gone if table in self.base}) - come
        beside = (self.beside - gone) | {table for table in come if table not in self.base}
        different = TableSet(self.base, without, beside)
        few = len(without) + len(beside) <= max(_FEW, isqrt(len(self.base)))
        return different if few else TableSet.of(different)
