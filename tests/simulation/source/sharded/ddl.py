"""The DDL of a simulated cluster: what its coordinator, the database's primary shard, has written where, one step after another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from bson.binary import Binary
from bson.timestamp import Timestamp

from changefeed.cluster_time import ClusterTime
from changefeed.event import DdlType
from changefeed.table import TableName
from tests.simulation.source.oplog import Operation
from tests.simulation.source.sharded.placement import Chunk, PlacedTable
from tests.simulation.source.sharded.shard import Shard
from tests.simulation.source.tables import NotPossible
from tests.simulation.source.unique_index import duplicate_in, is_unique

if TYPE_CHECKING:
    from tests.simulation.source.sharded.acts import Act
    from tests.simulation.source.sharded.cluster import ClusterSource

_COORDINATORS = "config.system.sharding_ddl_coordinators"
_SECTIONS = "config.collection_critical_sections"
_SPLITS = (3, 50)
"""Where tables are divided that are sharded by `_id`, or by another field."""


def pause(cluster: ClusterSource) -> float:
    return cluster.machine.random.choice((0.0, 0.0, 0.001, 0.01, 0.3))


def settled(shards: Iterable[Shard]) -> Act:
    """A majority of each has all that it has written."""
    for shard in list(shards):
        yield shard, len(shard.oplog)


def document(shard: Shard, ns: str, op: str, of: Mapping[str, Any]) -> None:
    """A document of the server's own."""
    id = {"_id": of["_id"]}
    shard.write(Operation(op, ns, id if op == "d" else of, None if op == "d" else id))


def begin(cluster: ClusterSource, primary: Shard, ns: object, kind: str) -> Act:
    document(primary, _COORDINATORS, "i", {"_id": {"namespace": str(ns), "operationType": kind}, "phase": "commit"})
    yield from settled([primary])


def end(primary: Shard, ns: object, kind: str) -> None:
    document(primary, _COORDINATORS, "d", {"_id": {"namespace": str(ns), "operationType": kind}})


def decided(*tables: PlacedTable) -> Iterator[float]:
    """Their transactions are over, and no new one begins."""
    while any(table.undecided for table in tables):
        yield 0.05


def enter_section(cluster: ClusterSource, primary: Shard, shards: Iterable[Shard], *tables: PlacedTable) -> Act:
    """Nobody writes to them any more, and whatever comes next is later than all that was written."""
    for table in tables:
        table.blocked = True
    for shard in shards:
        cluster.tell(primary, shard)
        document(shard, _SECTIONS, "i", {"_id": str(tables[0].name), "reason": {"command": "x"}, "blockReads": False})
        yield pause(cluster)
    yield from settled(shards)
    cluster.tell_all(shards, primary)


def leave_section(
    cluster: ClusterSource, primary: Shard, shards: Iterable[Shard], ns: object, *tables: PlacedTable
) -> None:
    for shard in shards:
        cluster.tell(primary, shard)
        document(shard, _SECTIONS, "d", {"_id": str(ns)})
    for table in tables:
        table.blocked = False


def create_database(cluster: ClusterSource, db: str) -> Act:
    primary = cluster.machine.random.choice([shard.name for shard in cluster.takers])
    cluster.config.put("databases", cluster.database_document(db, primary))
    yield from settled([cluster.config])
    cluster.tell(cluster.config, cluster.shards[primary])
    cluster.machine.count("source: database created")


def create_sharded(cluster: ClusterSource, name: TableName, key: str) -> Act:
    primary = cluster.primary_of(name.db)
    yield from begin(cluster, primary, name, "createCollection_V2")
    table = cluster.created(primary, name, {})
    table.blocked = True
    if key != "_id":
        table.indexes[f"{key}_1"] = key_index(key)
        primary.build(name, key_index(key))
        _built(cluster, primary, table, key_index(key))
    yield from settled([primary])
    yield from _becomes_sharded(cluster, table, key)
    end(primary, name, "createCollection_V2")
    yield from settled([primary])
    cluster.machine.count("source: sharded table created")


def key_index(key: str) -> dict[str, Any]:
    return {"v": 2, "key": {key: 1}, "name": f"{key}_1"}


def shard_table(cluster: ClusterSource, table: PlacedTable, key: str) -> Act:
    primary = cluster.shards[table.primary]
    yield from begin(cluster, primary, table.name, "createCollection_V2")
    if key != "_id" and f"{key}_1" not in table.indexes:
        yield from build(cluster, primary, table, key_index(key))
        table.indexes[f"{key}_1"] = key_index(key)
        _built(cluster, primary, table, key_index(key))
    yield from decided(table)
    yield from enter_section(cluster, primary, [primary], table)
    yield from _becomes_sharded(cluster, table, key)
    leave_section(cluster, primary, [primary], table.name, table)
    end(primary, table.name, "createCollection_V2")
    yield from settled([primary])
    cluster.machine.count("source: table sharded")


