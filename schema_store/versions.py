"""`SchemaVersions`: every table's versions, derived from base schemas and the DDL events after them. Pure.

Owner and processors derive the same versions from the same records, so etcd holds only the records. An example with a swap of
names by renames, and a drop with a re-creation:

    base a = A, b = B    rename a to tmp @5    rename b to a @6    rename tmp to b @7    drop a @9    create a = C @12

    position     4    5     6    7    8    9    11   12
    a            A    -     B    B    B    -    -    C
    b            B    B     -    A    A    A    A    A
    tmp          -    A     A    -    -    -    -    -
    A's name     a    tmp   tmp  b    b    b    b    b

A version valid from D applies to the events at positions >= D; the version before it ends exclusive at D. Independent DDLs may
be done, and so applied, in another order than the stream's. DDLs of one table or one name are applied in stream order.

Events that change nothing:
    an event applied before         each event leaves a mark at its position, in each table it concerns
    an event below a table's base   the base contains it
    a drop of a table that ended    shards repeat it, and dropDatabase follows the drops of its tables
    a create of an existing table   shards repeat it
Any other event that names an unknown table is an `InvariantError`: the filter has dropped the DDLs of tables out of scope.

A rename out of the filter arrives here as the drop of the table. A rename into the filter has a description with the table's whole
definition (`{options, indexes, shardKey}`), since its earlier changes were never recorded. So a table may exist, end, and exist again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TypeAlias

from changefeed.errors import InvariantError
from changefeed.event import DdlEvent, DdlType
from changefeed.position import Position
from changefeed.table import TableId, TableName, TableSchema, view_id
from schema_store import definition
from schema_store.timeline import Timeline

_Tables = dict[TableId, Timeline[TableSchema]]
_Names = dict[str, dict[TableName, Timeline[TableId]]]

SchemaChange: TypeAlias = dict[TableId, TableSchema | None]
"""New versions. None if the table ends."""


@dataclass(frozen=True, slots=True)
class SchemaVersions:
    """Immutable: a lane may continue to read its instance while the next one is derived."""

    _tables: Mapping[TableId, Timeline[TableSchema]] = field(default_factory=dict)
    _names: Mapping[str, Mapping[TableName, Timeline[TableId]]] = field(default_factory=dict)
    _floor: Position | None = None

    @classmethod
    def of(cls, bases: Iterable[TableSchema]) -> SchemaVersions:
        return cls().adopt(bases)

    def adopt(self, bases: Iterable[TableSchema]) -> SchemaVersions:
        """With tables whose definition is known from a position on: at the start, or when they enter the filter."""
        draft = _VersionsDraft(self._tables, self._names, self._floor)
        for base in sorted(bases, key=lambda base: (base.valid_from, base.id)):
            draft.adopt(base)
        return draft.finish()

    def apply(self, event: DdlEvent) -> SchemaVersions:
        return self.apply_all((event,))

    def apply_all(self, events: Iterable[DdlEvent]) -> SchemaVersions:
        """In stream order. All events share one copy: a dropDatabase comes with thousands of drops."""
        draft = _VersionsDraft(self._tables, self._names, self._floor)
        for event in sorted(events, key=lambda event: event.position):
            draft.apply(event)
        return draft.finish()

    def effects(self, events: Iterable[DdlEvent]) -> Iterator[tuple[DdlEvent, SchemaChange]]:
        """Each event with its changes to tables, in stream order."""
        draft = _VersionsDraft(self._tables, self._names, self._floor)
        for event in sorted(events, key=lambda event: event.position):
            draft.effect = {}
            draft.apply(event)
            yield event, draft.effect

    def at(self, table: TableId, position: Position) -> TableSchema | None:
        timeline = self._tables.get(table)
        return timeline.at(position) if timeline else None

    def before(self, table: TableId, position: Position) -> TableSchema | None:
        """The version that a DDL at `position` changes."""
        timeline = self._tables.get(table)
        return timeline.before(position) if timeline else None

    def latest(self, table: TableId) -> TableSchema | None:
        timeline = self._tables.get(table)
        return timeline.last if timeline else None

    def by_name(self, name: TableName, position: Position) -> TableSchema | None:
        """For servers before 6.0, which give only names in row events. At one position a name means one table."""
        tenants = self._names.get(name.db, {}).get(name)
        table = tenants.at(position) if tenants else None
        return None if table is None else self.at(table, position)

    def names(self) -> Iterator[TableName]:
        """All names that tables have at any position."""
        return chain.from_iterable(self._names.values())

    def tables_at(self, position: Position) -> tuple[TableSchema, ...]:
        found = (timeline.at(position) for _, timeline in sorted(self._tables.items()))
        return tuple(table for table in found if table is not None)

    def living(self) -> Iterator[tuple[Position, TableSchema]]:
        """The latest version of each table that has not ended, with the first position of its present life."""
        for _, timeline in sorted(self._tables.items()):
            if timeline.last is not None:
                yield timeline.began, timeline.last

    def life(self, table: TableId) -> tuple[Position, TableSchema] | None:
        """A table's latest version, with the first position of its present life. None if it has ended."""
        timeline = self._tables.get(table)
        return (timeline.began, timeline.last) if timeline and timeline.last is not None else None

    def interrupted(self, tables: Iterable[TableId]) -> tuple[TableId, ...]:
        """Those that have ended, including those that exist again since."""
        found = ((table, self._tables.get(table)) for table in tables)
        return tuple(table for table, timeline in found if timeline is None or None in timeline.values)

    def in_database(self, db: str, position: Position) -> tuple[TableSchema, ...]:
        found = (self.by_name(name, position) for name in sorted(self._names.get(db, {})))
        return tuple(table for table in found if table is not None)

    def gc(self, before: Position) -> SchemaVersions:
        """Without the versions that no event at or after `before` needs. Events below it then count as applied."""
        floor = before if self._floor is None else max(before, self._floor)
        tables = {table: kept for table, timeline in self._tables.items() if (kept := timeline.since(floor))}
        names = {db: _names_since(of_db, floor) for db, of_db in self._names.items()}
        return SchemaVersions(tables, {db: of_db for db, of_db in names.items() if of_db}, floor)


