"""What a simulated cluster does with its data, of which users see nothing: chunks, primary shards and shard keys change."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any
from uuid import UUID

from bson.binary import Binary
from bson.timestamp import Timestamp

from changefeed.table import TableName
from source.sharded.effective_order import place_of
from tests.simulation.source.oplog import Operation
from tests.simulation.source.row_keys import ordered
from tests.simulation.source.sharded.ddl import (
    begin,
    decided,
    document,
    end,
    enter_section,
    key_index,
    leave_section,
    pause,
    settled,
    write_chunks,
)
from tests.simulation.source.sharded.placement import Chunk, PlacedTable
from tests.simulation.source.sharded.shard import Shard
from tests.simulation.source.tables import NotPossible, Row

if TYPE_CHECKING:
    from tests.simulation.source.sharded.acts import Act
    from tests.simulation.source.sharded.cluster import ClusterSource

_SECTIONS = "config.collection_critical_sections"
_DRAINS_SECONDS = 20.0
_AWAY_SECONDS = 6.0
_OTHER_SPLITS = {"_id": (2, 4), "f": (30, 70)}


def move_chunk(cluster: ClusterSource, table: PlacedTable, chunk: Chunk | None = None) -> Act:
    """Rows are copied while they change. Then they are written at their new shard, and later cleaned up at the old one."""
    random = cluster.machine.random
    chunk = chunk or random.choice(table.chunks)
    donor = cluster.shards[chunk.shard]
    recipient = random.choice([shard for shard in cluster.takers if shard is not donor])
    _refuse_unlike(donor, recipient, table)
    ns = str(table.name)
    cluster.tell(donor, recipient)
    donor.write(Operation("n", ns, {}, {"sessionMigrateCloneStart": ns}))
    _receive(recipient, donor, table)
    _copy(recipient, table, chunk)
    yield from settled([recipient])
    yield random.choice((0.0, 0.01, 0.3, 1.0))
    yield from _hand_over(cluster, table, chunk, donor, recipient)
    cluster.machine.count("source: chunk moved")
    yield random.choice((0.0, 0.1, 2.0))
    orphans = donor.collections[table.name].orphans
    for key in list(orphans):
        del orphans[key]
        donor.write(Operation("d", ns, {"_id": key}, None, table.uuid_now, from_migrate=True))
    yield from settled([donor])


def _refuse_unlike(donor: Shard, recipient: Shard, table: PlacedTable) -> None:
    there, given = recipient.collections.get(table.name), donor.collections[table.name]
    if there is None:
        return
    if not given.indexes.keys() <= there.indexes.keys() and (there.orphans or table.owned(recipient.name)):
        raise NotPossible("the recipient lacks an index, and is not empty")
    if there.options != given.options:
        raise NotPossible("its owners would have different options: servers do not compare them")


def _hand_over(cluster: ClusterSource, table: PlacedTable, chunk: Chunk, donor: Shard, recipient: Shard) -> Act:
    """Nobody writes from the last copies until the config servers know the new owner."""
    ns, config = str(table.name), cluster.config
    yield from decided(table)
    table.closed |= {donor.name, recipient.name}
    yield from settled([donor])
    cluster.tell(donor, recipient)
    current = _copy(recipient, table, chunk)
    section = {"_id": ns, "reason": {"recvChunk": 1, "sessionId": f"{donor.name}_{recipient.name}"}}
    document(recipient, _SECTIONS, "i", section)
    valid_after = recipient.newest
    yield from settled([recipient])
    cluster.tell(recipient, donor, config)
    chunk.shard, chunk.history = recipient.name, [(valid_after, recipient.name), *chunk.history]
    others = [each for each in table.chunks if each.shard == donor.name]
    newest = max(each.lastmod for each in table.chunks)
    for number, each in enumerate([chunk, *others[:1]]):
        each.lastmod = Timestamp(newest.time + 1, number)
    write_chunks(cluster, table, [chunk, *others[:1]])
    table.placed_since(valid_after)
    donor.collections[table.name].orphans |= current
    recipient.collections[table.name].orphans.clear()
    cluster.count_indexes(table)
    cluster.happened(cluster.ddl_place(config, config.newest))
    yield from settled([config])
    cluster.tell(config, donor, recipient)
    table.closed -= {donor.name, recipient.name}
    document(recipient, _SECTIONS, "d", section)
    if not others:
        donor.write(Operation("n", ns, {"msg": "Migrate the last chunk"}, {"migrateLastChunkFromShard": ns}))


def _receive(recipient: Shard, donor: Shard, table: PlacedTable) -> None:
    """A collection with the indexes that the donor has."""
    given = donor.collections[table.name]
    if table.name not in recipient.collections:
        recipient.create(table.name, table.uuid_now, given.options, flagged=True)
    for index, spec in given.indexes.items():
        if index not in recipient.collections[table.name].indexes:
            recipient.build(table.name, spec, flagged=True)


def _copy(recipient: Shard, table: PlacedTable, chunk: Chunk) -> dict[Any, Row]:
    """What the recipient lacks of a chunk. It does not own it yet."""
    ns, ui, clones = str(table.name), table.uuid_now, recipient.collections[table.name].orphans
    rows = {key: row for key, row in table.rows.items() if chunk.has(row[table.key])}
    for key in ordered(clones.keys() - rows.keys()):
        del clones[key]
        recipient.write(Operation("d", ns, {"_id": key}, None, ui, from_migrate=True))
    for key, row in rows.items():
        op = "u" if key in clones else "i"
        if clones.get(key) != row:
            recipient.write(Operation(op, ns, row, {"_id": key}, ui, from_migrate=True))
            clones[key] = row
    return rows


def move_primary(cluster: ClusterSource, db: str, *, fails: bool) -> Act:
    """Its tables that are not sharded get another UUID, and are copied. If it fails, the copies are dropped."""
    random = cluster.machine.random
    old = cluster.primary_of(db)
    new = random.choice([shard for shard in cluster.takers if shard is not old])
    tables = [table for name, table in cluster.tables.items() if name.db == db]
    plain = [table for table in tables if not table.key]
    yield from decided(*tables)
    for table in plain:
        table.blocked = True
    yield from settled([old])
    cluster.tell(old, new)
    copies = dict[TableName, bytes]()
    for table in tables:
        if table.name in old.collections and table.name not in new.collections:
            _create_like(cluster, old, new, table, copies)
            yield pause(cluster)
    for table in plain:
        for key, row in table.rows.items():
            o2 = {"_id": key}
            new.write(Operation("i", str(table.name), row, o2, copies[table.name], from_migrate=True))
        yield pause(cluster)
    yield from settled([new])
    cluster.tell(new, old, cluster.config)
    if fails:
        cluster.machine.count("source: movePrimary that failed")
        for name in copies:
            new.drop(name)
        yield from settled([new])
    else:
        yield from _change_primary(cluster, db, old, new, copies)
    for table in plain:
        table.blocked = False


def _create_like(
    cluster: ClusterSource, old: Shard, new: Shard, table: PlacedTable, copies: dict[TableName, bytes]
) -> None:
    """A sharded table keeps its UUID, and is copied without rows."""
    given = old.collections[table.name]
    uuid_now = table.uuid_now if table.key else cluster.new_uuid()
    new.create(table.name, uuid_now, given.options)
    for spec in given.indexes.values():
        if spec["name"] != "_id_":
            new.build(table.name, spec)
    if not table.key:
        copies[table.name] = uuid_now


def _change_primary(cluster: ClusterSource, db: str, old: Shard, new: Shard, copies: dict[TableName, bytes]) -> Act:
    version = cluster.config.now["databases"][db]["version"]
    moved = {**version, "lastMod": version["lastMod"] + 1}
    ts = cluster.config.set("databases", db, primary=new.name, version=moved)
    yield from settled([cluster.config])
    cluster.tell(cluster.config, old, new)
    for table in [table for name, table in cluster.tables.items() if name.db == db]:
        table.primary = new.name
        if table.name in copies:
            cluster.superseded(table, copies[table.name])
            table.placed_since(ts)
    cluster.happened(cluster.ddl_place(cluster.config, ts))
    yield pause(cluster)
    for name in copies:
        old.drop(name)
        yield pause(cluster)
    yield from settled([old])
    cluster.machine.count("source: movePrimary")


@dataclass
class _Resharding:
    """`aside` is filled, and then takes the table's name."""

    table: PlacedTable
    key: str
    aside: TableName
    uuid_now: bytes
    donors: list[Shard]
    recipients: list[Shard]
    chunks: list[Chunk]