def _becomes_sharded(cluster: ClusterSource, table: PlacedTable, key: str) -> Act:
    """Its one chunk, then itself, as two documents; later the chunk is split."""
    primary, config = cluster.shards[table.primary], cluster.config
    cluster.tell(primary, config)
    ts = config.clock
    table.epoch, table.timestamp = cluster.new_object_id(), ts.to_bson()
    chunk = Chunk(cluster.new_object_id(), None, None, primary.name, Timestamp(1, 0), [(ts, primary.name)])
    config.put("chunks", chunk.document(table.uuid_now, key))
    document_ = {**table.collection_document(), "key": {key: 1}}
    cluster.happened(cluster.ddl_place(config, config.put("collections", document_)))
    yield from settled([config])
    table.key, table.chunks = key, [chunk]
    table.placed_since(config.newest)
    cluster.tell(config, primary)
    message = {"shardCollection": str(table.name)}
    primary.write(Operation("n", str(table.name), {"msg": message}, {**message, "shardKey": {key: 1}}, table.uuid_now))
    table.blocked = False
    if cluster.machine.random.random() < 0.8:
        yield from split(cluster, table)


def split(cluster: ClusterSource, table: PlacedTable) -> Act:
    """One entry, by a command of the shard."""
    [chunk] = table.chunks
    at = _SPLITS[table.key != "_id"]
    upper = Chunk(cluster.new_object_id(), at, None, chunk.shard, Timestamp(chunk.lastmod.time, 2), list(chunk.history))
    chunk.high, chunk.lastmod = at, Timestamp(chunk.lastmod.time, 1)
    table.chunks = [chunk, upper]
    write_chunks(cluster, table, [chunk, upper])
    yield from settled([cluster.config])


def write_chunks(cluster: ClusterSource, table: PlacedTable, chunks: Iterable[Chunk]) -> ClusterTime:
    documents = [("chunks", chunk.document(table.uuid_now, table.key)) for chunk in chunks]
    return cluster.config.together(cluster.new_number(), *documents)


# indexes and options: each shard that owns a part changes its own


def build(cluster: ClusterSource, shard: Shard, table: PlacedTable, spec: dict[str, Any]) -> Act:
    """Raises nothing: whether it is there afterwards is to be seen."""
    random, name = cluster.machine.random, table.name
    local = shard.collections[name]
    if spec["name"] in local.indexes:
        return
    if not table.owned(shard.name) and not local.orphans:
        shard.build(name, spec)
        return
    build_id = Binary(cluster.new_uuid(), 4)
    shard.command(name, {"startIndexBuild": name.coll, "indexBuildUUID": build_id, "indexes": [spec]}, local)
    local.building[spec["name"]] = spec
    yield from settled([shard])
    yield random.choice((0.0, 0.05, 0.5, 2.0))
    yield from decided(table)
    del local.building[spec["name"]]
    command = "commitIndexBuild"
    if is_unique(spec) and duplicate_in(spec, table.rows):
        command = "abortIndexBuild"
    else:
        local.indexes[spec["name"]] = spec
    shard.command(name, {command: name.coll, "indexBuildUUID": build_id, "indexes": [spec]}, local)


def create_index(cluster: ClusterSource, table: PlacedTable, spec: dict[str, Any], *, everywhere: bool) -> Act:
    random = cluster.machine.random
    owners = random.sample(table.owners, len(table.owners))
    if len(owners) > 1 and not everywhere:
        cluster.machine.count("source: index on some owners only")
        owners.pop()
    yield from decided(table)
    for owner in owners:
        shard = cluster.shards[owner]
        yield from build(cluster, shard, table, spec)
        _built(cluster, shard, table, spec)
        cluster.count_indexes(table)
        yield from settled([shard])
        yield pause(cluster)


def _built(cluster: ClusterSource, shard: Shard, table: PlacedTable, spec: dict[str, Any]) -> None:
    """Or not: then its build has ended, too."""
    at = cluster.ddl_place(shard, shard.newest)
    if not table.key and spec["name"] in shard.collections[table.name].indexes:
        cluster.ddl_happened(DdlType.CREATE_INDEXES, at, [table], {table.name})
    else:
        cluster.happened(at)


def drop_index(cluster: ClusterSource, table: PlacedTable, index: str) -> Act:
    yield from _on_owners(cluster, table, "dropIndexes", lambda shard: _drop_index(cluster, shard, table, index))
    cluster.count_indexes(table)


def _drop_index(cluster: ClusterSource, shard: Shard, table: PlacedTable, index: str) -> DdlType | None:
    local = shard.collections[table.name]
    spec = local.indexes.pop(index, None)
    if spec is None:
        return None
    shard.command(table.name, {"dropIndexes": table.name.coll, "index": index}, local, o2=spec)
    cluster.count_indexes(table)
    return DdlType.DROP_INDEXES


def modify(cluster: ClusterSource, table: PlacedTable, level: str) -> Act:
    def modified(shard: Shard) -> DdlType:
        local = shard.collections[table.name]
        before = {"collectionOptions_old": {"uuid": Binary(table.uuid_now, 4), **local.options}}
        local.options |= {"validationLevel": level, "validationAction": local.options.get("validationAction", "error")}
        o = {"collMod": table.name.coll, "validationLevel": level}
        shard.command(table.name, o, local, o2=before)
        table.options |= local.options
        return DdlType.MODIFY

    yield from _on_owners(cluster, table, "collMod_V2", modified)


