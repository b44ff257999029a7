"""`DdlCommand`: one command for the target, as a value; `commands`: those that carry out one DDL. Pure.

Each command may be sent twice. If it names an observed collection and the target is 6.0 or later, it carries that collection's
UUID (collMod, createIndexes, dropIndexes, drop, renameCollection within a database, and its dropTarget): the target then refuses
the command if the collection was replaced meanwhile. Views have no UUID, the UUID of a time-series belongs to its buckets, and
sharding commands and renames across databases take none; these are protected only by the observation just before the command. A 6.0
that still has the featureCompatibilityVersion of 5.0 takes none at all, and is sent the command again without it (`MongoDdlApplier`).

`MongoDdlApplier` adds the majority write concern, and a time limit to brief commands only: an interrupted index build would start over.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self, assert_never

from bson.binary import UUID_SUBTYPE, Binary

from changefeed.config.configuration import Ttl
from changefeed.documents.document import Document
from changefeed.errors import DdlUnsupported
from changefeed.event import DdlType
from changefeed.records.ddl import Observation, ObservedTable
from changefeed.table import TableName
from sink.ddl import (
    BeginAgain,
    CreateIndexes,
    CreateTable,
    DropIndexes,
    DropTables,
    ModifyTable,
    RenameTable,
    ReplaceView,
    ShardTable,
    SingleDdl,
    Skip,
)
from sink.mongodb.ddl.definition_match import plain_clustered_index, plain_timeseries
from sink.mongodb.ddl.target_definition import (
    NEVER_SECONDS,
    NEVER_SECONDS_BEFORE_6_0,
    SIMPLE,
    index_expiry,
    index_specification,
    modified_expiry,
    table_expiry,
    without_version,
)

UUID_MISMATCH = 361
NAMESPACE_NOT_FOUND = 26
INDEX_NOT_FOUND = 27


_GUARD = "collectionUUID"
_BRIEF = frozenset({"create", "collMod", "dropIndexes", "drop"})


@dataclass(frozen=True, slots=True)
class DdlCommand:
    """`settled`: error codes which mean that the target already has the wanted state."""

    db: str
    body: Mapping[str, Any]
    settled: frozenset[int] = field(default=frozenset())

    @property
    def brief(self) -> bool:
        """A brief command takes effect within the permit or never: a late one could undo the work of the next owner. Others may take hours.

        A rename is brief within a database; into another one it copies the table.
        """
        verb = next(iter(self.body))
        if verb == "renameCollection":
            return TableName.parse(self.body[verb]).db == TableName.parse(self.body["to"]).db
        return verb in _BRIEF

    @property
    def guarded(self) -> bool:
        """Whether the target refuses it if another collection has the name."""
        return _GUARD in self.body

    def unguarded(self) -> Self:
        """For a target that takes no UUIDs."""
        body = {name: value for name, value in self.body.items() if name != _GUARD}
        return replace(self, body=body | ({"dropTarget": True} if "dropTarget" in body else {}))

    def __str__(self) -> str:
        """`createIndexes on shop.orders`."""
        verb, subject = next(iter(self.body.items()))
        subject = str(subject)
        return f"{verb} on {subject if self.db == 'admin' else f'{self.db}.{subject}'}"


WIRE_4_4, WIRE_6_0 = 9, 17

_SET_BY_THE_SERVER = frozenset({"uuid", "idIndex", "temp", "flags", "autoIndexId"})
"""Creation fields that the source's server sets: identity, the index on `_id` (it follows the collation), state, obsolete fields."""
_NOT_OF_COLLMOD = frozenset(
    {"isTimeseriesNamespace", "timeseriesBucketsMayHaveMixedSchemaData", "dryRun", "numOrphanDocs"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The properties of the target that the commands depend on."""

    wire: int
    sharded: bool

    @property
    def takes_uuids(self) -> bool:
        return self.wire >= WIRE_6_0

    @property
    def never_seconds(self) -> int:
        """The longest expiry that createIndexes accepts."""
        return NEVER_SECONDS if self.wire >= WIRE_6_0 else NEVER_SECONDS_BEFORE_6_0


def commands(  # noqa: PLR0911 - one case for each kind of DDL
    ddl: SingleDdl, now: Observation, target: Target, ttl: Ttl
) -> tuple[DdlCommand, ...]:
    """`now` is the target's present state, with nothing or only a part of the DDL applied."""
    match ddl:
        case Skip() | BeginAgain():
            return ()
        case CreateTable():
            return (_create(ddl, target, ttl),)
        case CreateIndexes():
            return _create_indexes(ddl, now, target, ttl)
        case DropIndexes():
            return tuple(_drop_index(ddl.name, index, now, target) for index in ddl.indexes)
        case ModifyTable():
            return _modify(ddl, now, target, ttl)
        case DropTables():
            return tuple(_drop(name, now, target) for name in ddl.names if now.tables.get(name))
        case ReplaceView():
            dropped = (_drop(ddl.name, now, target),) if now.tables.get(ddl.name) else ()
            return (*dropped, _create(CreateTable(name=ddl.name, options=ddl.options), target, ttl))
        case RenameTable():
            return (_rename(ddl, now, target),)
        case ShardTable():
            return _shard(ddl, target)
        case _:
            assert_never(ddl)


def _create(ddl: CreateTable, target: Target, ttl: Ttl) -> DdlCommand:
    options = {name: value for name, value in ddl.options.decode().items() if name not in _SET_BY_THE_SERVER}
    if "collation" in options:
        options["collation"] = without_version(options["collation"])
    if "timeseries" in options:
        options["timeseries"] = plain_timeseries(options["timeseries"])
    if "clusteredIndex" in options:
        options["clusteredIndex"] = plain_clustered_index(options["clusteredIndex"])
    options = _without_lost_options(options, target)
    return DdlCommand(ddl.name.db, {"create": ddl.name.coll} | table_expiry(options, ttl))


def _without_lost_options(options: Mapping[str, Any], target: Target) -> dict[str, Any]:
    """Without `recordPreImages` of 4.4 and 5.0 from 6.0 on, where `changeStreamPreAndPostImages` replaces it."""
    return {name: value for name, value in options.items() if name != "recordPreImages" or not target.takes_uuids}


def _create_indexes(ddl: CreateIndexes, now: Observation, target: Target, ttl: Ttl) -> tuple[DdlCommand, ...]:
    """Only collMod sets `prepareUnique`, and only on a built index: an index that has it is finished."""
    prepared = {index["name"] for index in _indexes_of(now.tables.get(ddl.name)) if index.get("prepareUnique")}
    specs = map(Document.decode, ddl.indexes)
    wanted = [spec for spec in specs if spec["name"] not in prepared and not _made_with_its_table(spec)]
    if not wanted:
        return ()
    of_series = _is_series(now.tables.get(ddl.name))
    stated = [_specification(spec, of_series=of_series) for spec in wanted]
    specifications = [index_expiry(spec, ttl, target.never_seconds) for spec in stated]
    to_prepare = [spec["name"] for spec in wanted if spec.get("prepareUnique")]
    return (
        _on(ddl.name, "createIndexes", {"indexes": specifications, **_commit_quorum(target)}, now, target),
        *(_prepare_unique(ddl.name, {"name": name}, now, target) for name in to_prepare),
    )


def _specification(spec: Mapping[str, Any], *, of_series: bool) -> dict[str, Any]:
    """A server refuses a collation of a partial index of a time series, even the one that the time series has."""
    stated = index_specification(spec)
    if of_series and "partialFilterExpression" in stated:
        stated.pop("collation", None)
    return stated


def _commit_quorum(target: Target) -> dict[str, str]:
    """The default quorum waits for each voting member of the target, also for one that is down."""
    return {"commitQuorum": "majority"} if target.wire >= WIRE_4_4 else {}


def _made_with_its_table(spec: Mapping[str, Any]) -> bool:
    return spec["key"] == {"_id": 1} or "clustered" in spec


def _drop_index(name: TableName, index: str, now: Observation, target: Target) -> DdlCommand:
    """One command for each index: the server refuses a whole list when one of its indexes does not exist."""
    return _on(name, "dropIndexes", {"index": index}, now, target, settled=frozenset({INDEX_NOT_FOUND}))


def _modify(ddl: ModifyTable, now: Observation, target: Target, ttl: Ttl) -> tuple[DdlCommand, ...]:
    changes = {name: value for name, value in ddl.changes.decode().items() if name not in _NOT_OF_COLLMOD}
    changes = modified_expiry(_without_lost_options(changes, target), ttl, target.never_seconds)
    if not changes:
        return ()
    change = _on(ddl.name, "collMod", changes, now, target)
    which = {name: value for name, value in changes.get("index", {}).items() if name in ("name", "keyPattern")}
    if not changes.get("index", {}).get("unique") or _on_its_way_to_unique(now.tables.get(ddl.name), which):
        return (change,)
    return _prepare_unique(ddl.name, which, now, target), change


def _on_its_way_to_unique(table: ObservedTable | None, which: Mapping[str, Any]) -> bool:
    """Preparing such an index again has no effect, but on 6.0 leaves `prepareUnique` on an index that is unique already."""
    return any(
        index.get("unique") or index.get("prepareUnique")
        for index in _indexes_of(table)
        if index["name"] == which.get("name") or index["key"] == which.get("keyPattern")
    )


def _prepare_unique(name: TableName, which: Mapping[str, Any], now: Observation, target: Target) -> DdlCommand:
    """The target refuses `unique: true` without this step."""
    return _on(name, "collMod", {"index": {**which, "prepareUnique": True}}, now, target)


def _drop(name: TableName, now: Observation, target: Target) -> DdlCommand:
    return _on(name, "drop", {}, now, target, settled=frozenset({NAMESPACE_NOT_FOUND}))


def _rename(ddl: RenameTable, now: Observation, target: Target) -> DdlCommand:
    body: dict[str, Any] = {"renameCollection": str(ddl.name), "to": str(ddl.to)}
    replaced = now.tables.get(ddl.to)
    guarded = ddl.name.db == ddl.to.db
    if replaced:
        guard = _guard(replaced, target) if guarded else None
        body["dropTarget"] = True if guard is None else guard
    if guarded:
        body |= _guard_field(now.tables.get(ddl.name), target)
    return DdlCommand("admin", body)


def _shard(ddl: ShardTable, target: Target) -> tuple[DdlCommand, ...]:
    """Chunks and zones are not in these commands (`TableSpread`).

    A shard key always has simple collation; a collection with another one requires it to be named.
    """
    if not target.sharded:
        return ()
    description = ddl.description.decode()
    if "shardKey" not in description:
        raise DdlUnsupported(f"{ddl.how} on {ddl.name}: the source's event does not contain the shard key")
    body: dict[str, Any] = {ddl.how.value: str(ddl.name), "key": description["shardKey"]}
    if ddl.how is not DdlType.REFINE_SHARD_KEY:
        if "unique" in description:
            body["unique"] = description["unique"]
        body["collation"] = dict(SIMPLE)
    share = DdlCommand("admin", body)
    if ddl.how is DdlType.SHARD_COLLECTION and target.wire < WIRE_6_0:
        return DdlCommand("admin", {"enableSharding": ddl.name.db}), share
    return (share,)


def _on(
    name: TableName,
    verb: str,
    arguments: Mapping[str, Any],
    now: Observation,
    target: Target,
    settled: frozenset[int] = frozenset(),
) -> DdlCommand:
    return DdlCommand(
        name.db, {verb: name.coll} | dict(arguments) | _guard_field(now.tables.get(name), target), settled
    )


def _guard_field(table: ObservedTable | None, target: Target) -> dict[str, Any]:
    guard = _guard(table, target)
    return {} if guard is None else {"collectionUUID": guard}


def _guard(table: ObservedTable | None, target: Target) -> Binary | None:
    if table is None or table.uuid is None or not target.takes_uuids or _is_series(table):
        return None
    return Binary(bytes.fromhex(table.uuid), UUID_SUBTYPE)


def _is_series(table: ObservedTable | None) -> bool:
    return table is not None and "timeseries" in table.options.decode()


def _indexes_of(table: ObservedTable | None) -> list[dict[str, Any]]:
    return [] if table is None else [index.decode() for index in table.indexes]
