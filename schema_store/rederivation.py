"""`rederived`: the versions after some bases have changed, without deriving those of all other tables again. Pure.

A fold rewrites the bases of a few tables and removes their records; a changed filter adds bases and removes some. A node that did not look
for a while may have missed records that were settled and folded, so its versions of these tables cannot be trusted. The tables that a
changed base, a record that is gone, or a record that meets one of these may concern are forgotten and derived from their bases and records:

    bases     A changed, from a@0 to a@7           concerned  A, a
    records   7 collMod A           gone
              9 rename A to b, over B                         A, a, b, B
              9 rename C to d                                 not concerned

Every record concerns either only such tables and names or none of them. So the others keep their versions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from changefeed.event import DdlEvent, DdlType
from changefeed.table import TableId, TableName, TableSchema
from schema_store.versions import SchemaVersions


def rederived(
    versions: SchemaVersions,
    changed: Iterable[TableSchema],
    gone: Iterable[DdlEvent],
    base_of: Callable[[TableId], TableSchema | None],
    settled: Iterable[DdlEvent],
) -> SchemaVersions:
    """`changed`: bases as they were and as they are. `settled`: all that there are now."""
    concerned = _Concerned(versions, base_of)
    for base in changed:
        concerned.add({base.id}, {base.name})
    for event in gone:
        concerned.add_event(event)
    events, others = list[DdlEvent](), list(settled)
    while met := [event for event in others if concerned.meets(event)]:
        others = [event for event in others if not concerned.meets(event)]
        events += met
        for event in met:
            concerned.add_event(event)
    found = (base_of(table) for table in concerned.tables)
    return versions.derived_again(concerned.tables, concerned.names, filter(None, found), events)


@dataclass(slots=True)
class _Concerned:
    versions: SchemaVersions
    base_of: Callable[[TableId], TableSchema | None]
    tables: set[TableId] = field(default_factory=set)
    names: set[TableName] = field(default_factory=set)

    def meets(self, event: DdlEvent) -> bool:
        if event.type is DdlType.DROP_DATABASE:
            return any(name.db == event.db for name in self.names)
        tables, names = _mentioned(event)
        return not (self.tables.isdisjoint(tables) and self.names.isdisjoint(names))

    def add_event(self, event: DdlEvent) -> None:
        if event.type is DdlType.DROP_DATABASE:
            self.add(set(), set(self.versions.names_in(event.db)))
        else:
            self.add(*_mentioned(event))

    def add(self, tables: set[TableId], names: set[TableName]) -> None:
        """With all names that the tables have had, and all tables that have had the names."""
        while tables or names:
            tables, names = tables - self.tables, names - self.names
            self.tables |= tables
            self.names |= names
            tables, names = (
                {table for name in names for table in self.versions.tenants(name)},
                {name for table in tables for name in self.versions.names_of(table)}
                | {base.name for table in tables if (base := self.base_of(table))},
            )


def _mentioned(event: DdlEvent) -> tuple[set[TableId], set[TableName]]:
    tables = {table for table in (event.id, event.drop_target) if table is not None}
    return tables, {name for name in (event.table, event.renamed_to) if name is not None}
