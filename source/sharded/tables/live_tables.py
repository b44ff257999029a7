"""`LiveTables`: which UUID is which table of a cluster, and the DDL that the streams of all shards show together. Pure.

A collection has one UUID on all shards that hold it, and each holder logs a DDL for itself. What an entry means follows from the state:

    config.collections   sharded     shop.items is uuid 1          the UUID that config.collections gives a name is live,
    config.databases     primaries   shop is on sa                 else the one that the database's primary shard has under it
    creates, drops       holders     1: {sa, sb}, 2: {sc}

    drop of 1 on sb, then on sa               a drop, at the entry on sa: the last holder's
    renames of 1 on sa and sb                 a rename, at the later entry
    config.databases: shop is on sc           the table's live UUID becomes the one that sc has under its name: the table is the same
    config.collections: shop.items is uuid 3  the same, after 3 was filled as system.resharding: the end of a resharding
    create, rename or drop of 2               nothing, as 2 is not live: the copy of a movePrimary, a superseded drop

A change that the state cannot explain is a DDL of its table that nobody can follow (`not_followed`): the holders were wrong, and no guess would be
safe for the rows. From there on the newest entry says which UUID is live, so that the table can be copied anew and be followed again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from changefeed.documents.document import Document
from changefeed.event import DdlEvent, DdlType
from changefeed.position import Position
from changefeed.table import ALL_VIEWS, TableId, TableName
from source.ddl_description import uuid_of
from source.sharded.effective_order import Operation
from source.sharded.tables.cluster_state import (
    COLLECTIONS,
    COORDINATORS,
    DATABASES,
    GONE,
    RESHARDING,
    SHARDS,
    ClusterChange,
    ClusterState,
    NewUuid,
    changed_field,
    document_id,
    events_of,
    not_followed,
    sharded_by,
    table_name,
    wall_of,
)

_TO_CAPPED = ".convertToCapped."


@dataclass(frozen=True, slots=True)
class LiveTable:
    id: TableId
    name: TableName

    def events(self, operation: Operation, at: Position) -> Iterator[DdlEvent]:
        """What the entry of one shard means as DDL of the table, whatever the name and UUID that it has there."""
        for event in events_of(operation, at):
            yield replace(event, id=self.id, table=self.name)


@dataclass(slots=True)
class LiveTables:
    """`of` gives the state at a time; `take` is then called with each operation from that time on, in effective order."""

    _sharded: dict[TableName, TableId] = field(default_factory=dict)
    _primaries: dict[str, str] = field(default_factory=dict)
    _holders: dict[TableId, dict[str, TableName]] = field(default_factory=dict)
    _live: dict[TableId, LiveTable] = field(default_factory=dict)
    _by_name: dict[TableName, TableId] = field(default_factory=dict)
    _ids: dict[TableId, TableId] = field(default_factory=dict)
    """The table of each UUID that is or was live."""
    _views: dict[str, tuple[TableName, ...]] = field(default_factory=dict)
    """Those that an added shard brings, by shard."""
    _ending: set[TableId] = field(default_factory=set)
    """Live UUIDs of which one holder has logged a drop or rename, and another has not."""
    _unlisted: TableId | None = None
    """What config.collections had last and has no more. Of a renamed one, the next entry has the new name."""

    @classmethod
    def of(cls, state: ClusterState, ids: Mapping[TableId, TableId] = {}) -> LiveTables:
        """`ids`: the tables of UUIDs that superseded their first one."""
        tables = cls(
            dict(state.sharded),
            dict(state.primaries),
            {uuid: dict(names) for uuid, names in state.holders.items()},
            _ids=dict(ids),
        )
        for uuid, name in tables._found_live():
            tables._begin(uuid, name, tables._ids.get(uuid, uuid))
        for uuid, rename in state.renaming.items():
            for each, name in ((uuid, rename.before), (rename.target, rename.to)):
                if each is not None and each not in tables._live and name not in tables._by_name:
                    tables._begin(each, name, tables._ids.get(each, each))
        for uuid, table in tables._live.items():
            if tables._names(uuid) - {table.name}:
                tables._ending.add(uuid)
        return tables

    @property
    def ids(self) -> Mapping[TableId, TableId]:
        """Of each UUID, its table. UUIDs that ended are kept: rows before their end may still be read."""
        return self._ids

    @property
    def live(self) -> Mapping[TableId, LiveTable]:
        """By the UUID that is live now."""
        return self._live

    @property
    def primaries(self) -> Mapping[str, str]:
        """The primary shard of each database."""
        return self._primaries

    def owner_by_name(self, name: TableName) -> str | None:
        """The shard of a table that is not sharded."""
        return None if name in self._sharded else self._primaries.get(name.db)

    def holders(self, uuid: TableId) -> frozenset[str]:
        return frozenset(self._holders.get(uuid, {}))

    @property
    def held(self) -> AbstractSet[TableId]:
        """The UUIDs that a shard has now, live or not."""
        return self._holders.keys()

    def take(self, shard: str, operation: Operation, at: Position) -> Iterator[ClusterChange]:
        """`shard` is the stream's name; that of the config servers has the `config` collections that matter."""
        db, _, coll = operation["ns"].partition(".")
        if db == "config":
            yield from self._config(TableName(db, coll), operation, at)
        elif operation["op"] == "c" and db not in ("admin", "local"):
            yield from self._command(shard, db, operation, at)
        elif coll == ALL_VIEWS and shard == self._primaries.get(db) and not operation.get("fromMigrate"):
            yield from events_of(operation, at)

    def shard_added(self, shard: str, held: Mapping[TableId, TableName], views: Iterable[TableName] = ()) -> None:
        """`held`: the collections that it had when it was added. `views`: time series are among them."""
        self._views[shard] = tuple(views)
        for uuid, name in held.items():
            self._holders.setdefault(uuid, {})[shard] = name

    # The shards' entries.

    def _command(self, shard: str, db: str, operation: Operation, at: Position) -> Iterator[ClusterChange]:
        command = next(iter(operation["o"]))
        uuid = uuid_of(operation.get("ui"))
        match command:
            case "create" if uuid is not None:
                yield from self._created(shard, TableName(db, operation["o"]["create"]), uuid, operation, at)
            case "drop" if operation["o"]["drop"] == ALL_VIEWS:
                yield from events_of(operation, at) if shard == self._primaries.get(db) else ()
            case "drop" if uuid is not None:
                yield from self._dropped(shard, uuid, operation, at)
            case "renameCollection" if uuid is not None:
                yield from self._renamed(shard, uuid, operation, at)
            case "dropDatabase" if shard == self._primaries.get(db):
                yield from self._database_dropped(db, operation, at)

    def _created(
        self, shard: str, name: TableName, uuid: TableId, operation: Operation, at: Position
    ) -> Iterator[ClusterChange]:
        if name.system and not name.coll.startswith(RESHARDING):
            return
        self._holders.setdefault(uuid, {})[shard] = name
        new = uuid not in self._ids and not name.system
        if not new or self._primaries.get(name.db) != shard:
            return
        known = self._by_name.get(name)
        if known is not None:
            yield self._replaced(known, uuid, name, f"shard {shard} created UUID {uuid}, but its UUID was {known}", at)
            return
        self._begin(uuid, name, uuid)
        yield from events_of(operation, at)

    def _dropped(self, shard: str, uuid: TableId, operation: Operation, at: Position) -> Iterator[ClusterChange]:
        self._gone(uuid, shard)
        if uuid not in self._live:
            return
        if self._holders.get(uuid):
            self._ending.add(uuid)
            return
        name = self._live[uuid].name
        replacing = [other for other in self._live if other != uuid and name in self._names(other)]
        if replacing:
            yield from self._rename_complete(replacing[0], operation, at)
            return
        table = self._end(uuid)
        yield DdlEvent(position=at, type=DdlType.DROP, db=name.db, table=name, id=table.id, wall_ms=wall_of(operation))

    def _renamed(self, shard: str, uuid: TableId, operation: Operation, at: Position) -> Iterator[ClusterChange]:
        before = TableName.parse(operation["o"]["renameCollection"])
        to, target = TableName.parse(operation["o"]["to"]), uuid_of(operation["o"].get("dropTarget"))
        self._holders.setdefault(uuid, {})[shard] = to
        if target is not None:
            self._gone(target, shard)
        if before.passing and _TO_CAPPED in before.coll and target in self._live:
            said = f"convertToCapped: shard {shard} logs the rows that this writes as those of a migration"
            yield self._replaced(target, uuid, to, said, at)
        elif uuid in self._live:
            yield from self._rename_complete(uuid, operation, at)
        elif target in self._live:
            said = f"shard {shard} replaced it by UUID {uuid}, but by the config servers its UUID is {target}"
            yield self._replaced(target, uuid, to, said, at)

    def _rename_complete(self, uuid: TableId, operation: Operation, at: Position) -> Iterator[ClusterChange]:
        table, names = self._live[uuid], self._names(uuid)
        to = next(iter(names))
        target = self._by_name.get(to)
        if len(names) > 1 or (target not in (None, uuid) and self._holders.get(target or uuid)):
            self._ending.add(uuid)
            return
        self._ending.discard(uuid)
        if to == table.name:
            return
        replaced = self._end(target) if target is not None else None
        self._end(uuid)
        self._begin(uuid, to, table.id)
        yield DdlEvent(
            position=at,
            type=DdlType.RENAME,
            db=table.name.db,
            table=table.name,
            id=table.id,
            renamed_to=to,
            drop_target=replaced.id if replaced else None,
            wall_ms=wall_of(operation),
        )

    def _database_dropped(self, db: str, operation: Operation, at: Position) -> Iterator[ClusterChange]:
        for uuid in sorted(uuid for uuid, table in self._live.items() if table.name.db == db):
            table = self._end(uuid)
            yield not_followed(at, table.name, table.id, "its database was dropped, but no shard's drop of it was seen")
        yield from events_of(operation, at)

    # The config servers' entries, and the coordinators' documents on shards.

    def _config(self, ns: TableName, operation: Operation, at: Position) -> Iterator[ClusterChange]:
        if ns == COLLECTIONS:
            yield from self._collection_entry(operation, at)
        elif ns == DATABASES:
            yield from self._database_entry(operation, at)
        elif ns == SHARDS and operation["op"] in ("d", GONE):
            yield from self._shard_removed(str(document_id(operation)), operation, at)
        elif ns == COORDINATORS and operation["op"] == "d":
            yield from self._unfinished(operation, at)

    def _collection_entry(self, operation: Operation, at: Position) -> Iterator[ClusterChange]:
        name = table_name(document_id(operation))
        if name is None or name.system:
            return
        if operation["op"] == "d":
            self._unlisted = self._sharded.pop(name, None)
            return
        uuid = uuid_of(changed_field(operation, "uuid"))
        if uuid is None:
            return
        self._sharded[name] = uuid
        known = self._by_name.get(name)
        if known is None:
            yield self._replaced(uuid, uuid, name, f"no shard has created UUID {uuid}, with which it is sharded", at)
            return
        renamed = operation["op"] == "i" and uuid == self._unlisted
        if not renamed:
            yield from sharded_by(operation, at, self._live[known].id, name, resharded=known != uuid)
        if known != uuid:
            yield self._superseded(known, uuid, at)

    def _database_entry(self, operation: Operation, at: Position) -> Iterator[ClusterChange]:
        db = document_id(operation)
        if operation["op"] == "d":
            self._primaries.pop(db, None)
            return
        primary = changed_field(operation, "primary")
        if primary is None or primary == self._primaries.get(db):
            return
        if db not in self._primaries:
            self._primaries[db] = primary
            yield from self._brought(db, primary, operation, at)
            return
        self._primaries[db] = primary
        moved = {str(table.name): (uuid, table.name) for uuid, table in self._live.items() if table.name.db == db}
        for _, (uuid, name) in sorted(moved.items()):  # in the same order, wherever a reader began
            if name in self._sharded or primary in self._holders.get(uuid, {}):
                continue
            copies = [other for other, names in self._holders.items() if names.get(primary) == name]
            if len(copies) == 1:
                yield self._superseded(uuid, copies[0], at)
                continue
            said = f"its database is on shard {primary} now, which has {len(copies)} collections of this name"
            yield self._replaced(uuid, copies[-1] if copies else None, name, said, at)

    def _brought(self, db: str, shard: str, operation: Operation, at: Position) -> Iterator[DdlEvent]:
        """A shard was added that has collections already. To a changefeed each comes by a rename from a name that nobody wants.

        Views are not taken over: a changefeed that wants one stops.
        """
        for view in self._views.get(shard, ()):
            if view.db == db:
                said = Document.of({"cameWithShard": shard, "is": "a view or a time series"})
                yield DdlEvent(position=at, type=DdlType.UNKNOWN, db=db, table=view, description=said)
        names = {uuid: names[shard] for uuid, names in self._holders.items() if shard in names}
        held = {name: uuid for uuid, name in names.items() if name.db == db and not name.system}
        for name, uuid in sorted(held.items()):
            self._begin(uuid, name, uuid)
            yield DdlEvent(
                position=at,
                type=DdlType.RENAME,
                db=db,
                table=TableName(db, f"system.of_shard_{shard}.{name.coll}"),
                id=uuid,
                renamed_to=name,
                wall_ms=wall_of(operation),
            )

    def _shard_removed(self, shard: str, operation: Operation, at: Position) -> Iterator[ClusterChange]:
        """It had been drained. What it still holds is no part of a table, and its later entries are not read."""
        for uuid in sorted(uuid for uuid, names in self._holders.items() if shard in names):
            if uuid in self._ending:
                yield from self._dropped(shard, uuid, operation, at)
                if self._names(uuid) and uuid in self._live:
                    yield from self._rename_complete(uuid, operation, at)
            else:
                self._gone(uuid, shard)

    def _unfinished(self, operation: Operation, at: Position) -> Iterator[DdlEvent]:
        """A drop or a rename has ended of which the entry of some shard was not seen."""
        id = document_id(operation)
        for uuid in [uuid for uuid in self._ending if str(self._live[uuid].name) == id.get("namespace")]:
            table, shards = self._end(uuid), sorted(self._holders.get(uuid, {}))
            to = next(iter(sorted(self._names(uuid) - {table.name})), None)
            if to is not None and to not in self._by_name:
                self._begin(uuid, to, table.id)
            said = f"{id.get('operationType')} of it ended, but nothing was seen of it on shards {shards}, which have UUID {uuid}"
            yield not_followed(at, table.name, table.id, said, renamed_to=to)

    def _replaced(self, old: TableId, new: TableId | None, name: TableName, said: str, at: Position) -> DdlEvent:
        """Nobody knows how. `new` is live from here on, as a table of its own; `old` may be unknown."""
        known = self._end(old) if old in self._live else None
        if new is not None:
            if new in self._live:
                self._end(new)
            self._begin(new, name, new)
        if known is None:
            return not_followed(at, name, old, said)
        return not_followed(at, known.name, known.id, said, renamed_to=name if known.name != name else None)

    def _superseded(self, old: TableId, new: TableId, at: Position) -> NewUuid:
        table = self._end(old)
        self._begin(new, table.name, table.id)
        return NewUuid(at, table.id, old, new, table.name)

    # The state.

    def _found_live(self) -> Iterator[tuple[TableId, TableName]]:
        for name, uuid in self._sharded.items():
            settled = self._settled_name(uuid, name)
            if settled is not None:
                yield uuid, settled
        taken = set(self._sharded.values())
        for uuid, names in self._holders.items():
            if uuid in taken:
                continue
            for shard, name in names.items():
                free = name not in self._sharded or not self._holders.get(self._sharded[name])
                if not name.system and free and self._primaries.get(name.db) == shard:
                    yield uuid, name

    def _settled_name(self, uuid: TableId, name: TableName) -> TableName | None:
        """The name by config.collections, unless a rename or a drop of it is complete on all shards. None: dropped."""
        names = self._names(uuid)
        if not names and self._holders.get(uuid):
            return name
        if not names:
            arriving = {each for each in self._holders if name in self._names(each) and self._names(each) != {name}}
            return name if arriving else None
        to = next(iter(names))
        target = self._sharded.get(to)
        return to if len(names) == 1 and (target in (None, uuid) or not self._names(target or uuid)) else name

    def _names(self, uuid: TableId) -> set[TableName]:
        """A collection that is being filled by resharding has the table's name on the shards that are done."""
        return {name for name in self._holders.get(uuid, {}).values() if not name.system}

    def _begin(self, uuid: TableId, name: TableName, table: TableId) -> None:
        self._live[uuid], self._by_name[name], self._ids[uuid] = LiveTable(table, name), uuid, table

    def _end(self, uuid: TableId) -> LiveTable:
        table = self._live.pop(uuid)
        self._by_name.pop(table.name, None)
        self._ending.discard(uuid)
        return table

    def _gone(self, uuid: TableId, shard: str) -> None:
        names = self._holders.get(uuid, {})
        names.pop(shard, None)
        if not names:
            self._holders.pop(uuid, None)
