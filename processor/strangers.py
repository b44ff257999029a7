"""`Strangers`: the assigned tables that a base of the schemas does not contain. Pure.

A table that has ended is one of them, or one of the tables that have changed since the base. So nobody has to look at all tables to find those
that have ended.
"""

from __future__ import annotations

from dataclasses import dataclass

from changefeed.table import TableId
from schema_store.schema_base import NO_BASE, SchemaBase


@dataclass(frozen=True, slots=True)
class Strangers:
    base: SchemaBase = NO_BASE
    assigned: frozenset[TableId] = frozenset()
    tables: frozenset[TableId] = frozenset()

    def follow(self, base: SchemaBase, assigned: frozenset[TableId]) -> Strangers:
        """Costs nothing while both stay the same."""
        if base is not self.base:
            return Strangers(base, assigned, assigned.difference(base.ids))
        if assigned is self.assigned:
            return self
        come = frozenset(table for table in assigned - self.assigned if table not in base.ids)
        return Strangers(base, assigned, (self.tables & assigned) | come)
