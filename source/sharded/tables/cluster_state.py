"""`ClusterState`: what the catalogs of a cluster say, and what an entry of the config servers or a shard changes about it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from changefeed.errors import InvariantError
from changefeed.event import DdlEvent
from changefeed.position import Position
from changefeed.table import TableId, TableName
from source.ddl_description import uuid_of
from source.oplog.ddl_entry import OF_SHARDS, ddls_of_entry
from source.sharded.effective_order import Operation

RESHARDING = "system.resharding."
COLLECTIONS, DATABASES, SHARDS, CHUNKS = (
    TableName("config", coll) for coll in ("collections", "databases", "shards", "chunks")
)
COORDINATORS = TableName("config", "system.sharding_ddl_coordinators")

GONE = "gone"
"""The operation of an entry of our own in config.shards: the shard was removed, and cannot be read from here on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterState:
    """What the catalogs of config servers and shards say at one time. Names of the server's own databases are left out."""

    sharded: Mapping[TableName, TableId]
    primaries: Mapping[str, str]
    holders: Mapping[TableId, Mapping[str, TableName]]
    """By UUID, each shard's name for it."""
    renaming: Mapping[TableId, BegunRename] = field(default_factory=dict)
    """Where the rest does not say what was before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BegunRename:
    """A rename that some shards have logged and others have not, by an entry of the database's primary shard."""

    before: TableName
    to: TableName
    target: TableId | None

    @classmethod
    def of(cls, operation: Operation) -> BegunRename:
        o = operation["o"]
        return cls(
            before=TableName.parse(o["renameCollection"]),
            to=TableName.parse(o["to"]),
            target=uuid_of(o.get("dropTarget")),
        )


@dataclass(frozen=True, slots=True)
class NewUuid:
    """A table's rows stand under another UUID from here on. No row changed, and nothing is to be done downstream."""

    position: Position
    table: TableId
    before: TableId
    uuid: TableId
    name: TableName


ClusterChange = DdlEvent | NewUuid


class ContradictoryCluster(InvariantError):
    """An entry of a shard or of the config servers does not fit what was known of the cluster. Which rows are whose is not known from there on."""

    def __init__(self, message: str) -> None:
        super().__init__(f"{message}; remove the changefeed and create it again with --start initial")


def document_id(operation: Operation) -> Any:
    return (operation.get("o2") or operation["o"])["_id"]


def changed_field(operation: Operation, name: str) -> Any:
    """The value that an insert or update gives a field at the top of a document. None: the field is as before."""
    o = operation["o"]
    if "_id" in o:
        return o.get(name)
    diff = o.get("diff", {})
    for section in (diff.get("u", {}), diff.get("i", {}), o.get("$set", {})):
        if name in section:
            return section[name]
    return None


def events_of(operation: Operation, at: Position) -> list[DdlEvent]:
    """What the entry of one shard means as DDL, at the place that it has in the cluster."""
    entry = {**operation, "ts": at.ts.to_bson()}
    return [replace(event, position=at) for event in ddls_of_entry(entry, telling=OF_SHARDS)]
