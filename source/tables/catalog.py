"""`read_catalog`, `disturbs`: the tables of the source, and whether a DDL disturbed the reading.

Reading thousands of tables takes seconds, and no server shows them all at one time. So the reading is enclosed by two times: it contains
everything committed before it began, and nothing that came after it ended. If the DDL watch shows no DDL between the two times, the
reading is valid at both times and in between:

    majority time    listCollections, listIndexes ...    newest time      resolved
    before_ts ────────────────────────────────────────── after_ts ─────── beyond it: decide
               a DDL in here: the reading may be half old, half new: read again

`read_stable_catalog`, `read_undisturbed`: until no DDL disturbs the reading. Where DDL is frequent, a whole one never succeeds. So only the tables
that a DDL names are read again. The whole is valid where its last part is, as long as nothing else changed before that:

    first    all tables [100.1, 107.4]     DDL: createIndexes A @103, create B @105     A and B are read again
    second   A, B       [107.9, 108.0]     DDL: createIndexes C @107.6                  C has changed before 107.9: it is read again
    third    C          [108.3, 108.4]     DDL: createIndexes D @108.35                 valid at 108.3: D changes afterwards

`read_layout` tells how a sharded cluster divides a table now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import structlog
from pymongo.errors import OperationFailure

from changefeed.cluster_time import ClusterTime
from changefeed.documents.document import Document
from changefeed.errors import SourceUnavailable, SourceUnsupported
from changefeed.event import DdlEvent
from changefeed.position import Position
from changefeed.table import SYSTEM_DATABASES, TableId, TableKind, TableName, TableSchema, kind_of, view_id
from changefeed.table_layout import TableLayout, ZoneRange
from source.connection import HELLO, Client, config_documents, is_router, read_command, read_cursor
from source.ddl_description import bson_uuid, check_names, index_document, printable, uuid_of
from source.ddl_watch import DdlWatch
from source.errors import translated
from source.oplog.window import majority_time, newest_time

_THREADS = 16
_NAMESPACE_NOT_FOUND = 26


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogReading:
    tables: tuple[TableSchema, ...]
    position: Position
    """Where the tables are valid from, if the reading is stable."""
    after_ts: ClusterTime


@dataclass(frozen=True, slots=True)
class _Listed:
    name: TableName
    info: Mapping[str, Any]
    id: TableId


def disturbs(reading: CatalogReading, ddl: DdlEvent) -> bool:
    """`ddl`: of a table that it has read."""
    return reading.position <= ddl.position and ddl.position.ts <= reading.after_ts


def passed(reading: CatalogReading, resolved: Position) -> bool:
    """Whether the watch has shown every DDL that may disturb the reading."""
    return resolved.ts > reading.after_ts and resolved >= reading.position


def read_catalog(client: Client, wanted: Callable[[TableName], bool], *, buckets: bool = False) -> CatalogReading:
    """All wanted tables. `buckets`: a time series is the collection of its buckets, as in the oplog; otherwise it is a view, as in change
    streams.
    """
    before_ts = majority_time(client)
    position = Position(before_ts.next())
    with translated("reading the catalog of the source"), ThreadPoolExecutor(_THREADS, "catalog") as threads:
        shard_keys = _shard_keys(client)
        listed_names = read_command(client, "admin", {"listDatabases": 1, "nameOnly": True})["databases"]
        databases = [each["name"] for each in listed_names if each["name"] not in SYSTEM_DATABASES]
        of_databases = threads.map(lambda db: _listed(client, db, buckets=buckets), databases)
        listed = [table for tables in of_databases for table in tables]
        chosen = [table for table in listed if wanted(table.name)]
        indexes = threads.map(lambda table: _indexes(client, table), chosen)
        tables = tuple(
            schema_of(table.name, table.info, table.id, found, shard_keys.get(str(table.name)), position)
            for table, found in zip(chosen, indexes, strict=True)
        )
    return CatalogReading(tables=tables, position=position, after_ts=newest_time(client))


@contextmanager
def of_utf8(name: TableName, info: Mapping[str, Any]) -> Iterator[None]:
    """Servers take texts that are no UTF-8 (`printable`). Another one would be another name, or another definition."""
    try:
        check_names(info["name"])
        yield
    except UnicodeError:
        raise SourceUnsupported(
            f"{name}: expected its name, options and indexes to be UTF-8, found a text that is not; leave the table out (filter.tables), or "
            "drop and create it again at the source without that text"
        ) from None


def schema_of(
    name: TableName,
    info: Mapping[str, Any],
    id: TableId,
    indexes: tuple[Document, ...],
    shard_key: Mapping[str, Any] | None,
    valid_from: Position,
) -> TableSchema:
    """`info`: as listCollections says it."""
    options = {option: value for option, value in info.get("options", {}).items() if option != "temp"}
    with of_utf8(name, info):
        said, key = Document.of(options), Document.of(shard_key) if shard_key else None
    return TableSchema(
        id=id, name=name, kind=kind_of(options), options=said, indexes=indexes, shard_key=key, valid_from=valid_from
    )


def _listed(client: Client, db: str, *, buckets: bool) -> list[_Listed]:
    infos = {TableName(db, printable(info["name"])): info for info in read_cursor(client, db, {"listCollections": 1})}
    return [
        _Listed(name, info, _id_of(name, info, infos.get(name.buckets), buckets=buckets))
        for name, info in infos.items()
        if not name.system
    ]


def _id_of(name: TableName, info: Mapping[str, Any], over: Mapping[str, Any] | None, *, buckets: bool) -> TableId:
    """`over`: the collection of its buckets."""
    holds_rows = info if over is None else over if buckets else None
    uuid = None if holds_rows is None or info["type"] == "view" else uuid_of(holds_rows.get("info", {}).get("uuid"))
    return view_id(name) if uuid is None else uuid


def _indexes(client: Client, table: _Listed) -> tuple[Document, ...]:
    """In the order of their creation. An index that is still being built is left out: its createIndexes event comes later.

    A clustered collection lists its own order as an index. It is left out too, since the options contain it.
    """
    if table.info["type"] == "view":
        return ()
    # None: dropped or renamed since it was listed; the DDL watch will show it, and the reading is disturbed
    specifications = listed_indexes(client, table.name) or []
    with of_utf8(table.name, table.info):
        return tuple(map(index_document, built(specifications)))


def listed_indexes(client: Client, name: TableName) -> list[Mapping[str, Any]] | None:
    """None: there is no such collection."""
    try:
        return list(read_cursor(client, name.db, {"listIndexes": name.coll, "includeBuildUUIDs": True}))
    except OperationFailure as error:
        if error.code != _NAMESPACE_NOT_FOUND:
            raise
        return None


def built(specifications: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [spec for spec in specifications if not {"buildUUID", "clustered"} & spec.keys()]


def _shard_keys(client: Client) -> Mapping[str, Mapping[str, Any]]:
    if not is_router(client):
        return {}
    sharded = client["config"]["collections"].find(
        {"dropped": {"$ne": True}, "unsplittable": {"$ne": True}}, {"key": 1}
    )
    return {entry["_id"]: entry["key"] for entry in sharded}


_ATTEMPTS = 20

Wanted = Callable[[TableName], bool]


def read_stable_catalog(
    client: Client, wanted: Wanted, open_watch: Callable[[Position], DdlWatch], *, buckets: bool = False
) -> CatalogReading:
    """Blocks for the reading and some hundred milliseconds more. `open_watch` opens a separate watch for it.

    `buckets`: as for `read_catalog`; the watch must tell of time series in the same way.
    """
    for _ in range(_ATTEMPTS):
        primary = _primary(client)
        reading = read_undisturbed(partial(read_catalog, client, buckets=buckets), wanted, open_watch)
        if _primary(client) == primary:
            return reading
    raise SourceUnavailable(
        f"the source elected a primary, or another member was read, during each of {_ATTEMPTS} attempts to read its catalog"
    )


def read_undisturbed(
    read: Callable[[Wanted], CatalogReading], wanted: Wanted, open_watch: Callable[[Position], DdlWatch]
) -> CatalogReading:
    """Reads all wanted tables, then again what the watch shows to have changed meanwhile, until a part was read undisturbed."""
    tables: dict[TableName, TableSchema] = {}
    stale: set[TableName] = set()
    watch: DdlWatch | None = None
    try:
        for _ in range(_ATTEMPTS):
            settled = tables.keys() - stale
            reading = read(partial(_is_part, settled, wanted))
            now = {name: tables[name] for name in settled} | {schema.name: schema for schema in reading.tables}
            known, tables = tables.keys() | now.keys(), now
            watch = watch if watch is not None else open_watch(reading.position)
            named = [(ddl, name) for ddl in _shown(watch, reading) for name in _names(ddl, known) if wanted(name)]
            disturbing = [
                ddl
                for ddl, name in named
                if (ddl.position < reading.position if name in settled else disturbs(reading, ddl))
            ]
            if not disturbing:
                valid = (replace(schema, valid_from=reading.position) for schema in tables.values())
                return replace(reading, tables=tuple(valid))
            stale = {name for ddl, name in named if name in settled or ddl.position >= reading.position}
    finally:
        if watch is not None:
            watch.close()
    raise SourceUnavailable(
        f"the catalog of the source changed during each of {_ATTEMPTS} attempts to read it, the last time by {disturbing[-1]}; let schema changes "
        "rest for some seconds, or leave a table that changes all the time out (filter.tables)"
    )


def _is_part(settled: AbstractSet[TableName], wanted: Wanted, name: TableName) -> bool:
    return name not in settled and wanted(name)


def _shown(watch: DdlWatch, reading: CatalogReading) -> Iterator[DdlEvent]:
    """The DDLs that were not shown yet, at least until the watch has passed the reading."""
    while True:
        batch = watch.poll()
        if batch.trouble is not None:
            raise batch.trouble
        yield from batch.events
        if passed(reading, batch.resolved):
            return


def _names(ddl: DdlEvent, known: Iterable[TableName]) -> Iterable[TableName]:
    """Those that it may give another meaning. `known`: of all tables that were read. A database without any is dropped without an effect on them."""
    if ddl.table is None:
        return [name for name in known if name.db == ddl.db]
    return [name for name in (ddl.table, ddl.renamed_to) if name is not None]


def _primary(client: Client) -> Any:
    """It changes with each election, which may roll back what was read, and with the member that is read. None through mongos."""
    with translated("reading which member is the source's primary"):
        elected = client.admin.command(HELLO).get("electionId")
        return elected and (elected, read_command(client, "admin", {HELLO: 1}).get("me"))


_log = structlog.get_logger(__name__)


def read_layout(client: Client, schema: TableSchema) -> TableLayout | None:
    """None if the table is not sharded, or cannot be written through a router one row at a time: if it has a collation."""
    if schema.kind is not TableKind.COLLECTION:
        return None
    with translated(f"reading how the source shards {schema.name}"):
        entry = _entry(client, schema)
        if entry is None or entry.get("unsplittable"):
            return None
        if entry.get("defaultCollation"):
            _log.warning("table_with_a_collation_is_not_sharded", table=str(schema.name))
            return None
        chunks = config_documents(client, "chunks", {"uuid": entry["uuid"]}, sort={"min": 1})
        tags = config_documents(client, "tags", {"ns": entry["_id"]}, sort={"min": 1})
    zones = (ZoneRange(lower=Document.of(tag["min"]), upper=Document.of(tag["max"]), zone=tag["tag"]) for tag in tags)
    return TableLayout(
        key=Document.of(entry["key"]),
        unique=bool(entry.get("unique")),
        bounds=tuple(Document.of(chunk["min"]) for chunk in chunks[1:]),
        zones=tuple(zones),
    )


def _entry(client: Client, schema: TableSchema) -> Mapping[str, Any] | None:
    """By a UUID that it is known to have had; a resharding that nobody has heard of has given it another one, but no other name."""
    uuids = [bson_uuid(uuid) for uuid in (schema.id, *schema.uuids)]
    wanted = {"$or": [{"uuid": {"$in": uuids}}, {"_id": str(schema.name)}]}
    found = config_documents(client, "collections", wanted, sort={"_id": 1})
    return next((entry for entry in found if entry["uuid"] in uuids), found[0] if found else None)