def _names_since(names: Mapping[TableName, Timeline[TableId]], before: Position) -> dict[TableName, Timeline[TableId]]:
    return {name: kept for name, tenants in names.items() if (kept := tenants.since(before))}


class _VersionsDraft:
    """The next `SchemaVersions`, under construction. The names of a database are copied before their first change."""

    def __init__(
        self,
        tables: Mapping[TableId, Timeline[TableSchema]],
        names: Mapping[str, Mapping[TableName, Timeline[TableId]]],
        floor: Position | None,
    ) -> None:
        self._tables: _Tables = dict(tables)
        self._shared = names
        self._own: _Names = {}
        self._floor = floor
        self.effect: SchemaChange = {}

    def finish(self) -> SchemaVersions:
        return SchemaVersions(self._tables, {**self._shared, **self._own}, self._floor)

    def adopt(self, base: TableSchema) -> None:
        known = self._tables.get(base.id, Timeline()).at(base.valid_from)
        if known is not None and known.name != base.name:
            self._name(known.name, base.valid_from, None)
        self._begin(base)

    def apply(self, event: DdlEvent) -> None:
        if self._floor is not None and event.position < self._floor:
            return
        if event.type is DdlType.DROP_DATABASE:
            for name in tuple(self._database(event.db)):
                self._end_occupant(name, event)
            return
        if event.table is None:
            raise InvariantError(f"{event}: names no table")
        if event.type is DdlType.CREATE:
            self._create(event, event.table)
        elif event.renamed_to is not None and definition.enters(event):
            self._enter(event, event.renamed_to)
        elif (table := self._subject(event, event.table)) is not None:
            self._change(event, table)

    def _create(self, event: DdlEvent, name: TableName) -> None:
        schema = definition.created(event, event.id or view_id(name), name)
        timeline = self._tables.get(schema.id, Timeline())
        if timeline.changes_at(event.position):
            return
        living = timeline.at(event.position)
        if living is not None and living.name == name:
            return
        occupant = self._occupant(name, event.position)
        if living is not None or occupant is not None:
            raise InvariantError(
                f"{event}: creates {schema.id}, expected neither this id nor this name to exist; "
                f"observed the id as {living.name if living else 'unused'}, the name as {occupant or 'free'}"
            )
        self._begin(schema)

    def _enter(self, event: DdlEvent, name: TableName) -> None:
        if event.id is None:
            raise InvariantError(f"{event}: expected an id of the table that enters the filter, observed none")
        timeline = self._tables.get(event.id, Timeline())
        if timeline.changes_at(event.position) or timeline.starts_after(event.position):
            return
        if timeline.at(event.position) is not None:
            raise InvariantError(f"{event}: enters the filter, but is known as {timeline.at(event.position)}")
        self._replace(name, event)
        self._begin(definition.entered(event, event.id, name))

    def _subject(self, event: DdlEvent, name: TableName) -> TableSchema | None:
        """The table just before the event. None if the event changes nothing."""
        identity = self._identity(event, name)
        timeline = self._tables.get(identity, Timeline()) if identity else Timeline()
        if timeline.changes_at(event.position) or timeline.starts_after(event.position):
            return None
        table = timeline.before(event.position)
        if table is None and not (event.type is DdlType.DROP and timeline.positions):
            raise InvariantError(
                f"{event}: expected table {event.id or name} to be known at {event.position}, observed "
                f"{'that it has ended' if timeline.positions else 'no such table'}"
            )
        return table

    def _identity(self, event: DdlEvent, name: TableName) -> TableId | None:
        """Views, and tables in events of servers before 6.0, are identified by name. A view has its own id, whatever its event contains."""
        if event.id is not None and event.id in self._tables:
            return event.id
        by_name = self._database(name.db).get(name, Timeline())
        occupant = by_name.before(event.position)
        if occupant is None and by_name.changes_at(event.position):
            occupant = by_name.at(event.position)
        if event.id is None:
            return occupant or self._last_of(by_name)
        return occupant if occupant == view_id(name) else None

    @staticmethod
    def _last_of(timeline: Timeline[TableId]) -> TableId | None:
        """The last table with a name that is free: a repeated drop without an id means the table that has ended."""
        return next((table for table in reversed(timeline.values) if table is not None), None)

    def _change(self, event: DdlEvent, table: TableSchema) -> None:
        match event.type:
            case DdlType.DROP:
                self._end(table, event.position)
                return
            case DdlType.RENAME:
                self._rename(event, table)
                return
            case DdlType.CREATE_INDEXES:
                changed = definition.with_indexes(table, event)
            case DdlType.DROP_INDEXES:
                changed = definition.without_indexes(table, event)
            case DdlType.MODIFY:
                changed = definition.modified(table, event)
            case DdlType.SHARD_COLLECTION | DdlType.RESHARD_COLLECTION | DdlType.REFINE_SHARD_KEY:
                changed = definition.resharded(table, event)
            case _:
                raise InvariantError(f"{event}: is not a change of one known table")
        self._put(replace(changed, valid_from=event.position))

    def _rename(self, event: DdlEvent, table: TableSchema) -> None:
        if event.renamed_to is None:
            raise InvariantError(f"{event}: expected the new name of the table, observed none")
        if event.renamed_to != table.name:
            self._replace(event.renamed_to, event)
            self._name(table.name, event.position, None)
        self._begin(replace(table, name=event.renamed_to, valid_from=event.position))

    def _replace(self, name: TableName, event: DdlEvent) -> None:
        """A rename onto another table drops that table. Servers before 6.0 do not say which one it was."""
        occupant = self._occupant(name, event.position)
        if occupant is None:
            return
        if event.drop_target not in (None, occupant):
            raise InvariantError(
                f"{event}: expected {name} to be {event.drop_target}, which it replaces; observed {occupant}"
            )
        self._end_occupant(name, event)

    def _end_occupant(self, name: TableName, event: DdlEvent) -> None:
        occupant = self._database(name.db)[name].before(event.position)
        if occupant is None or self._tables[occupant].changes_at(event.position):
            return
        if (table := self._tables[occupant].before(event.position)) is not None:
            self._end(table, event.position)

    def _end(self, table: TableSchema, position: Position) -> None:
        self._tables[table.id] = self._tables[table.id].then(position, None)
        self._name(table.name, position, None)
        self.effect[table.id] = None

    def _begin(self, schema: TableSchema) -> None:
        """This version, and its name, from its `valid_from` on."""
        self._put(schema)
        self._name(schema.name, schema.valid_from, schema.id)

    def _occupant(self, name: TableName, position: Position) -> TableId | None:
        return self._database(name.db).get(name, Timeline()).at(position)

    def _put(self, schema: TableSchema) -> None:
        timeline = self._tables.get(schema.id, Timeline())
        self._tables[schema.id] = timeline.then(schema.valid_from, schema)
        self.effect[schema.id] = schema

    def _name(self, name: TableName, position: Position, table: TableId | None) -> None:
        if name.db not in self._own:
            self._own[name.db] = dict(self._shared.get(name.db, {}))
        of_db = self._own[name.db]
        of_db[name] = of_db.get(name, Timeline()).then(position, table)

    def _database(self, db: str) -> Mapping[TableName, Timeline[TableId]]:
        return self._own[db] if db in self._own else self._shared.get(db, {})