def _on_owners(cluster: ClusterSource, table: PlacedTable, kind: str, act: Any) -> Act:
    primary = cluster.primary_of(table.name.db)
    yield from begin(cluster, primary, table.name, kind)
    for owner in cluster.machine.random.sample(table.owners, len(table.owners)):
        shard = cluster.shards[owner]
        cluster.tell(primary, shard)
        done = act(shard)
        at = cluster.ddl_place(shard, shard.newest)
        if done is not None and not table.key:
            cluster.ddl_happened(done, at, [table], {table.name})
        cluster.happened(at)
        yield from settled([shard])
        cluster.tell(shard, primary)
        yield pause(cluster)
    end(primary, table.name, kind)
    yield from settled([primary])


# names


def drop(cluster: ClusterSource, table: PlacedTable) -> Act:
    """The other holders one after another, the primary shard last: until then it takes rows."""
    name, config = table.name, cluster.config
    primary = cluster.primary_of(name.db)
    yield from begin(cluster, primary, name, "dropCollection")
    yield from decided(table)
    if table.key:
        cluster.tell(primary, config)
        cluster.half_dropped[table.id] = cluster.ddl_place(config, config.remove("collections", str(name)))
        config.remove("chunks", *(chunk.id for chunk in table.chunks))
        yield from settled([config])
        cluster.tell(config, primary)
    others = [shard for shard in cluster.holders(table) if shard is not primary]
    for shard in cluster.machine.random.sample(others, len(others)):
        cluster.tell(primary, shard)
        table.closed.add(shard.name)
        last, ts = shard, shard.drop(name)
        yield from settled([shard])
        cluster.tell(shard, primary)
        yield pause(cluster)
    table.blocked = True
    if name in primary.collections:
        last, ts = primary, primary.drop(name)
    del cluster.tables[name]
    cluster.ddl_happened(DdlType.DROP, cluster.ddl_place(last, ts), [table], {name}, [table])
    yield from settled([primary])
    yield pause(cluster)
    end(primary, name, "dropCollection")
    yield from settled([primary])


def rename(cluster: ClusterSource, table: PlacedTable, to: TableName) -> Act:
    name, replaced, config = table.name, cluster.tables.get(to), cluster.config
    primary = cluster.primary_of(name.db)
    both = [table] if replaced is None else [table, replaced]
    yield from begin(cluster, primary, name, "renameCollection")
    yield from decided(*both)
    yield from enter_section(cluster, primary, [*cluster.shards.values()], *both)
    places = {}
    concerned = [shard for shard in cluster.shards.values() if name in shard.collections or to in shard.collections]
    for shard in cluster.machine.random.sample(concerned, len(concerned)):
        cluster.tell(primary, shard)
        ts = shard.rename(name, to) if name in shard.collections else shard.drop(to)
        places[shard.name] = cluster.ddl_place(shard, ts)
        yield pause(cluster)
    yield from settled(concerned)
    cluster.tell_all(concerned, primary)
    del cluster.tables[name]
    cluster.tables[to] = table
    table.name = to
    dropped = [replaced] if replaced is not None else []
    at = max(places.values())
    cluster.ddl_happened(DdlType.RENAME, at, [table, *dropped], {name, to}, dropped, to, places)
    cluster.tell(primary, config)
    if replaced is not None and replaced.key:
        config.remove("collections", str(to))
        config.remove("chunks", *(chunk.id for chunk in replaced.chunks))
    if table.key:
        config.remove("collections", str(name))
        table.timestamp = config.clock.to_bson()
        config.put("collections", table.collection_document())
    yield from settled([config])
    cluster.tell(config, primary)
    leave_section(cluster, primary, [*cluster.shards.values()], name, table)
    yield pause(cluster)
    end(primary, name, "renameCollection")
    yield from settled([primary])


def drop_database(cluster: ClusterSource, db: str) -> Act:
    primary = cluster.primary_of(db)
    tables = [table for name, table in cluster.tables.items() if name.db == db]
    if not tables:
        raise NotPossible("no such database")
    for table in tables:
        yield from drop(cluster, table)
    yield from begin(cluster, primary, db, "dropDatabase")
    ts = primary.command(TableName(db, "x"), {"dropDatabase": 1}, None)
    cluster.ddl_happened(DdlType.DROP_DATABASE, cluster.ddl_place(primary, ts), (), set())
    yield from settled([primary])
    for shard in cluster.shards.values():
        if shard is not primary:
            cluster.tell(primary, shard)
            shard.command(TableName(db, "x"), {"dropDatabase": 1}, None)
            cluster.tell(shard, primary)
    cluster.tell(primary, cluster.config)
    cluster.config.remove("databases", db)
    yield from settled([cluster.config])
    cluster.tell(cluster.config, primary)
    end(primary, db, "dropDatabase")
    yield from settled([primary])
