"""`OwnedDdl`: indexes and options of a cluster's tables, which each shard changes by itself. Pure.

Of a sharded table, only its owners count (`owners.py`):

    createIndexes, commitIndexBuild    when all owners have the index: at the last owner's entry, or where the last shard without it
                                       gives its last chunk away. An index that stands on some owners only is no DDL yet
    dropIndexes                        at the first owner's entry, as it may end a unique index
    collMod                            `owned_options.py`

Which shard has which index at a start is read (`IndexReading`). Of a table that was dropped since, nothing is known, but it ends anyway:
only what its shards drop is shown. If the owners are unknown, those of a UUID that ended since a start which the config servers no longer
remember, a drop is shown at the first entry of any shard, and what is built at the table's next UUID.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from enum import Flag, auto
from typing import Any, TypeAlias

from changefeed.documents.document import Document
from changefeed.event import DdlEvent, DdlType
from changefeed.position import Position
from changefeed.table import TableId
from source.ddl_description import indexes_description, shown, uuid_of
from source.sharded.effective_order import Operation
from source.sharded.tables.cluster_state import (
    CHUNKS,
    COORDINATORS,
    GONE,
    SHARDS,
    ClusterChange,
    NewUuid,
    document_id,
)
from source.sharded.tables.live_tables import LiveTables
from source.sharded.tables.owned_options import OwnedOptions
from source.sharded.tables.owners import ChunkReading, Owners

IndexName: TypeAlias = tuple[str, Document]
"""Name and key. Options may change by a collMod."""
IndexReading: TypeAlias = Mapping[TableId, Mapping[str, Mapping[IndexName, Mapping[str, Any]]]]
"""By UUID and shard: the indexes with their specifications."""

_BUILT = ("createIndexes", "commitIndexBuild")
_DROPPED = ("dropIndexes", "deleteIndexes")


class OwnedDdl:
    """`take` is called with each operation before `LiveTables` takes it, and `superseded` with each new UUID that it shows.

    `operations`: those of each shard since the start, as far as they were read.
    """

    def __init__(
        self,
        tables: LiveTables,
        chunks: ChunkReading,
        indexes: IndexReading,
        operations: Mapping[str, Iterable[Operation]] = {},
        gone: Iterable[str] = (),
    ) -> None:
        self._tables = tables
        self._owners = Owners(tables, chunks, gone)
        self.options = OwnedOptions(tables, self._owners, operations)
        self._indexes = _OwnedIndexes(tables, self._owners, indexes)

    def shard_added(self, shard: str, indexes: Mapping[TableId, Mapping[IndexName, Mapping[str, Any]]]) -> None:
        """`indexes`: of the collections that it had when it was added."""
        for uuid, specs in indexes.items():
            self._indexes.add(uuid, shard, specs)

    def superseded(self, change: NewUuid) -> Iterator[ClusterChange]:
        return self._indexes.superseded(change)

    def take(self, shard: str, operation: Operation, at: Position) -> Iterator[ClusterChange]:
        ns = operation["ns"]
        if ns == str(CHUNKS):
            yield from self._indexes.chunk(operation, at)
        elif ns == str(COORDINATORS):
            yield from self.options.coordinator(operation, at)
        elif ns == str(SHARDS) and operation["op"] == GONE:
            gone = str(document_id(operation))
            self._owners.gone.add(gone)
            yield from self.options.without(gone, at)
        elif operation["op"] == "c" and (uuid := uuid_of(operation.get("ui"))) is not None:
            yield from self._command(shard, uuid, operation, at)

    def _command(self, shard: str, uuid: TableId, operation: Operation, at: Position) -> Iterator[ClusterChange]:
        o = operation["o"]
        command, by_user = next(iter(o)), uuid in self._tables.live and not operation.get("fromMigrate")
        if command == "create" and by_user:
            self._indexes.cloned(uuid, shard)
        elif command in _BUILT:
            yield from self._indexes.built(shard, uuid, operation, at)
        elif command in _DROPPED:
            yield from self._indexes.dropped(shard, uuid, operation, at)
        elif command == "collMod" and by_user:
            yield from self.options.modified(shard, uuid, operation, at)
        elif command == "drop":
            self._indexes.forget(uuid, shard)
        elif command == "renameCollection" and (target := uuid_of(o.get("dropTarget"))) is not None:
            self._indexes.forget(target, shard)


class _Doubt(Flag):
    """What is not known of the indexes of a UUID. Several may hold: a table that is known in part is sharded, and its owners are gone later.

    not sharded at the start  ── PARTLY ── resharded or moved: so is its next UUID
    sharded at the start      ── read ── nothing is in doubt
                              └─ not read, or no owner known ── UNKNOWN ── resharded: nothing is in doubt, if the next UUID was read
    all owners gone           ── UNTOLD ── the last of them has given its last chunk away: nothing is in doubt
    """

    NOTHING = 0
    UNREAD = auto()
    """It was there at the start, and no longer when indexes were read."""
    UNKNOWN = auto()
    """Sharded, and live: not all of its indexes are known, or nobody knows its owners."""
    PARTLY = auto()
    """Not sharded at the start: of the indexes that it had then nothing is known. If it is sharded later, its owners have all of these."""
    UNTOLD = auto()
    """All owners were gone, and the last of them has not given its last chunk away yet. Others tell which indexes there are, and not since when."""


_IN_DOUBT = _Doubt.UNKNOWN | _Doubt.PARTLY | _Doubt.UNTOLD
_NONE: frozenset[IndexName] = frozenset()
_NO_INDEXES: Mapping[IndexName, Any] = {}


@dataclass(slots=True)
class _Uuid:
    """What is known of the indexes of one UUID. A cluster may have 100,000: each value is shared until it changes."""

    doubt: _Doubt = _Doubt.NOTHING
    has: Mapping[IndexName, frozenset[str]] = field(default_factory=lambda: _NO_INDEXES)
    """The shards that have each."""
    specs: Mapping[IndexName, Mapping[str, Any]] = field(default_factory=lambda: _NO_INDEXES)
    shown: frozenset[IndexName] = _NONE
    """The indexes of the table as a whole."""
    copied: frozenset[IndexName] = _NONE
    """It is filled by a resharding: the indexes that some owner of the table has already."""
    built: frozenset[IndexName] = _NONE
    """While it is in doubt: what was built since the start."""
    dropped: frozenset[IndexName] = _NONE
    """Drops that were shown."""
    cloned: frozenset[str] = frozenset()
    """While it is live: the shards that a movePrimary gave it to."""

    def add(self, shard: str, name: IndexName, spec: Mapping[str, Any]) -> None:
        if name[0] != "_id_":
            self.has = {**self.has, name: self.has.get(name, frozenset()) | {shard}}
            self.specs = {**self.specs, name: spec}

    def lose(self, shard: str, name: IndexName) -> None:
        if name in self.has:
            self.has = {**self.has, name: self.has[name] - {shard}}

    def forget(self, shard: str) -> None:
        """The shard has dropped it."""
        self.cloned -= {shard}
        self.has = {name: shards - {shard} for name, shards in self.has.items()}
        if not any(self.has.values()):
            self.has = self.specs = _NO_INDEXES

    def on_all(self, owners: frozenset[str]) -> list[IndexName]:
        return [name for name, shards in self.has.items() if owners and owners <= shards]


class _OwnedIndexes:
    def __init__(self, tables: LiveTables, owners: Owners, reading: IndexReading) -> None:
        self._tables = tables
        self._owners = owners
        self._uuids: dict[TableId, _Uuid] = {}
        for uuid, by_shard in reading.items():
            for shard, specs in by_shard.items():
                self.add(uuid, shard, specs)
        for uuid in tables.held - reading.keys():
            self._of(uuid).doubt |= _Doubt.UNREAD
        for uuid in tables.live:
            known = self._of(uuid)
            if uuid in reading:
                known.shown = frozenset(known.on_all(owners.of(uuid)))
            else:
                known.doubt |= _Doubt.UNKNOWN if owners.sharded(uuid) else _Doubt.PARTLY

    def add(self, uuid: TableId, shard: str, specs: Mapping[IndexName, Mapping[str, Any]]) -> None:
        for name, spec in specs.items():
            self._of(uuid).add(shard, name, spec)

    def cloned(self, uuid: TableId, shard: str) -> None:
        self._of(uuid).cloned |= {shard}

    def forget(self, uuid: TableId, shard: str) -> None:
        self._of(uuid).forget(shard)

    def superseded(self, change: NewUuid) -> Iterator[ClusterChange]:
        """The indexes stay. One that only the new UUID has is new: resharding builds that of the new key, on all shards that it fills.

        The rest is shown now: also one that was copied from some owners to others, which lacked it. If nothing is known of the old one's, it is
        presumed to have had those that were copied, but for what was built since.
        """
        uuid, before, now = change.uuid, self._of(change.before), self._of(change.uuid)
        copied = now.copied - before.built
        now.shown, now.copied = before.shown, _NONE
        before.shown = before.built = _NONE
        if _Doubt.PARTLY in before.doubt:
            now.shown |= copied
            now.doubt |= _Doubt.PARTLY
        if not self._owners.sharded(uuid):
            now.shown |= now.has.keys()
            return
        known = not before.doubt & (_Doubt.UNKNOWN | _Doubt.UNTOLD) and not self._owners.only_gone(change.before)
        before.doubt &= ~_Doubt.UNTOLD
        owners, presumed = self._owners.of(uuid), _NONE if known else copied
        there = now.on_all(self._owners.all(uuid)) if owners else [*now.has]
        now.shown |= presumed.difference(there)
        yield from self._show(uuid, there, change.position, presumed)
        if not owners or _Doubt.UNREAD in now.doubt:
            now.doubt |= _Doubt.UNKNOWN

    def chunk(self, operation: Operation, at: Position) -> Iterator[ClusterChange]:
        """A chunk was moved, divided, or removed."""
        id = document_id(operation)
        before = self._owners.chunk(id)
        if before is not None and self._owners.only_gone(before[0]):
            self._of(before[0]).doubt |= _Doubt.UNTOLD
        self._owners.take(operation)
        after = self._owners.chunk(id)
        if before == after:
            return
        for uuid in {each[0] for each in (before, after) if each is not None}:
            if uuid in self._tables.live and self._owners.of(uuid):
                yield from self._new_indexes(uuid, at)

    def built(self, shard: str, uuid: TableId, operation: Operation, at: Position) -> Iterator[ClusterChange]:
        o, copied, known = operation["o"], operation.get("fromMigrate"), self._of(uuid)
        specs = {index_name(spec): spec for spec in o.get("indexes", [o])}
        for name, spec in specs.items():
            if copied:
                self._copied(uuid, name, spec)
            elif known.doubt & _IN_DOUBT and not self._is_clone(uuid, shard):
                known.built |= {name}
            known.add(shard, name, spec)
        if uuid not in self._tables.live or copied:
            return
        if self._owners.sharded(uuid):
            yield from self._new_indexes(uuid, at)
        elif shard in self._owners.of(uuid):
            known.shown |= specs.keys()
            yield from self._tables.live[uuid].events(operation, at)

    def dropped(self, shard: str, uuid: TableId, operation: Operation, at: Position) -> Iterator[ClusterChange]:
        name, known = index_name(operation.get("o2") or {"name": operation["o"]["index"], "key": {}}), self._of(uuid)
        known.lose(shard, name)
        if uuid not in self._tables.live:
            return
        owners = self._owners.of(uuid)
        if shard not in owners and (owners or _Doubt.UNKNOWN not in known.doubt):
            return
        if not self._owners.sharded(uuid):
            known.shown -= {name}
        elif name in known.shown:
            known.shown -= {name}
            known.dropped |= {name}
        elif known.doubt & (_Doubt.UNKNOWN | _Doubt.PARTLY) and name not in known.dropped:
            known.dropped |= {name}
        else:
            return
        yield from self._tables.live[uuid].events(operation, at)

    def _of(self, uuid: TableId) -> _Uuid:
        if uuid not in self._uuids:
            self._uuids[uuid] = _Uuid()
        return self._uuids[uuid]

    def _is_clone(self, uuid: TableId, shard: str) -> bool:
        """Whether a movePrimary is making the shard's collection after that of others, with their indexes. Its entries are not flagged."""
        return (
            shard in self._of(uuid).cloned
            and shard not in self._owners.by_chunks(uuid)
            and self._tables.primaries.get(self._tables.live[uuid].name.db) != shard
        )

    def _copied(self, uuid: TableId, name: IndexName, spec: Mapping[str, Any]) -> None:
        """By a resharding, or by a migration to a shard that gets its first chunk."""
        known = self._of(uuid)
        if uuid not in self._tables.live:
            known.copied |= {name}
        elif _Doubt.PARTLY in known.doubt and name not in known.has:
            for owner in self._owners.of(uuid):
                known.add(owner, name, spec)
            known.shown |= {name}

    def _new_indexes(self, uuid: TableId, at: Position) -> Iterator[ClusterChange]:
        known = self._of(uuid)
        if _Doubt.UNKNOWN in known.doubt:
            return
        untold, there = _Doubt.UNTOLD in known.doubt, known.on_all(self._owners.all(uuid))
        yield from self._show(uuid, there, at, frozenset(there) - known.built if untold else _NONE)
        if untold and not self._owners.by_chunks(uuid) & self._owners.gone:
            known.doubt &= ~_Doubt.UNTOLD

    def _show(
        self, uuid: TableId, names: Iterable[IndexName], at: Position, presumed: AbstractSet[IndexName]
    ) -> Iterator[ClusterChange]:
        """`presumed`: those of them that the table may have had before."""
        known = self._of(uuid)
        new = [name for name in names if name not in known.shown]
        known.shown = known.shown.union(new)
        if new:
            table, specs = self._tables.live[uuid], [_plain(known.specs[name]) for name in new]
            event = DdlEvent(
                position=at,
                type=DdlType.UNKNOWN,
                db=table.name.db,
                table=table.name,
                id=table.id,
                description=shown({"createIndexes": specs}),
            )
            try:
                said = indexes_description(specs, presumed=[name[0] for name in new if name in presumed])
            except Exception:  # noqa: BLE001  # whatever a definition holds concerns its table alone
                yield event
            else:
                yield replace(event, type=DdlType.CREATE_INDEXES, description=said)


