"""`SchemaStore`: the schema versions of one changefeed from its records in etcd, and how these records are folded. Pure.

etcd holds one base schema for each table, and the DDL records after it. The shells of owner and processor read and write them; this
module decides what they mean and what to write. A record counts when it is settled: done, or skipped. A DDL that is skipped
downstream has changed the source's schema too.

Folding applies the settled records below the checkpoint to the bases, in stream order. A step is one transaction. After any number
of steps the bases contain exactly the records removed so far:

    bases {A: a@0, B: b@0}     records 5 rename A to b over B, 7 collMod A, 9 drop A     checkpoint 8
    step 1                     write A: b@7, remove B, delete records 5 and 7            bases {A: b@7}, records 9

An open record below the checkpoint waits for a user. No settled record after it meets its scope, so these are folded past it.

Only a dropDatabase may concern more tables than one transaction can hold. Its tables are removed first and its record last: until
then the record is a dropDatabase of the remaining tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice

from changefeed.event import DdlEvent, DdlType
from changefeed.position import Position
from changefeed.records.ddl import DdlRecord
from changefeed.table import TableId, TableName, TableSchema
from schema_store.versions import SchemaChange, SchemaVersions

MAX_OPERATIONS = 100
"""In one transaction. etcd's default limit is 128."""

MAX_BYTES = 200_000
"""Of BSON in one transaction. As Extended JSON it is several times larger, and etcd's limit is 1.5 MiB."""

_MOST_TABLES_OF_ONE_DDL = 2
"""The renamed table and the replaced one. Only a dropDatabase concerns more tables, and it may be split."""


