"""`OwnedDdl`: indexes and options of a cluster's tables, which each shard changes by itself. Pure.

Of a sharded table, only shards that own chunks count: another holder, even the database's primary shard, need not have any of them.

    createIndexes, commitIndexBuild    when all owners have the index: at the last owner's entry, or where the last shard without it
                                       gives its last chunk away. An index that stands on some owners only is no DDL yet
    dropIndexes                        at the first owner's entry, as it may end a unique index
    collMod                            at the last owner's entry; at the first if it ends the uniqueness of an index, and before 6.0:
                                       no coordinator's end tells there of a shard's entry before the start

A table that is not sharded has one owner, its database's primary shard.

Which shard has which index at a start is read (`IndexReading`). Of a table that was dropped since, nothing is known, but it ends anyway:
only what its shards drop is shown. A collMod is shown at its coordinator's end if that began before the start. If the owners are unknown, those of a
UUID that ended since a start which the config servers no longer remember, a collMod's are the shards that have logged it: all entries up to its end
were read before. A drop is shown at the first entry of any shard then, and what is built at the table's next UUID.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from changefeed.documents.document import Document
from changefeed.event import DdlEvent, DdlType
from changefeed.position import Position
from changefeed.table import TableId
from source.ddl_description import indexes_description, uuid_of
from source.sharded.effective_order import Operation
from source.sharded.tables.cluster_state import (
    CHUNKS,
    COORDINATORS,
    GONE,
    SHARDS,
    ClusterChange,
    NewUuid,
    document_id,
    events_of,
)
from source.sharded.tables.live_tables import LiveTables

IndexName: TypeAlias = tuple[str, Document]
"""Name and key. Options may change by a collMod."""
IndexReading: TypeAlias = Mapping[TableId, Mapping[str, Mapping[IndexName, Mapping[str, Any]]]]
"""By UUID and shard: the indexes with their specifications."""
ChunkReading: TypeAlias = Mapping[Any, tuple[TableId, str]]
"""By the chunk's `_id`: the UUID and the owner."""

_BUILT = ("createIndexes", "commitIndexBuild")
_DROPPED = ("dropIndexes", "deleteIndexes")


@dataclass(slots=True)
class _Modification:
    shards: set[str] = field(default_factory=set)
    shown: bool = False
    name: str = ""


