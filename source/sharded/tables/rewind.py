"""`rewound`: the state of a cluster's catalogs at an earlier time, from a later reading and the entries in between. Pure.

The first entry since then tells what stood before it. The reading may be from any time in between, or from several:

    first entry since then            then
    create of a UUID                  no shard's copy: not there
    drop, or replaced by a rename     there, under the name in the entry
    rename from A                     there, as A
    none                              as the reading says

The config servers' entries say less: an update has the new value alone, a delete none. So for what they changed, the last entry before
that time has to be found (`EarlierEntries`). If it is gone, a name that was sharded then has the UUID that the database's primary shard
had under it, as a primary shard always holds its sharded collections, unless a rename was on its way just then. Of a rename that some
shards have logged and others have not, the primary shard's last entry before that time tells what no catalog does: the name of an unsharded
collection before it replaces a sharded one, and the UUID of an unsharded one that a sharded one replaces.

`LeftTables`, `left_tables`: which tables a shard may have had at a time after which it was removed, as the config servers tell.

A shard that is removed owns nothing any more. So what it had at an earlier time has left it since, and each way leaves entries:

    config.chunks        a chunk that names the shard, now or in its history
                         a chunk whose history does not reach back to that time: it may have been anywhere
    config.collections   another UUID: a resharding, whose donors are not known
    config.databases     another primary shard, or a drop: it may have had the unsharded tables of the database
                         (the drop of one of these leaves nothing: the database moves later, or is dropped)
    config.collections   a drop, which leaves the name only: its owners are not known. The entry of a renamed one is deleted, too, and another
                         one is inserted with its UUID, which may be dropped or resharded later

It may name too many tables, never too few.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from changefeed.cluster_time import ClusterTime
from changefeed.errors import HistoryLost
from changefeed.table import TableId, TableName
from source.ddl_description import is_utf8, uuid_of
from source.sharded.effective_order import Operation
from source.sharded.tables.cluster_state import (
    CHUNKS,
    COLLECTIONS,
    DATABASES,
    BegunRename,
    ClusterState,
    changed_field,
    document_id,
    table_name,
)


class EarlierEntries(Protocol):
    """What the config servers' last entries before the time say."""

    def primary(self, db: str) -> str: ...

    def uuid(self, name: TableName) -> TableId | None:
        """None if no entry is left."""
        ...

    def rename(self, shard: str, uuid: TableId) -> BegunRename | None:
        """A shard's last one of a UUID, if it is not old."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigReading:
    sharded: Mapping[TableName, TableId]
    primaries: Mapping[str, str]
    filling: frozenset[TableId] = frozenset()
    """What a resharding fills."""


def rewound(
    config: ConfigReading,
    config_entries: Iterable[Operation],
    shards: Mapping[str, Mapping[TableId, TableName]],
    shard_entries: Mapping[str, Iterable[Operation]],
    earlier: EarlierEntries,
) -> ClusterState:
    """The operations are those since the time, of each stream in order."""
    primaries, touched = _rewound_config(config, config_entries, earlier)
    holders: dict[TableId, dict[str, TableName]] = {}
    by_name: dict[tuple[str, TableName], TableId] = {}
    for shard, reading in shards.items():
        for each, name in rewound_shard(reading, shard_entries.get(shard, ())).items():
            holders.setdefault(each, {})[shard] = name
            by_name[shard, name] = each
    sharded = {name: uuid for name, uuid in config.sharded.items() if name not in touched.decided}
    for name in touched.sharded_then:
        uuid = earlier.uuid(name) or _of_primary(name, primaries, by_name, holders, earlier)
        if uuid is None and not is_utf8(name):
            continue
        if uuid is None:
            raise HistoryLost(
                f"which UUID {name} had is unknown: the config servers' oplog no longer says it, and a rename was on its way; "
                "remove the changefeed and create it again with a new initial copy"
            )
        sharded[name] = uuid
    renaming: dict[TableId, BegunRename] = {}
    for name, number in sharded.items():
        shard = primaries.get(name.db, "")
        mine, there = holders.get(number, {}), by_name.get((shard, name))
        if len({each for each in mine.values() if not each.system}) > 1 and mine.get(shard, name) != name:
            begun = shard, number
        elif there not in (None, number) and mine and shard not in mine:
            assert there is not None
            begun = shard, there
        else:
            continue
        rename = earlier.rename(*begun)
        if rename is None:
            raise HistoryLost(
                f"{begun[1]} was being renamed, and the oplog of shard {shard} no longer says from which name; "
                "remove the changefeed and create it again with a new initial copy"
            )
        renaming[begun[1]] = rename
    return ClusterState(sharded=sharded, primaries=primaries, holders=holders, renaming=renaming)


def _of_primary(
    name: TableName,
    primaries: Mapping[str, str],
    by_name: Mapping[tuple[str, TableName], TableId],
    holders: Mapping[TableId, Mapping[str, TableName]],
    earlier: EarlierEntries,
) -> TableId | None:
    shard = primaries.get(name.db, "")
    held = by_name.get((shard, name))
    if held is None or len(set(holders[held].values())) > 1:
        return None
    rename = earlier.rename(shard, held)
    if rename is not None and rename.to == name and rename.target in holders:
        return rename.target
    return held


@dataclass(slots=True)
class _Touched:
    decided: set[TableName] = field(default_factory=set)
    """Names about which an entry, not the reading, decides."""
    sharded_then: set[TableName] = field(default_factory=set)
    """Those of them that were sharded, with a UUID that the entry does not say."""


def _rewound_config(
    config: ConfigReading, operations: Iterable[Operation], earlier: EarlierEntries
) -> tuple[dict[str, str], _Touched]:
    touched, primaries, known = _Touched(), dict(config.primaries), set[str]()
    for operation in operations:
        op, ns = operation["op"], operation["ns"]
        if op not in ("i", "u", "d"):
            continue
        if ns == str(DATABASES):
            db = document_id(operation)
            if db in known or (op == "u" and changed_field(operation, "primary") is None):
                continue
            known.add(db)
            if op == "i":
                primaries.pop(db, None)
            else:
                primaries[db] = earlier.primary(db)
        elif ns == str(COLLECTIONS):
            name = table_name(document_id(operation))
            if (
                name is None
                or name.system
                or name in touched.decided
                or (op == "u" and changed_field(operation, "uuid") is None)
            ):
                continue
            touched.decided.add(name)
            if op != "i":
                touched.sharded_then.add(name)
    return primaries, touched


def rewound_shard(reading: Mapping[TableId, TableName], operations: Iterable[Operation]) -> dict[TableId, TableName]:
    """The collections of one shard at the time from which the operations are."""
    found, known = dict(reading), set[TableId]()

    def first(uuid: TableId | None, name: TableName | None) -> None:
        if uuid is None or uuid in known:
            return
        known.add(uuid)
        if name is None:
            found.pop(uuid, None)
        else:
            found[uuid] = name

    for operation in operations:
        o, db = operation["o"], operation["ns"].partition(".")[0]
        if operation["op"] != "c" or db in ("admin", "config", "local"):
            continue
        uuid = uuid_of(operation.get("ui"))
        if "create" in o:
            first(uuid, None)
        elif "drop" in o:
            first(uuid, TableName(db, o["drop"]))
        elif "renameCollection" in o:
            first(uuid, TableName.parse(o["renameCollection"]))
            first(uuid_of(o.get("dropTarget")), TableName.parse(o["to"]))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftTables:
    """What it may have had at a time: `uuids` of sharded tables, and the `databases` whose unsharded ones it may have had. `all`: nobody knows.

    Of sharded tables that were dropped since, the names are known: `dropped`. So are those that only have another name now, which `named` has.
    """

    uuids: frozenset[TableId] = frozenset()
    databases: frozenset[str] = frozenset()
    dropped: frozenset[TableName] = frozenset()
    named: frozenset[TableId] = frozenset()
    all: bool = False

    def may_have(self, name: TableName, uuids: Iterable[TableId]) -> bool:
        """`uuids`: all that the table has had."""
        of_table = frozenset(uuids)
        ended = name in self.dropped and self.named.isdisjoint(of_table)
        return self.all or ended or name.db in self.databases or not self.uuids.isdisjoint(of_table)


def left_tables(shard: str, since_ts: ClusterTime, operations: Iterable[Operation]) -> LeftTables:
    """`operations`: of the config servers, from that time to the removal or beyond."""
    uuids: set[TableId] = set()
    databases: set[str] = set()
    dropped: set[TableName] = set()
    named: dict[TableId, TableName] = {}
    for operation in operations:
        op, ns, o = operation["op"], operation["ns"], operation["o"]
        if ns == str(DATABASES) and (op == "d" or changed_field(operation, "primary") is not None):
            databases.add(str(document_id(operation)))
        elif ns == str(COLLECTIONS) and (name := table_name(document_id(operation))) is not None:
            uuid = uuid_of(changed_field(operation, "uuid"))
            if op == "d" or uuid is not None:
                named = {other: given for other, given in named.items() if given != name}
            if op == "d":
                dropped.add(name)
            elif op == "u" and uuid is not None:
                uuids.add(uuid)
            elif uuid is not None:
                named[uuid] = name
        elif ns == str(CHUNKS) and "_id" in o and (uuid := uuid_of(o.get("uuid"))) is not None:
            history = o.get("history", ())
            owners = {str(o["shard"]), *(str(each["shard"]) for each in history)}
            known_since = min((ClusterTime.from_bson(each["validAfter"]) for each in history), default=None)
            if shard in owners or known_since is None or known_since >= since_ts:
                uuids.add(uuid)
    return LeftTables(
        uuids=frozenset(uuids), databases=frozenset(databases), dropped=frozenset(dropped), named=frozenset(named)
    )