def reshard(cluster: ClusterSource, table: PlacedTable, owners: list[Shard]) -> Act:
    """The rows are copied to another collection, which then takes the name. A holder that is no recipient drops its old one at last.

    The database's primary shard is always a recipient, also as the owner of nothing.
    """
    name, config = table.name, cluster.config
    primary = cluster.primary_of(name.db)
    key = "f" if table.key == "_id" else "_id"
    resharding = _Resharding(
        table=table,
        key=key,
        aside=TableName(name.db, f"system.resharding.{UUID(bytes=table.uuid_now)}"),
        uuid_now=cluster.new_uuid(),
        donors=[cluster.shards[owner] for owner in table.owners],
        recipients=owners if primary in owners else [*owners, primary],
        chunks=_chunks(cluster, key, owners),
    )
    yield from begin(cluster, primary, name, "reshardCollection")
    cluster.tell(primary, config)
    yield from decided(table)
    yield from _fill(cluster, resharding, primary)
    before = table.chunks
    yield from _change_uuid(cluster, resharding)
    leave_section(cluster, primary, resharding.donors, name, table)
    yield pause(cluster)
    config.remove("chunks", *(chunk.id for chunk in before))
    for shard in cluster.shards.values():
        local = shard.collections.get(name)
        if local is not None and local.uuid != resharding.uuid_now:
            cluster.machine.count("source: drop of what resharding had superseded")
            cluster.tell(config, shard)
            shard.drop(name)
            yield from settled([shard])
    end(primary, name, "reshardCollection")
    yield from settled([primary, config])
    cluster.machine.count("source: table resharded")


