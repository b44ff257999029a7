"""`KnownTables`: the tables of a changefeed, derived from the bases and the records, and updated with each new record."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet

from changefeed.position import Position
from changefeed.records import AssignedTable, DdlRecord
from changefeed.table import TableId, TableKind, TableSchema
from schema_store.definition import enters
from schema_store.store import SchemaStore
from schema_store.versions import SchemaVersions


class KnownTables:
    """`tip`: the versions with every DDL seen, done or not. `replicated`: the tables after the settled DDLs."""

    def __init__(
        self,
        copy_starts: AbstractSet[Position],
        bases: Mapping[TableId, TableSchema],
        records: Iterable[DdlRecord],
    ) -> None:
        self._copy_starts = copy_starts
        records = list(records)
        self._settled = SchemaStore.from_records(bases.values(), records)
        self._entered = {(record.event.id, record.position) for record in records if enters(record.event)}
        self.tip = self._settled.versions.apply_all(record.event for record in records if record.open)
        self.replicated = self._replicated()

    def take(self, records: Iterable[DdlRecord]) -> None:
        """`replicated` stays the same object as long as the tables are the same."""
        settled = self._settled.take(records)
        if settled is not self._settled:
            self._settled = settled
            self._entered |= {(record.event.id, record.position) for record in records if enters(record.event)}
            self.replicated = self._replicated()

    @property
    def settled(self) -> Iterable[tuple[Position, TableSchema]]:
        """The tables after the settled DDLs, views too, each with the position where it began."""
        return self._settled.versions.living()

    @property
    def to_copy(self) -> AbstractSet[TableId]:
        """The tables that begin with a copy."""
        return {table for table, given in self.replicated.items() if given.copy}

    def seen(self, tip: SchemaVersions) -> None:
        self.tip = tip

    def gc(self, checkpoint: Position) -> None:
        self._settled = self._settled.gc(checkpoint)
        self.tip = self.tip.gc(checkpoint)

    def _replicated(self) -> dict[TableId, AssignedTable]:
        """Without views: they have no rows, so no node gets them."""
        return {
            schema.id: AssignedTable(start=first, copy=self._copied(schema, first))
            for first, schema in self.settled
            if schema.kind is not TableKind.VIEW
        }

    def _copied(self, schema: TableSchema, first: Position) -> bool:
        return first in self._copy_starts or (schema.id, first) in self._entered
