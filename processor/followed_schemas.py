"""`FollowedSchemas`: the schema versions of one changefeed, as etcd shows them to this node, and which assigned tables have ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from changefeed.position import Position
from changefeed.records.ddl import DdlRecord
from changefeed.table import TableId, TableSchema
from coordination.decoded import StoredRecord
from processor.etcd_view import ProcessorView
from processor.lanes.lanes import Lanes
from schema_store.schema_base import NO_BASE, SchemaBase
from schema_store.store import SchemaStore
from schema_store.versions import SchemaVersions

_MANY = 1_000
"""Changed bases for which deriving everything from scratch costs no more."""


class FollowedSchemas:
    """For the processor's thread."""

    def __init__(self) -> None:
        self._store = SchemaStore()
        self._strangers = Strangers()
        self._records: Mapping[str, StoredRecord[DdlRecord]] = {}
        self._bases: Mapping[str, StoredRecord[TableSchema]] = {}

    @property
    def versions(self) -> SchemaVersions:
        return self._store.versions

    def follow(self, stored: ProcessorView) -> bool:
        """Derives the versions from the bases and the settled DDL records. Returns whether tasks need other versions than before.

        The barrier of the same view lets no event pass that needs an open record. Where bases have changed or records are gone, the versions
        are derived again: a node that did not look for a while has missed records that were settled and folded into the bases, a changed filter
        adds tables to the bases and removes them, and the bases contain nothing of a table that was created and dropped. Most often this leaves
        everything as it was.
        """
        if self._records is stored.records and self._bases is stored.bases:
            return False
        before, since, records = self._store, stored.settled_below, stored.ddls()
        changed = _changed_bases(self._bases, stored.bases)
        gone = [self._records[position].record for position in self._records.keys() - stored.records.keys()]
        floor = before.versions.floor
        if not self._bases or len(changed) > _MANY + len(stored.bases) // 4 or (floor is not None and since < floor):
            self._store = SchemaStore.from_records(stored.tables(), records)
        elif changed or gone:
            self._store = before.with_bases(changed, gone, stored.base, records)
        else:
            self._store = before.take(records)
        self._records, self._bases = stored.records, stored.bases
        if self._store is before:
            return False
        self._store = self._store.gc(since)
        return not self._store.versions.agrees(before.versions, since)

    def ended(self, lanes: Lanes) -> Mapping[TableId, Position]:
        """Tables that the assignment names but that do not exist at their checkpoint. They stop there: a table that comes back is assigned again."""
        versions = self.versions
        self._strangers = self._strangers.follow(versions.base, lanes.tables)
        changed = {table for table in versions.changed if table in lanes.tables}
        interrupted = versions.interrupted(self._strangers.tables | changed)
        checkpoints = {table: lanes.checkpoint_of(table) for table in interrupted}
        return {table: at for table, at in checkpoints.items() if versions.at(table, at) is None}


@dataclass(frozen=True, slots=True)
class Strangers:
    """The assigned tables that a base of the schemas does not contain.

    A table that has ended is one of them, or one of the tables that have changed since the base. So nobody has to look at all tables to find
    those that have ended.
    """

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


def _changed_bases(
    before: Mapping[str, StoredRecord[TableSchema]], now: Mapping[str, StoredRecord[TableSchema]]
) -> list[TableSchema]:
    """As they were and as they are. A record that has not changed is the same object."""
    if before is now:
        return []
    pairs = zip(map(before.get, now), now.values(), strict=True)
    differing: list[tuple[StoredRecord[TableSchema] | None, ...]] = [pair for pair in pairs if pair[0] is not pair[1]]
    if len(before) != len(now) - sum(was is None for was, _ in differing):
        differing += [(before[table], None) for table in before if table not in now]
    return [stored.record for pair in differing for stored in pair if stored is not None]