def _fill(cluster: ClusterSource, of: _Resharding, primary: Shard) -> Act:
    table, config = of.table, cluster.config
    given = of.donors[0].collections[table.name]
    indexes = {index: spec for index, spec in given.indexes.items() if index != "_id_"}
    for chunk in of.chunks:
        config.put("chunks", chunk.document(of.uuid_now, of.key))
    named = {"_id": str(of.aside), "uuid": Binary(of.uuid_now, 4), "key": {of.key: 1}}
    config.put("collections", {**table.collection_document(), **named})
    yield from settled([config])
    cluster.tell(config, *cluster.shards.values())
    for shard in of.recipients:
        shard.create(of.aside, of.uuid_now, given.options, flagged=True)
        for spec in indexes.values():
            shard.build(of.aside, spec, flagged=True)
        yield pause(cluster)
    yield from enter_section(cluster, primary, of.donors, table)
    if of.key != "_id" and key_index(of.key)["name"] not in indexes:
        for shard in of.recipients:
            shard.build(of.aside, key_index(of.key))
    for row in table.rows.values():
        [chunk] = [chunk for chunk in of.chunks if chunk.has(row[of.key])]
        cluster.shards[chunk.shard].write(Operation("i", str(of.aside), row, {"_id": row["_id"]}, of.uuid_now))
    yield from settled(of.recipients)
    cluster.tell_all(of.recipients, config)