@dataclass(slots=True)
class OwnedDdl:
    """`take` is called with each operation before `LiveTables` takes it, and `superseded` with each new UUID that it shows."""

    _tables: LiveTables
    _chunks: dict[Any, tuple[TableId, str]] = field(default_factory=dict)
    _counts: dict[TableId, Counter[str]] = field(default_factory=dict)
    """By UUID: how many chunks each shard owns."""
    _has: dict[TableId, dict[IndexName, set[str]]] = field(default_factory=dict)
    _specs: dict[TableId, dict[IndexName, Mapping[str, Any]]] = field(default_factory=dict)
    _shown: dict[TableId, set[IndexName]] = field(default_factory=dict)
    """The indexes of the table as a whole."""
    _copied: dict[TableId, set[IndexName]] = field(default_factory=dict)
    """Of what a resharding fills: the indexes that some owner of the table has already."""
    _unread: set[TableId] = field(default_factory=set)
    """There at the start, and no longer when indexes were read."""
    _unknown: set[TableId] = field(default_factory=set)
    """Sharded, and live: not all of their indexes are known, or nobody knows their owners."""
    _partly: set[TableId] = field(default_factory=set)
    """Not sharded at the start: of the indexes that they had then nothing is known. If one is sharded later, its owners have all of these."""
    _untold: set[TableId] = field(default_factory=set)
    """All owners were gone, and the last of them has not given its last chunk away yet: then others tell which indexes there are, and not since when."""
    _built: dict[TableId, set[IndexName]] = field(default_factory=dict)
    """Of tables that are unknown, untold, or known in part: what was built since the start."""
    _cloned: set[tuple[TableId, str]] = field(default_factory=set)
    """Live UUIDs, and shards that a movePrimary gave them to."""
    _dropped: set[tuple[TableId, IndexName]] = field(default_factory=set)
    """Of tables that are unknown, or known in part: drops that were shown."""
    _modified: dict[tuple[TableId, Document], _Modification] = field(default_factory=dict)
    _logged: dict[tuple[TableId, Document], set[str]] = field(default_factory=dict)
    """Of UUIDs without known owners: the shards that log a collMod."""
    _gone: set[str] = field(default_factory=set)
    """Shards that were removed and cannot be read: what they have is not known, and does not count."""
    coordinated: bool = True
    """Whether a collMod has a coordinator: from 6.0 on."""
    _last_modified: dict[TableId, tuple[Document, set[str]]] = field(default_factory=dict)
    """Without coordinators: the last collMod of a table, and the shards that have logged it."""
    _begun: set[Document] = field(default_factory=set)
    """Coordinators that began after the start."""

    @classmethod
    def of(
        cls,
        tables: LiveTables,
        chunks: ChunkReading,
        indexes: IndexReading,
        operations: Mapping[str, Iterable[Operation]] = {},
        gone: Iterable[str] = (),
    ) -> OwnedDdl:
        """`operations`: those of each shard since the start, as far as they were read."""
        owned = cls(tables, _gone=set(gone))
        for id, (uuid, shard) in chunks.items():
            owned._own(id, uuid, shard)
        for uuid, by_shard in indexes.items():
            for shard, found in by_shard.items():
                for name, spec in found.items():
                    owned._add(uuid, shard, name, spec)
        logged = _loggers(operations)
        owned._unread = set(tables.held - indexes.keys())
        owned._logged = {key: shards for key, shards in logged.items() if key[0] not in owned._counts}
        for uuid in tables.live:
            if uuid in indexes:
                owned._shown[uuid] = set(owned._on_all(uuid, owned.owners(uuid)))
            elif owned._sharded(uuid):
                owned._unknown.add(uuid)
            else:
                owned._partly.add(uuid)
        return owned

    def shard_added(self, shard: str, indexes: Mapping[TableId, Mapping[IndexName, Mapping[str, Any]]]) -> None:
        """`indexes`: of the collections that it had when it was added."""
        for uuid, found in indexes.items():
            for name, spec in found.items():
                self._add(uuid, shard, name, spec)

    def take(self, shard: str, operation: Operation, at: Position) -> Iterator[ClusterChange]:
        ns = operation["ns"]
        if ns == str(CHUNKS):
            yield from self._chunk(operation, at)
        elif ns == str(COORDINATORS):
            yield from self._coordinator(operation, at)
        elif ns == str(SHARDS) and operation["op"] == GONE:
            yield from self._without(str(document_id(operation)), at)
        elif operation["op"] == "c" and (uuid := uuid_of(operation.get("ui"))) is not None:
            yield from self._command(shard, uuid, operation, at)

    def superseded(self, change: NewUuid) -> Iterator[ClusterChange]:
        """The indexes stay. One that only the new UUID has is new: resharding builds that of the new key, on all shards that it fills.

        The rest is shown now: also one that was copied from some owners to others, which lacked it. If nothing is known of the old one's, it is
        presumed to have had those that were copied, but for what was built since.
        """
        uuid, has = change.uuid, self._has.get(change.uuid, {})
        copied = self._copied.pop(uuid, set()) - self._built.pop(change.before, set())
        self._shown[uuid] = self._shown.pop(change.before, set())
        if change.before in self._partly:
            self._shown[uuid] |= copied
            self._partly.add(uuid)
        if not self._sharded(uuid):
            self._shown[uuid] |= has.keys()
            return
        known = change.before not in self._unknown | self._untold and not self._only_gone(change.before)
        self._untold.discard(change.before)
        owners, presumed = self.owners(uuid), set() if known else copied
        there = self._complete(uuid) if owners else [*has]
        self._shown[uuid] |= presumed.difference(there)
        yield from self._show(uuid, there, change.position, presumed)
        if not owners or uuid in self._unread:
            self._unknown.add(uuid)

    def owners(self, uuid: TableId) -> frozenset[str]:
        """The shards whose entries count for a live UUID, as far as they can be read."""
        table = self._tables.live[uuid]
        primary = self._tables.owner_by_name(table.name)
        if primary is not None:
            return frozenset({primary})
        return self._owning(uuid) - self._gone

    def _owning(self, uuid: TableId) -> frozenset[str]:
        return frozenset(shard for shard, chunks in self._counts.get(uuid, Counter()).items() if chunks)

    def _command(self, shard: str, uuid: TableId, operation: Operation, at: Position) -> Iterator[ClusterChange]:
        o = operation["o"]
        command = next(iter(o))
        if command == "create" and uuid in self._tables.live and not operation.get("fromMigrate"):
            self._cloned.add((uuid, shard))
        elif command in _BUILT:
            yield from self._index_built(shard, uuid, operation, at)
        elif command in _DROPPED:
            yield from self._index_dropped(shard, uuid, operation, at)
        elif command == "collMod" and uuid in self._tables.live and not operation.get("fromMigrate"):
            yield from self._options_changed(shard, uuid, operation, at)
        elif command == "drop":
            self._forget(uuid, shard)
        elif command == "renameCollection" and (target := uuid_of(o.get("dropTarget"))) is not None:
            self._forget(target, shard)

    def _index_built(self, shard: str, uuid: TableId, operation: Operation, at: Position) -> Iterator[ClusterChange]:
        o, copied = operation["o"], operation.get("fromMigrate")
        specs = {index_name(spec): spec for spec in o.get("indexes", [o])}
        for name, spec in specs.items():
            if copied:
                self._index_copied(uuid, name, spec)
            elif uuid in self._unknown | self._partly | self._untold and not self._is_clone(uuid, shard):
                self._built.setdefault(uuid, set()).add(name)
            self._add(uuid, shard, name, spec)
        if uuid not in self._tables.live or copied:
            return
        if self._sharded(uuid):
            yield from self._new_indexes(uuid, at)
        elif shard in self.owners(uuid):
            self._shown.setdefault(uuid, set()).update(specs)
            yield from self._as_the_table(uuid, operation, at)

    def _is_clone(self, uuid: TableId, shard: str) -> bool:
        """Whether a movePrimary is making the shard's collection after that of others, with their indexes. Its entries are not flagged."""
        return (
            (uuid, shard) in self._cloned
            and not self._counts.get(uuid, Counter())[shard]
            and self._tables.primaries.get(self._tables.live[uuid].name.db) != shard
        )

    def _index_copied(self, uuid: TableId, name: IndexName, spec: Mapping[str, Any]) -> None:
        """By a resharding, or by a migration to a shard that gets its first chunk."""
        if uuid not in self._tables.live:
            self._copied.setdefault(uuid, set()).add(name)
        elif uuid in self._partly and name not in self._has.get(uuid, {}):
            for owner in self.owners(uuid):
                self._add(uuid, owner, name, spec)
            self._shown.setdefault(uuid, set()).add(name)

    def _only_gone(self, uuid: TableId) -> bool:
        """Whether all shards that own chunks of it are gone."""
        owning = self._owning(uuid)
        return bool(owning) and owning <= self._gone

    def _new_indexes(self, uuid: TableId, at: Position) -> Iterator[ClusterChange]:
        if uuid in self._unknown:
            return
        untold, there = uuid in self._untold, self._complete(uuid)
        presumed = frozenset(there).difference(self._built.get(uuid, ())) if untold else frozenset()
        yield from self._show(uuid, there, at, presumed)
        if untold and not self._owning(uuid) & self._gone:
            self._untold.discard(uuid)

    def _show(
        self, uuid: TableId, names: Iterable[IndexName], at: Position, presumed: AbstractSet[IndexName] = frozenset()
    ) -> Iterator[ClusterChange]:
        """`presumed`: those of them that the table may have had before."""
        shown = self._shown.setdefault(uuid, set())
        new = [name for name in names if name not in shown]
        shown.update(new)
        if new:
            table = self._tables.live[uuid]
            yield DdlEvent(
                position=at,
                type=DdlType.CREATE_INDEXES,
                db=table.name.db,
                table=table.name,
                id=table.id,
                description=indexes_description(
                    (_plain(self._specs[uuid][name]) for name in new),
                    presumed=[name[0] for name in new if name in presumed],
                ),
            )

    def _index_dropped(self, shard: str, uuid: TableId, operation: Operation, at: Position) -> Iterator[ClusterChange]:
        name = index_name(operation.get("o2") or {"name": operation["o"]["index"], "key": {}})
        self._has.get(uuid, {}).get(name, set()).discard(shard)
        if uuid not in self._tables.live:
            return
        owners = self.owners(uuid)
        if shard not in owners and (owners or uuid not in self._unknown):
            return
        if not self._sharded(uuid):
            self._shown.get(uuid, set()).discard(name)
            yield from self._as_the_table(uuid, operation, at)
        elif name in self._shown.get(uuid, ()):
            self._shown[uuid].discard(name)
            self._dropped.add((uuid, name))
            yield from self._as_the_table(uuid, operation, at)
        elif uuid in self._unknown | self._partly and (uuid, name) not in self._dropped:
            self._dropped.add((uuid, name))
            yield from self._as_the_table(uuid, operation, at)

    def _options_changed(
        self, shard: str, uuid: TableId, operation: Operation, at: Position
    ) -> Iterator[ClusterChange]:
        key = uuid, Document.of(operation["o"])
        owners = self.owners(uuid) or frozenset(self._logged.get(key, ()))
        if owners and shard not in owners:
            return
        if not self.coordinated:
            last, shards = self._last_modified.get(uuid, (None, set()))
            repeated = last == key[1] and shard not in shards
            self._last_modified[uuid] = key[1], {*shards, shard} if repeated else {shard}
            if not repeated:
                yield from self._as_the_table(uuid, operation, at)
            return
        found = self._modified.setdefault(key, _Modification(name=str(self._tables.live[uuid].name)))
        found.shards.add(shard)
        whole = bool(owners) and owners <= found.shards
        if not found.shown and (whole or _ends_uniqueness(operation["o"])):
            found.shown = True
            yield from self._as_the_table(uuid, operation, at)
        if whole:
            del self._modified[key]

    def _coordinator(self, operation: Operation, at: Position) -> Iterator[ClusterChange]:
        id = (operation.get("o2") or operation["o"])["_id"]
        if operation["op"] == "i":
            self._begun.add(Document.of(id))
        elif operation["op"] == "d":
            began = Document.of(id) in self._begun
            self._begun.discard(Document.of(id))
            ended = [key for key, each in self._modified.items() if each.name == id.get("namespace")]
            for uuid, o in ended:
                found = self._modified.pop((uuid, o))
                if uuid not in self._tables.live or found.shown:
                    continue
                if not began or not self.owners(uuid):
                    command = {"op": "c", "ns": f"{found.name.partition('.')[0]}.$cmd", "o": o.decode()}
                    yield from self._as_the_table(uuid, command, at)

    def _chunk(self, operation: Operation, at: Position) -> Iterator[ClusterChange]:
        id, o = document_id(operation), operation["o"]
        before = self._chunks.get(id)
        if before is not None and self._only_gone(before[0]):
            self._untold.add(before[0])
        if operation["op"] == "d":
            self._disown(id)
        elif "_id" in o and (uuid := uuid_of(o.get("uuid"))) is not None:
            self._disown(id)
            self._own(id, uuid, str(o["shard"]))
        touched = {each[0] for each in (before, self._chunks.get(id)) if each is not None}
        for uuid in touched:
            if before != self._chunks.get(id) and uuid in self._tables.live and self.owners(uuid):
                yield from self._new_indexes(uuid, at)

    def _without(self, shard: str, at: Position) -> Iterator[ClusterChange]:
        """A collMod that waited for this shard is whole. An index waits until the shard has given its last chunk away, to a shard that has it or not."""
        self._gone.add(shard)
        for uuid in [uuid for uuid, counts in self._counts.items() if counts[shard]]:
            if uuid not in self._tables.live:
                continue
            for (of, o), found in list(self._modified.items()):
                if of == uuid and self.owners(uuid) <= found.shards:
                    del self._modified[of, o]
                    command = {"op": "c", "ns": f"{self._tables.live[uuid].name.db}.$cmd", "o": o.decode()}
                    yield from () if found.shown else self._as_the_table(uuid, command, at)

    def _own(self, id: Any, uuid: TableId, shard: str) -> None:
        self._chunks[id] = uuid, shard
        self._counts.setdefault(uuid, Counter())[shard] += 1

    def _disown(self, id: Any) -> None:
        if id in self._chunks:
            uuid, shard = self._chunks.pop(id)
            self._counts[uuid][shard] -= 1
            if not any(self._counts[uuid].values()):
                del self._counts[uuid]

    def _as_the_table(self, uuid: TableId, operation: Operation, at: Position) -> Iterator[ClusterChange]:
        table = self._tables.live[uuid]
        for event in events_of(operation, at):
            yield replace(event, id=table.id, table=table.name)

    def _sharded(self, uuid: TableId) -> bool:
        return self._tables.owner_by_name(self._tables.live[uuid].name) is None

    def _complete(self, uuid: TableId) -> list[IndexName]:
        return self._on_all(uuid, self._owning(uuid) if self._sharded(uuid) else self.owners(uuid))

    def _on_all(self, uuid: TableId, owners: frozenset[str]) -> list[IndexName]:
        return [name for name, shards in self._has.get(uuid, {}).items() if owners and owners <= shards]

    def _add(self, uuid: TableId, shard: str, name: IndexName, spec: Mapping[str, Any]) -> None:
        if name[0] != "_id_":
            self._has.setdefault(uuid, {}).setdefault(name, set()).add(shard)
            self._specs.setdefault(uuid, {})[name] = spec

    def _forget(self, uuid: TableId, shard: str) -> None:
        self._cloned.discard((uuid, shard))
        for shards in self._has.get(uuid, {}).values():
            shards.discard(shard)
        if not any(self._has.get(uuid, {}).values()):
            self._has.pop(uuid, None)
            self._specs.pop(uuid, None)


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
    return str(spec["name"]), Document.of(dict(spec.get("key", {})))


def _loggers(operations: Mapping[str, Iterable[Operation]]) -> dict[tuple[TableId, Document], set[str]]:
    """Of each collMod."""
    found: dict[tuple[TableId, Document], set[str]] = defaultdict(set)
    for shard, of_shard in operations.items():
        for operation in of_shard:
            uuid, o = uuid_of(operation.get("ui")), operation["o"]
            if operation["op"] == "c" and "collMod" in o and uuid is not None:
                found[uuid, Document.of(o)].add(shard)
    return found


def _plain(spec: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in spec.items() if name not in _BUILT}


def _ends_uniqueness(o: Mapping[str, Any]) -> bool:
    index = o.get("index", {})
    return isinstance(index, Mapping) and (
        index.get("forceNonUnique") is True or index.get("prepareUnique") is False or index.get("unique") is False
    )
