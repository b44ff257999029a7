"""`read_chunks`, `read_indexes`: which shards own chunks of which collection, and which indexes they have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from bson.binary import UUID_SUBTYPE, Binary
from pymongo.errors import OperationFailure

from changefeed.cluster_time import ClusterTime
from changefeed.errors import SourceUnavailable
from changefeed.table import TableId, TableName
from source.connection import Client, read_command
from source.ddl.ddl_description import uuid_of
from source.errors import translated
from source.sharded.tables.live_tables import CHUNKS
from source.sharded.tables.owned_ddl import ChunkReading, IndexName, index_name

_NAMESPACE_NOT_FOUND = 26
_FORGOTTEN = frozenset(
    {
        239,  # SnapshotTooOld
        246,  # SnapshotUnavailable
    }
)
_ATTEMPTS = 5


def read_chunks(client: Client, at_ts: ClusterTime) -> ChunkReading:
    """The owners at a time, before the entries of it. Config servers remember five minutes. Before these: of the chunks of now, as far back as
    a chunk's own history goes; the chunks that a resharding has removed since are unknown then.
    """
    snapshot = {"level": "snapshot", "atClusterTime": at_ts.previous().to_bson()}
    with translated("reading config.chunks"):
        try:
            return {id: (uuid, str(chunk["shard"])) for id, uuid, chunk in _chunks(client, snapshot)}
        except OperationFailure as error:
            if error.code not in _FORGOTTEN:
                raise
        return {id: (uuid, _owner(chunk, at_ts)) for id, uuid, chunk in _chunks(client, {"level": "majority"})}


def _chunks(client: Client, concern: Mapping[str, object]) -> Iterator[tuple[Any, TableId, Mapping[str, Any]]]:
    command = {"find": CHUNKS.coll, "projection": {"uuid": 1, "shard": 1, "history": 1}, "readConcern": concern}
    for chunk in client[CHUNKS.db].cursor_command(command, read_preference=client.read_preference):
        uuid = uuid_of(chunk.get("uuid"))
        if uuid is not None:
            yield chunk["_id"], uuid, chunk


def _owner(chunk: Mapping[str, Any], at_ts: ClusterTime) -> str:
    history = chunk.get("history") or [chunk]
    then = [each for each in history if "validAfter" in each and ClusterTime.from_bson(each["validAfter"]) < at_ts]
    return str((then or history[-1:])[0]["shard"])


def read_indexes(
    client: Client, shard: str, collections: Mapping[TableId, TableName]
) -> dict[TableId, dict[IndexName, Mapping[str, Any]]]:
    """Without those that are still being built. A collection that was dropped meanwhile is left out."""
    found: dict[TableId, dict[IndexName, Mapping[str, Any]]] = {}
    with translated(f"reading the indexes of shard {shard}"):
        for uuid, name in collections.items():
            specs = specifications(client, uuid, name)
            if specs is not None:
                found[uuid] = {index_name(spec): spec for spec in specs}
    return found


def specifications(client: Client, uuid: TableId, name: TableName) -> list[Mapping[str, Any]] | None:
    """Of a collection that has, or had, this name on the shard, and may be renamed meanwhile. None: the shard does not have it.

    What was read under a name counts if the collection had it before and afterwards: another one may have it while a resharding ends.
    """
    now: TableName | None = name
    for _ in range(_ATTEMPTS):
        if now is None:
            return None
        name, specs = now, _listed(client, now)
        now = name_now(client, name.db, uuid)
        if now == name and specs is not None:
            return [spec for spec in specs if not {"buildUUID", "clustered"} & spec.keys()]
    raise SourceUnavailable(f"collection {uuid}, now {name}, was renamed during each attempt to read its indexes")


def _listed(client: Client, name: TableName) -> list[Mapping[str, Any]] | None:
    command: dict[str, Any] = {"listIndexes": name.coll, "includeBuildUUIDs": True}
    try:
        return list(client[name.db].cursor_command(command, read_preference=client.read_preference))
    except OperationFailure as error:
        if error.code != _NAMESPACE_NOT_FOUND:
            raise
        return None


def name_now(client: Client, db: str, uuid: TableId) -> TableName | None:
    """A shard's name of a collection."""
    command = {"listCollections": 1, "filter": {"info.uuid": Binary(bytes.fromhex(uuid), UUID_SUBTYPE)}}
    for info in read_command(client, db, command)["cursor"]["firstBatch"]:
        return TableName(db, info["name"])
    return None
