"""`read_config`, `read_collections`, `OplogsBefore`: what config servers and shards say of the tables of a cluster.

`read_chunks`, `read_indexes`: which shards own chunks of which collection, and which indexes they have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pymongo.errors import OperationFailure

from changefeed.cluster_time import ClusterTime
from changefeed.errors import HistoryLost, SourceUnavailable
from changefeed.table import SYSTEM_DATABASES, TableId, TableName
from source.connection import MAJORITY, Client, config_documents, read_command, read_cursor
from source.ddl_description import ANY_TEXT, bson_uuid, is_utf8, uuid_of
from source.errors import translated
from source.oplog.find import OPLOG
from source.sharded.cluster_clients import ClusterClients
from source.sharded.tables.cluster_state import (
    CHUNKS,
    COLLECTIONS,
    DATABASES,
    RESHARDING,
    BegunRename,
    changed_field,
    document_id,
    table_name,
)
from source.sharded.tables.owned_ddl import IndexName, index_name
from source.sharded.tables.owners import ChunkReading
from source.sharded.tables.rewind import ConfigReading
from source.tables.catalog import built, listed_indexes

_ALL_DATABASES = {"listDatabases": 1, "nameOnly": True, "authorizedDatabases": False}
"""By default a user who may not list all databases is told of some in silence."""
_RENAME_SECONDS = 24 * 3600
"""How long a rename may stand between the entries of two shards, for example while a shard is away."""


def read_config(client: Client) -> ConfigReading:
    with translated("reading config.collections and config.databases"):
        collections = config_documents(client, COLLECTIONS.coll, projection={"uuid": 1})
        databases = config_documents(client, DATABASES.coll, projection={"primary": 1})
    sharded: dict[TableName, TableId] = {}
    for each in collections:
        name, uuid = table_name(each["_id"]), uuid_of(each.get("uuid"))
        if name is not None and uuid is not None:
            sharded[name] = uuid
    filling = frozenset(uuid for name, uuid in sharded.items() if name.coll.startswith(RESHARDING))
    sharded = {name: uuid for name, uuid in sharded.items() if not name.system}
    return ConfigReading(
        sharded=sharded, filling=filling, primaries={each["_id"]: each["primary"] for each in databases}
    )


def read_collections(client: Client, shard: str) -> Mapping[TableId, TableName]:
    """The collections that a shard has, owned or not. Also those that a resharding fills."""
    found: dict[TableId, TableName] = {}
    with translated(f"reading the collections of shard {shard}"):
        for name, info in _listed(client):
            uuid = uuid_of(info.get("info", {}).get("uuid"))
            if uuid is not None and (not name.system or name.coll.startswith(RESHARDING)):
                found[uuid] = name
    return found


def read_views(client: Client, shard: str) -> tuple[TableName, ...]:
    """The views and time series that a shard has."""
    with translated(f"reading the views of shard {shard}"):
        return tuple(sorted(name for name, info in _listed(client) if info["type"] != "collection"))


def _listed(client: Client) -> Iterator[tuple[TableName, Mapping[str, Any]]]:
    databases = read_command(client, "admin", _ALL_DATABASES)["databases"]
    for db in [each["name"] for each in databases if each["name"] not in SYSTEM_DATABASES]:
        for info in read_cursor(client, db, {"listCollections": 1}):
            yield TableName(db, info["name"]), info


class OplogsBefore:
    """`EarlierEntries` in the oplogs of the config servers and the shards."""

    def __init__(self, clients: ClusterClients, before_ts: ClusterTime) -> None:
        self._clients = clients
        self._before_ts = before_ts

    def primary(self, db: str) -> str:
        found = self._last(DATABASES, db, "primary")
        if found is None:
            raise HistoryLost(
                f"the primary shard of database {db} changed since {self._before_ts}, and the config servers' oplog no longer says which "
                "it was then; remove the changefeed and create it again with a new initial copy"
            )
        return str(found)

    def uuid(self, name: TableName) -> TableId | None:
        return uuid_of(self._last(COLLECTIONS, str(name), "uuid"))

    def rename(self, shard: str, uuid: TableId) -> BegunRename | None:
        ui = bson_uuid(uuid)
        oldest_ts = ClusterTime(max(0, self._before_ts.seconds - _RENAME_SECONDS), 0)
        wanted = {"op": "c", "ui": ui, "o.renameCollection": {"$exists": True}}
        with translated(f"looking for the last rename of {uuid} on shard {shard} before {self._before_ts}"):
            for entry in self._entries(self._clients.of(shard), wanted, oldest_ts):
                return BegunRename.of(entry)
        return None

    def _last(self, ns: TableName, id: str, field: str) -> Any:
        """The value that the last entry gave a field of a document. Nobody can ask for one whose name is no UTF-8."""
        if not is_utf8(id):
            return None
        of_document = {"$or": [{"o._id": id}, {"o2._id": id}]}
        wanted = {
            "$or": [{"ns": str(ns), **of_document}, {"o.applyOps": {"$elemMatch": {"ns": str(ns), **of_document}}}]
        }
        with translated(f"looking for the {field} of {id} at {self._before_ts}"):
            for entry in self._entries(self._clients.config, wanted):
                for operation in reversed(entry["o"].get("applyOps", [entry])):
                    if operation["ns"] == str(ns) and document_id(operation) == id:
                        value = None if operation["op"] == "d" else changed_field(operation, field)
                        if value is not None or operation["op"] == "d":
                            return value
        return None

    def _entries(
        self, client: Client, wanted: Mapping[str, Any], oldest_ts: ClusterTime | None = None
    ) -> Iterator[Mapping[str, Any]]:
        """The newest first."""
        command = {
            "find": OPLOG.coll,
            "filter": {
                "ts": {"$gte": (oldest_ts or ClusterTime(0, 0)).to_bson(), "$lt": self._before_ts.to_bson()},
                **wanted,
            },
            "sort": {"$natural": -1},
            "readConcern": MAJORITY,
        }
        return read_cursor(client, OPLOG.db, command)


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
        return {id: (uuid, _owner(chunk, at_ts)) for id, uuid, chunk in _chunks(client, MAJORITY)}


def _chunks(client: Client, concern: Mapping[str, object]) -> Iterator[tuple[Any, TableId, Mapping[str, Any]]]:
    command = {"find": CHUNKS.coll, "projection": {"uuid": 1, "shard": 1, "history": 1}, "readConcern": concern}
    for chunk in read_cursor(client, CHUNKS.db, command):
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
        name, specs = now, listed_indexes(client, now)
        now = name_now(client, name.db, uuid)
        if now == name and specs is not None:
            return built(specs)
    raise SourceUnavailable(f"collection {uuid}, now {name}, was renamed during each attempt to read its indexes")


def name_now(client: Client, db: str, uuid: TableId) -> TableName | None:
    """A shard's name of a collection."""
    command = {"listCollections": 1, "filter": {"info.uuid": bson_uuid(uuid)}}
    for info in read_command(client, db, command, codec_options=ANY_TEXT)["cursor"]["firstBatch"]:
        return TableName(db, info["name"])
    return None