def rewound_indexes(
    reading: IndexReading, operations: Mapping[str, Iterable[Operation]]
) -> dict[TableId, dict[str, dict[IndexName, Mapping[str, Any]]]]:
    """The indexes at the time from which each shard's operations are. The first entry about an index says what was before."""
    found = {uuid: {shard: dict(each) for shard, each in shards.items()} for uuid, shards in reading.items()}
    for shard, of_shard in operations.items():
        known: dict[TableId, set[IndexName]] = defaultdict(set)
        for operation in of_shard:
            uuid, o = uuid_of(operation.get("ui")), operation["o"]
            if operation["op"] != "c" or uuid is None or uuid not in found:
                continue
            command = next(iter(o))
            here = found[uuid].setdefault(shard, {})
            if command in _BUILT:
                for name in [index_name(spec) for spec in o.get("indexes", [o])]:
                    if name not in known[uuid]:
                        here.pop(name, None)
                    known[uuid].add(name)
            elif command in _DROPPED and "o2" in operation:
                name = index_name(operation["o2"])
                if name not in known[uuid]:
                    here[name] = operation["o2"]
                known[uuid].add(name)
    return found


def index_name(spec: Mapping[str, Any]) -> IndexName:
    """The key of an index among those of a collection."""
    return str(spec["name"]), shown(dict(spec.get("key", {})))


def _plain(spec: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in spec.items() if name not in _BUILT}
