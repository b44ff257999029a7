"""`ClusterState`: what the catalogs of a cluster say, and what an entry of the config servers or a shard changes about it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from changefeed.documents.document import Document
from changefeed.event import NOT_FOLLOWED, DdlEvent, DdlType
from changefeed.position import Position
from changefeed.table import SYSTEM_DATABASES, TableId, TableName
from source.ddl_description import printable, shown, uuid_of, wall_ms_of
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


def not_followed(
    at: Position, name: TableName, id: TableId | None, said: str, renamed_to: TableName | None = None
) -> DdlEvent:
    """An entry of a shard or of the config servers does not fit what was known of a table. Which rows are whose is not known from there on: it stops,
    and no other one.
    """
    return DdlEvent(
        position=at,
        type=DdlType.UNKNOWN,
        db=name.db,
        table=name,
        id=id,
        renamed_to=renamed_to,
        description=Document.of({NOT_FOLLOWED: printable(said)}),
    )


def database_not_followed(operation: Operation, at: Position) -> DdlEvent | None:
    """An entry that nobody foresaw. It concerns the tables of its database. None: it names none."""
    ns = operation["ns"]
    named = document_id(operation) if ns in (str(COLLECTIONS), str(DATABASES)) else ns
    db = printable(str(named)).partition(".")[0]
    if db in SYSTEM_DATABASES:
        return None
    said = Document.of({NOT_FOLLOWED: f"an entry about {printable(ns)} has an unknown form"})
    return DdlEvent(position=at, type=DdlType.UNKNOWN, db=db, description=said)


def table_name(text: object) -> TableName | None:
    """None for what names no table. Users may write to the collections of config servers."""
    try:
        return TableName.parse(str(text))
    except ValueError:
        return None


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


def sharded_by(
    operation: Operation, at: Position, table: TableId, name: TableName, *, resharded: bool
) -> Iterator[DdlEvent]:
    """What an entry of config.collections says of the shard key of a table. It may be as before: other entries than these have it, too."""
    fields = {"shardKey": changed_field(operation, "key"), "unique": changed_field(operation, "unique")}
    if fields["shardKey"] is None:
        return
    type = DdlType.SHARD_COLLECTION if operation["op"] == "i" else DdlType.REFINE_SHARD_KEY
    yield DdlEvent(
        position=at,
        type=DdlType.RESHARD_COLLECTION if resharded else type,
        db=name.db,
        table=name,
        id=table,
        description=shown({field: value for field, value in fields.items() if value is not None}),
        wall_ms=wall_of(operation),
    )


def wall_of(operation: Operation) -> int | None:
    return wall_ms_of(operation.get("wall"))
