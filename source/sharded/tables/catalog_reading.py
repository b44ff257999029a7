"""`read_config`, `read_collections`, `OplogsBefore`: what config servers and shards say of the tables of a cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from bson.binary import UUID_SUBTYPE, Binary

from changefeed.cluster_time import ClusterTime
from changefeed.errors import HistoryLost
from changefeed.table import SYSTEM_DATABASES, TableId, TableName
from source.connection import Client, read_command
from source.ddl.ddl_description import uuid_of
from source.errors import translated
from source.oplog.find import OPLOG
from source.sharded.cluster_clients import ClusterClients
from source.sharded.tables.live_tables import (
    COLLECTIONS,
    DATABASES,
    RESHARDING,
    BegunRename,
    changed_field,
    document_id,
)
from source.sharded.tables.rewind import ConfigReading

_MAJORITY = {"level": "majority"}
_ALL_DATABASES = {"listDatabases": 1, "nameOnly": True, "authorizedDatabases": False}
"""By default a user who may not list all databases is told of some in silence."""
_RENAME_SECONDS = 24 * 3600
"""How long a rename may stand between the entries of two shards, for example while a shard is away."""


def read_config(client: Client) -> ConfigReading:
    with translated("reading config.collections and config.databases"):
        collections = list(_found(client, COLLECTIONS, {"uuid": 1}))
        databases = list(_found(client, DATABASES, {"primary": 1}))
    sharded: dict[TableName, TableId] = {}
    for each in collections:
        name, uuid = TableName.parse(each["_id"]), uuid_of(each.get("uuid"))
        if uuid is not None:
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
        for info in client[db].cursor_command({"listCollections": 1}, read_preference=client.read_preference):
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
        ui = Binary(bytes.fromhex(uuid), UUID_SUBTYPE)
        oldest_ts = ClusterTime(max(0, self._before_ts.seconds - _RENAME_SECONDS), 0)
        wanted = {"op": "c", "ui": ui, "o.renameCollection": {"$exists": True}}
        with translated(f"looking for the last rename of {uuid} on shard {shard} before {self._before_ts}"):
            for entry in self._entries(self._clients.of(shard), wanted, oldest_ts):
                return BegunRename.of(entry)
        return None

    def _last(self, ns: TableName, id: str, field: str) -> Any:
        """The value that the last entry gave a field of a document."""
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
            "readConcern": _MAJORITY,
        }
        return client[OPLOG.db].cursor_command(command, read_preference=client.read_preference)


def _found(client: Client, name: TableName, projection: Mapping[str, int]) -> Iterator[Mapping[str, Any]]:
    command = {"find": name.coll, "projection": dict(projection), "readConcern": _MAJORITY}
    return client[name.db].cursor_command(command, read_preference=client.read_preference)
