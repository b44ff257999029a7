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
definition (`{options, indexes, shardKey}`), since its earlier changes were never recorded. So a table may exist, end, and exist again. A
user's command does the same: the table leaves, and enters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Self, TypeAlias

from changefeed.errors import InvariantError
from changefeed.event import DdlEvent, DdlType
from changefeed.position import Position
from changefeed.table import TableId, TableName, TableSchema, defined, view_id
from schema_store import definition
from schema_store.layers import SchemaLayers, Timeline
from schema_store.schema_base import SchemaBase

SchemaChange: TypeAlias = dict[TableId, TableSchema | None]
"""New versions. None if the table ends."""


@dataclass(frozen=True, slots=True)
class SchemaVersions:
    """Immutable: a lane may continue to read its instance while the next one is derived. A DDL costs by the number of changes, not of tables."""

    _layers: SchemaLayers = field(default_factory=SchemaLayers)
    _floor: Position | None = None

    @classmethod
    def of(cls, bases: Iterable[TableSchema]) -> SchemaVersions:
        bases = list(bases)
        ids, names = Counter(base.id for base in bases), Counter(base.name for base in bases)
        plain = [base for base in bases if ids[base.id] == names[base.name] == 1]
        others = [base for base in bases if not ids[base.id] == names[base.name] == 1]
        return cls(SchemaLayers.of(plain)).adopt(others)

    @property
    def base(self) -> SchemaBase:
        """The unchanged tables, the same object in most versions of a changefeed."""
        return self._layers.base

    @property
    def changed(self) -> AbstractSet[TableId]:
        """The tables that the base may not know, or not as they are. Usually few."""
        return self._layers.tables.keys()

    def over(self, base: SchemaBase) -> Self:
        """The same changes over another base: over none for transport, over an equal one after it."""
        return replace(self, _layers=self._layers.over(base))

    def adopt(self, bases: Iterable[TableSchema]) -> SchemaVersions:
        """With tables whose definition is known from a position on: at the start, or when they enter the filter."""
        draft = self.draft()
        draft.adopt_all(bases)
        return draft.versions

    def draft(self) -> SchemaDraft:
        return SchemaDraft(self._layers, self._floor)

    def apply(self, event: DdlEvent) -> SchemaVersions:
        return self.apply_all((event,))

    def apply_all(self, events: Iterable[DdlEvent]) -> SchemaVersions:
        """In stream order. All events share one copy: a dropDatabase comes with thousands of drops."""
        draft = self.draft()
        draft.apply_all(events)
        return draft.versions

    def effects(self, events: Iterable[DdlEvent]) -> Iterator[tuple[DdlEvent, SchemaChange]]:
        """Each event with its changes to tables, in stream order."""
        draft = self.draft()
        for event in sorted(events, key=lambda event: event.position):
            draft.effect = {}
            draft.apply(event)
            yield event, draft.effect

    def derived_again(
        self,
        tables: AbstractSet[TableId],
        names: AbstractSet[TableName],
        bases: Iterable[TableSchema],
        events: Iterable[DdlEvent],
    ) -> SchemaVersions:
        """Forgets these tables and names, and derives them from their bases and events. The events concern no others."""
        draft = SchemaDraft(self._layers, None)
        draft.forget(tables, names)
        draft.adopt_all(bases)
        draft.apply_all(events)
        return replace(draft.versions, _floor=self._floor)

    def agrees(self, other: SchemaVersions, since: Position) -> bool:
        """Whether both surely have the same answers at all positions from `since` on."""
        return self._layers.agree(other._layers, since)

    @property
    def floor(self) -> Position | None:
        """Versions below it may be missing."""
        return self._floor

    def by_uuid(self) -> dict[TableId, TableId]:
        """The tables of the UUIDs that superseded a table's first one."""
        several = self.perhaps(lambda schema: bool(schema.uuids))
        versions = ((table, schema) for table in several for schema in self._layers.table(table).values)
        return {uuid: table for table, schema in versions if schema is not None for uuid in schema.uuids}

    def at(self, table: TableId, position: Position) -> TableSchema | None:
        return self._layers.table(table).at(position)

    def before(self, table: TableId, position: Position) -> TableSchema | None:
        """The version that a DDL at `position` changes."""
        return self._layers.table(table).before(position)

    def after(self, table: TableId, position: Position) -> TableSchema | None:
        """The version that follows the one at `position`."""
        return self._layers.table(table).after(position)

    def latest(self, table: TableId) -> TableSchema | None:
        return self._layers.table(table).last

    def by_name(self, name: TableName, position: Position) -> TableSchema | None:
        """For servers before 6.0, which give only names in row events. At one position a name means one table."""
        table = self._layers.tenants(name).at(position)
        return None if table is None else self.at(table, position)

    def next_by_name(self, name: TableName, position: Position) -> TableSchema | None:
        """The version of the table that gets the name next, at the time when it gets it."""
        table = self._layers.tenants(name).after(position)
        return None if table is None else self.after(table, position)

    def names(self) -> Iterator[TableName]:
        """All names that tables have at any position."""
        return self._layers.all_names()

    def names_in(self, db: str) -> Iterator[TableName]:
        return self._layers.names_in(db)

    def names_of(self, table: TableId) -> Iterator[TableName]:
        return (schema.name for schema in self._layers.table(table).values if schema is not None)

    def tenants(self, name: TableName) -> Iterator[TableId]:
        """The tables that have the name at any position."""
        return (table for table in self._layers.tenants(name).values if table is not None)

    def tables_at(self, position: Position) -> tuple[TableSchema, ...]:
        found = (timeline.at(position) for _, timeline in self._layers.all_tables())
        return tuple(table for table in found if table is not None)

    def living(self) -> Iterator[tuple[Position, TableSchema]]:
        """The latest version of each table that has not ended, with the first position of its present life."""
        for _, timeline in self._layers.all_tables():
            if timeline.last is not None:
                yield timeline.began, timeline.last

    def life(self, table: TableId) -> tuple[Position, TableSchema] | None:
        """A table's latest version, with the first position of its present life. None if it has ended."""
        timeline = self._layers.table(table)
        return (timeline.began, timeline.last) if timeline.last is not None else None

    def interrupted(self, tables: Iterable[TableId]) -> tuple[TableId, ...]:
        """Those that have ended, including those that exist again since."""
        found = ((table, self._layers.table(table).values) for table in tables)
        return tuple(table for table, values in found if not values or None in values)

    def perhaps(self, test: Callable[[TableSchema], bool]) -> AbstractSet[TableId]:
        """The tables of which a version may pass a test that does not look at id and name."""
        return {*self.base.like(test), *self.changed}

    def in_database(self, db: str, position: Position) -> tuple[TableSchema, ...]:
        found = (self.by_name(name, position) for name in sorted(self._layers.names_in(db)))
        return tuple(table for table in found if table is not None)

    def gc(self, before: Position) -> SchemaVersions:
        """Without the versions that no event at or after `before` needs. Events below it then count as applied."""
        floor = before if self._floor is None else max(before, self._floor)
        return SchemaVersions(self._layers.since(floor), floor)

    def merged(self) -> SchemaVersions:
        """With a new base, which `gc` makes from time to time."""
        return SchemaVersions(self._layers.merged(self._floor), self._floor)