@dataclass(frozen=True, slots=True)
class SchemaStore:
    """Immutable. `taken` are the positions of the records in the versions, as long as these records may be read again."""

    versions: SchemaVersions = field(default_factory=SchemaVersions)
    taken: frozenset[Position] = frozenset()

    @classmethod
    def from_records(cls, bases: Iterable[TableSchema], records: Iterable[DdlRecord]) -> SchemaStore:
        return cls(SchemaVersions.of(bases)).take(records)

    def take(self, records: Iterable[DdlRecord]) -> SchemaStore:
        """With the newly settled records. Only these are applied."""
        new = [record for record in records if not record.open and record.position not in self.taken]
        if not new:
            return self
        versions = self.versions.apply_all(record.event for record in new)
        return SchemaStore(versions, self.taken | {record.position for record in new})

    def with_bases(
        self,
        changed: Iterable[TableSchema],
        gone: Iterable[DdlRecord],
        base_of: Callable[[TableId], TableSchema | None],
        records: Iterable[DdlRecord],
    ) -> SchemaStore:
        """As if derived from the bases and records of now, from the last `gc` on, without deriving those of all other tables again.

        `changed`: the bases that have changed, as they were and as they are. `gone`: records that no longer exist.

        A fold rewrites the bases of a few tables and removes their records; a changed filter adds bases and removes some. A node that did not look
        for a while may have missed records that were settled and folded, so its versions of these tables cannot be trusted. The tables that a
        changed base, a record that is gone, or a record that meets one of these may concern are forgotten and derived from their bases and records:

            bases     A changed, from a@0 to a@7           concerned  A, a
            records   7 collMod A           gone
                      9 rename A to b, over B                         A, a, b, B
                      9 rename C to d                                 not concerned

        Every record concerns either only such tables and names or none of them. So the others keep their versions.
        """
        concerned = _Concerned(self.versions, base_of)
        for base in changed:
            concerned.add({base.id}, {base.name})
        for record in gone:
            concerned.add_event(record.event)
        events, others = list[DdlEvent](), [record.event for record in records if not record.open]
        while met := [event for event in others if concerned.meets(event)]:
            others = [event for event in others if not concerned.meets(event)]
            events += met
            for event in met:
                concerned.add_event(event)
        found = (base_of(table) for table in concerned.tables)
        versions = self.versions.derived_again(concerned.tables, concerned.names, filter(None, found), events)
        return replace(self, versions=versions).take(records)

    def gc(self, checkpoint: Position) -> SchemaStore:
        """Records below the checkpoint may still be passed to `take`. They change nothing."""
        return SchemaStore(
            self.versions.gc(checkpoint), frozenset(position for position in self.taken if position >= checkpoint)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldStep:
    """One transaction: bases to write, bases to remove, records to delete."""

    write: tuple[TableSchema, ...] = ()
    remove: tuple[TableId, ...] = ()
    ddls: tuple[Position, ...] = ()


def fold(
    bases: Mapping[TableId, TableSchema],
    records: Iterable[DdlRecord],
    checkpoint: Position,
    *,
    max_operations: int = MAX_OPERATIONS,
    max_bytes: int = MAX_BYTES,
) -> Iterator[FoldStep]:
    """The steps, in order. A caller may execute only the first one in a tick, and compute the others again later."""
    ordered = sorted(records, key=lambda record: record.position.order)
    below = [record for record in ordered if record.position < checkpoint and not record.open]
    step = _OpenStep(dict(bases), max_operations, max_bytes)
    for first in range(0, len(below), max_operations):
        events = [record.event for record in below[first : first + max_operations]]
        for event, effect in SchemaVersions.of(_concerned(step.bases, events)).effects(events):
            if not step.takes(effect):
                yield from step.close()
            rest = effect
            while not step.takes(rest):
                step.changes = dict(islice(rest.items(), max_operations))
                rest = {table: schema for table, schema in rest.items() if table not in step.changes}
                yield from step.close()
            step.changes |= rest
            step.ddls.append(event.position)
        yield from step.close()


def _concerned(bases: Mapping[TableId, TableSchema], events: Iterable[DdlEvent]) -> list[TableSchema]:
    """The bases that the events may concern, usually few of many. Versions of the others need not be derived."""
    events = list(events)
    ids = {event.id for event in events} | {event.drop_target for event in events}
    names = {event.table for event in events} | {event.renamed_to for event in events}
    databases = {event.db for event in events if event.type is DdlType.DROP_DATABASE}
    return [base for id, base in bases.items() if id in ids or base.name in names or base.name.db in databases]


@dataclass(slots=True)
class _OpenStep:
    """The step being filled; `bases` are those in etcd before it."""

    bases: dict[TableId, TableSchema]
    max_operations: int
    max_bytes: int
    changes: SchemaChange = field(default_factory=dict)
    ddls: list[Position] = field(default_factory=list)

    def takes(self, effect: SchemaChange) -> bool:
        """A single change is always accepted, however large: it cannot be split."""
        together = self.changes | effect
        size = sum(_bytes(schema) for schema in together.values() if schema is not None)
        fits = len(together) + len(self.ddls) < self.max_operations and size <= self.max_bytes
        return fits or (not self.changes and not self.ddls and len(effect) <= _MOST_TABLES_OF_ONE_DDL)

    def close(self) -> Iterator[FoldStep]:
        write = tuple(self._sized(schema) for _, schema in sorted(self.changes.items()) if schema is not None)
        ended = {table for table, schema in self.changes.items() if schema is None}
        step = FoldStep(write=write, remove=tuple(sorted(ended & self.bases.keys())), ddls=tuple(self.ddls))
        self.bases |= {schema.id: schema for schema in write}
        for table in step.remove:
            del self.bases[table]
        self.changes, self.ddls = {}, []
        if step != FoldStep():
            yield step

    def _sized(self, schema: TableSchema) -> TableSchema:
        base = self.bases.get(schema.id)
        return replace(schema, size=base.size if base else None)


def _bytes(schema: TableSchema) -> int:
    return len(schema.options.raw) + sum(len(index.raw) for index in schema.indexes)


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