def _change_uuid(cluster: ClusterSource, of: _Resharding) -> Act:
    """By the config servers, in one transaction; then the shards rename one after another."""
    table, name, config = of.table, of.table.name, cluster.config
    table.epoch, table.timestamp = cluster.new_object_id(), config.clock.to_bson()
    changed = {
        "key": {of.key: 1},
        "lastmodEpoch": table.epoch,
        "timestamp": table.timestamp,
        "uuid": Binary(of.uuid_now, 4),
    }
    ts = config.in_transaction(
        cluster.new_number(),
        removed=[("collections", str(of.aside))],
        changed=[("collections", str(name), changed)],
    )
    cluster.happened(place_of(ts, config.name, 2))
    yield from settled([config])
    cluster.tell(config, *cluster.shards.values())
    for shard in cluster.machine.random.sample(of.recipients, len(of.recipients)):
        shard.rename(of.aside, name, flagged=True)
        yield pause(cluster)
    table.key, table.chunks = of.key, of.chunks
    cluster.superseded(table, of.uuid_now)
    for shard in of.donors:
        if shard not in of.recipients:
            shard.drop(name, flagged=True)
            yield pause(cluster)
    yield from settled([*of.recipients, *of.donors])
    table.placed_since(ts)
    cluster.count_indexes(table)


def _chunks(cluster: ClusterSource, key: str, owners: list[Shard]) -> list[Chunk]:
    splits = _OTHER_SPLITS[key][: len(owners) - 1]
    lows, highs = [None, *splits], [*splits, None]
    ts = cluster.config.clock
    return [
        Chunk(cluster.new_object_id(), low, high, shard.name, Timestamp(1, number), [(ts, shard.name)])
        for number, (low, high, shard) in enumerate(zip(lows, highs, owners, strict=True))
    ]


def retire_shard(cluster: ClusterSource, shard: Shard) -> Act:
    """It is drained: what it owns moves to others. Then the config servers forget it."""
    give_up_at = cluster.machine.now + _DRAINS_SECONDS
    while _owns_something(cluster, shard) or cluster.acts.under_way > 1:
        if cluster.machine.now > give_up_at:
            cluster.draining.discard(shard.name)
            return
        with suppress(NotPossible):
            _move_something(cluster, shard)
        yield 0.02
    ts = cluster.config.remove("shards", shard.name)
    cluster.retired[shard.name] = cluster.shards.pop(shard.name)
    cluster.draining.discard(shard.name)
    shard.removed_ts = ts
    shard.hold_majority(cluster.machine.now)
    cluster.happened(cluster.ddl_place(cluster.config, ts))
    cluster.tell(cluster.config, shard, *cluster.shards.values())
    cluster.machine.count("source: shard removed")
    cluster.machine.note("source", f"{shard.name} is removed at {ts}")
    yield from settled([cluster.config])
    match cluster.fate.choice(("stays", "is away", "is gone", "is gone", "is gone")):
        case "is away":
            shard.down.until = cluster.machine.now + _AWAY_SECONDS
        case "is gone":
            yield cluster.fate.choice((0.0, 0.1, 1.0, 5.0))
            shard.down.until = inf
            cluster.machine.count("source: removed shard is gone for good")
            cluster.machine.note("source", f"{shard.name} is gone for good")


def _owns_something(cluster: ClusterSource, shard: Shard) -> bool:
    databases = cluster.config.now["databases"].values()
    chunks = cluster.config.now["chunks"].values()
    return any(db["primary"] == shard.name for db in databases) or any(each["shard"] == shard.name for each in chunks)


def _move_something(cluster: ClusterSource, shard: Shard) -> None:
    for table in list(cluster.tables.values()):
        for chunk in table.chunks if table.key else ():
            if chunk.shard == shard.name:
                cluster.move_chunk(table.name, chunk)
                return
    for db in cluster.config.now["databases"]:
        if cluster.primary_of(db) is shard:
            cluster.move_primary(db, fails=False)
            return
