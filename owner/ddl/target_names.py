"""`TargetNames`: which tables have a name downstream, at a cost that does not grow with the number of tables. Pure.

Most names have few possible origins, which the routes turned around give (`Routes.few_origins`). Only a rule that gathers tables, as
`{from: "*.orders", to: all.orders}`, would need a look at all of them. For its tables there is an index, over the base of the schemas, which
is the same object in most versions and which a new one replaces seldom. What has changed since is looked at table by table.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from changefeed.config.tables.routes import Routes
from changefeed.position import Position
from changefeed.table import TableId, TableName, TableSchema
from schema_store.schema_base import NO_BASE, SchemaBase
from schema_store.versions import SchemaVersions


@dataclass(slots=True, eq=False)
class TargetNames:
    """For one thread. It remembers the index of the base that it saw last."""

    routes: Routes
    _base: SchemaBase = NO_BASE
    _gathered: dict[TableName, list[TableId]] = field(default_factory=dict)

    def having(self, names: Collection[TableName], position: Position, tables: SchemaVersions) -> list[TableSchema]:
        """The tables that have one of these names downstream."""
        few = {origin for name in names for origin in self.routes.few_origins(name)}
        found = {schema.id: schema for origin in few if (schema := tables.by_name(origin, position)) is not None}
        for table in self._perhaps_gathered(names, tables):
            schema = tables.at(table, position)
            if schema is not None and self.routes.target(schema.name) in names:
                found[schema.id] = schema
        return list(found.values())

    def _perhaps_gathered(self, names: Iterable[TableName], tables: SchemaVersions) -> Iterator[TableId]:
        gathering = [name for name in names if self.routes.origins(name) is None]
        if not gathering:
            return
        if tables.base is not self._base:
            self._base, self._gathered = tables.base, self._indexed(tables.base)
        for name in gathering:
            yield from self._gathered.get(name, ())
        yield from tables.changed

    def _indexed(self, base: SchemaBase) -> dict[TableName, list[TableId]]:
        found: dict[TableName, list[TableId]] = defaultdict(list)
        for schema in base.all():
            if self.routes.gathers(schema.name):
                found[self.routes.target(schema.name)].append(schema.id)
        return dict(found)
