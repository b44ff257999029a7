"""`TableLayout`: by which key a sharded cluster divides a table, and where. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from changefeed.config.tables.column_rules import ColumnRule, shown_otherwise
from changefeed.documents.document import Document


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneRange:
    """`[lower, upper)` of the shard key."""

    lower: Document
    upper: Document
    zone: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLayout:
    """`bounds`: where one chunk ends and the next one begins, ascending."""

    key: Document
    unique: bool = False
    bounds: tuple[Document, ...] = ()
    zones: tuple[ZoneRange, ...] = ()

    def bounds_of(self, chunks: int) -> tuple[Document, ...]:
        """Those that leave so many chunks, each of as many of the source's as the others."""
        there = len(self.bounds) + 1
        if there <= chunks:
            return self.bounds
        return tuple(self.bounds[number * there // chunks - 1] for number in range(1, chunks))


def as_shown(layout: TableLayout | None, rules: Iterable[ColumnRule]) -> TableLayout | None:
    """None if the target sees a field of the shard key otherwise: rows would be found under a key that they do not have."""
    return None if layout is None or shown_otherwise(rules, layout.key.decode()) else layout