class SchemaDraft:
    """The next `SchemaVersions`, under construction, for events of which each is judged by what those before it have changed."""

    def __init__(self, layers: SchemaLayers, floor: Position | None) -> None:
        self._layers = layers.draft()
        self._floor = floor
        self.effect: SchemaChange = {}

    @property
    def versions(self) -> SchemaVersions:
        """So far: it grows with each event that is applied here."""
        return SchemaVersions(self._layers, self._floor)

    def forget(self, tables: Iterable[TableId], names: Iterable[TableName]) -> None:
        self._layers.tables.update((table, Timeline()) for table in tables)
        self._layers.names.update((name, Timeline()) for name in names)

    def adopt_all(self, bases: Iterable[TableSchema]) -> None:
        for base in sorted(bases, key=lambda base: (base.valid_from, base.id)):
            known = self._layers.table(base.id).at(base.valid_from)
            if known is not None and known.name != base.name:
                self._name(known.name, base.valid_from, None)
            self._begin(base)

    def apply_all(self, events: Iterable[DdlEvent]) -> None:
        for event in sorted(events, key=lambda event: event.position):
            self.apply(event)

    def apply(self, event: DdlEvent) -> None:
        if self._floor is not None and event.position < self._floor:
            return
        if event.type is DdlType.UNKNOWN:
            return
        if event.type is DdlType.DROP_DATABASE:
            for name in tuple(self._layers.names_in(event.db)):
                self._end_occupant(name, event)
            return
        if event.table is None:
            raise InvariantError(f"{event}: names no table")
        if event.type is DdlType.CREATE:
            self._create(event, event.table)
        elif definition.enters(event):
            self._enter(event, event.renamed_to or event.table)
        elif (table := self._subject(event, event.table)) is not None:
            self._change(event, table)

    def _create(self, event: DdlEvent, name: TableName) -> None:
        schema = definition.created(event, event.id or view_id(name), name)
        timeline = self._layers.table(schema.id)
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
        timeline = self._layers.table(event.id)
        if timeline.changes_at(event.position) or timeline.starts_after(event.position):
            return
        if timeline.at(event.position) is not None:
            raise InvariantError(f"{event}: enters the filter, but is known as {timeline.at(event.position)}")
        self._replace(name, event)
        self._begin(defined(event.description, event.id, name, event.position))

    def _subject(self, event: DdlEvent, name: TableName) -> TableSchema | None:
        """The table just before the event. None if the event changes nothing."""
        identity = self._identity(event, name)
        timeline: Timeline[TableSchema] = self._layers.table(identity) if identity else Timeline()
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
        if event.id is not None and self._layers.table(event.id).positions:
            return event.id
        by_name = self._layers.tenants(name)
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
            case DdlType.DROP | DdlType.LEAVE:
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
            case DdlType.NEW_UUID:
                changed = definition.with_uuid(table, event)
            case DdlType.EXCHANGE:
                changed = replace(table, beside=None)
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
        occupant = self._layers.tenants(name).before(event.position)
        if occupant is None or self._layers.table(occupant).changes_at(event.position):
            return
        if (table := self._layers.table(occupant).before(event.position)) is not None:
            self._end(table, event.position)

    def _end(self, table: TableSchema, position: Position) -> None:
        self._layers.tables[table.id] = self._layers.table(table.id).then(position, None)
        self._name(table.name, position, None)
        self.effect[table.id] = None

    def _begin(self, schema: TableSchema) -> None:
        """This version, and its name, from its `valid_from` on."""
        self._put(schema)
        self._name(schema.name, schema.valid_from, schema.id)

    def _occupant(self, name: TableName, position: Position) -> TableId | None:
        return self._layers.tenants(name).at(position)

    def _put(self, schema: TableSchema) -> None:
        self._layers.tables[schema.id] = self._layers.table(schema.id).then(schema.valid_from, schema)
        self.effect[schema.id] = schema

    def _name(self, name: TableName, position: Position, table: TableId | None) -> None:
        self._layers.names[name] = self._layers.tenants(name).then(position, table)
