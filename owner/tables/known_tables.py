"""`KnownTables`: the tables of a changefeed, derived from the bases and the records, and updated with each new record."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from functools import cache, lru_cache

from changefeed.position import Position
from changefeed.records.ddl import DdlRecord
from changefeed.records.node import AssignedTable
from changefeed.shards import Shards
from changefeed.table import TableId, TableKind, TableName, TableSchema
from schema_store.store import SchemaStore
from schema_store.versions import SchemaVersions


class KnownTables:
    """`tip`: the versions with every DDL seen, done or not. `replicated`: the tables after the settled DDLs, `beside` those copied beside the target's."""

    def __init__(self, bases: Mapping[TableId, TableSchema], records: Iterable[DdlRecord]) -> None:
        records = list(records)
        self._settled = SchemaStore.from_records(bases.values(), records)
        self.names = _names_of(self._settled.versions)
        """Of the tables after the settled DDLs that have rows. The same object as long as no DDL is settled."""
        self.tip = self._settled.versions.apply_all(record.event for record in records if record.open)
        self.beside = frozenset(schema.id for _, schema in self.settled if schema.own_target)
        lives = ((schema.id, (first, schema)) for first, schema in self.settled)
        self.replicated = Shards((table, given) for table, life in lives if (given := self._given(life)) is not None)

    def take(self, records: Iterable[DdlRecord]) -> None:
        """`replicated` stays the same object as long as the tables are the same."""
        before = self._settled
        new = [record for record in records if not record.open and record.position not in before.taken]
        if not new:
            return
        self._settled = before.take(new)
        self.names = _names_of(self._settled.versions)
        effects = before.versions.effects(record.event for record in new)
        touched = sorted({table for _, effect in effects for table in effect})
        lives = {table: self._settled.versions.life(table) for table in touched}
        copied = {table for table, life in lives.items() if life is not None and life[1].own_target}
        self.beside = (self.beside - lives.keys()) | copied
        given = {table: self._given(life) for table, life in lives.items()}
        changed = {table: now for table, now in given.items() if now is not None and self.replicated.get(table) != now}
        ended = [table for table, now in given.items() if now is None and table in self.replicated]
        if changed or ended:
            self.replicated = self.replicated.but(changed, ended)

    @property
    def settled(self) -> Iterable[tuple[Position, TableSchema]]:
        """The tables after the settled DDLs, views too, each with the position where it began."""
        return self._settled.versions.living()

    @property
    def to_copy(self) -> AbstractSet[TableId]:
        """The tables that begin with a copy."""
        return {table for table, given in self.replicated.items() if given.copy}

    def in_copy(self, copied: AbstractSet[TableId]) -> AbstractSet[TableId]:
        """Those that the target does not have whole yet, or has as they were before their copy anew. `copied`: whose copy has ended."""
        return (self.to_copy - copied) | self.beside

    def copied_from(self, start: Position) -> AbstractSet[TableId]:
        """Those that begin there with a copy."""
        return {table for table, given in self.replicated.items() if given.copy and given.start == start}

    def seen(self, tip: SchemaVersions) -> None:
        self.tip = tip

    def gc(self, checkpoint: Position) -> None:
        self._settled = self._settled.gc(checkpoint)
        self.tip = self.tip.gc(checkpoint)

    def _given(self, life: tuple[Position, TableSchema] | None) -> AssignedTable | None:
        """None: the table has ended, or is a view, which has no rows and so no node."""
        if life is None or life[1].kind is TableKind.VIEW:
            return None
        first, schema = life
        return _assigned(first, schema.copied)


@lru_cache(64)
def _assigned(start: Position, copied: bool) -> AssignedTable:
    """One for all tables that begin alike."""
    return AssignedTable(start=start, copy=copied)


def _names_of(versions: SchemaVersions) -> Callable[[], AbstractSet[TableName]]:
    """Each table is visited when it is called for the first time, maybe in another thread: most changefeeds never need the names."""
    return cache(lambda: frozenset(schema.name for _, schema in versions.living() if schema.kind is not TableKind.VIEW))
