"""`read_cluster_catalog`: the tables of a sharded cluster, each once, with the indexes that all its owners have.

    config.collections, config.databases, config.chunks    which UUID a name means, the shards that own it
    listCollections of a database's primary shard          its unsharded tables, and the options of the sharded ones
    listIndexes of the owners                              an index that only some of them have is none of the table yet

Shard keys are left out: a changefeed does not follow them, and rows are known by `_id` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from pymongo.errors import OperationFailure

from changefeed.documents.document import Document
from changefeed.errors import SourceUnavailable
from changefeed.position import Position
from changefeed.table import SYSTEM_DATABASES, TableId, TableKind, TableName, TableSchema, view_id
from source.connection import Client
from source.ddl.ddl_description import uuid_of
from source.ddl.index_spec import index_document
from source.errors import translated
from source.sharded.clock import reach_newest
from source.sharded.cluster_clients import ClusterClients
from source.sharded.tables.owned_ddl import index_name
from source.tables.catalog import CatalogReading
from source.tables.one_term import one_term

_THREADS = 16
_NAMESPACE_NOT_FOUND = 26
_KINDS = {"view": TableKind.VIEW, "timeseries": TableKind.TIMESERIES}


@dataclass(frozen=True, slots=True)
class _ClusterTable:
    name: TableName
    info: Mapping[str, Any]
    owners: tuple[str, ...]
    uuid: TableId | None


def read_cluster_catalog(clients: ClusterClients, wanted: Callable[[TableName], bool]) -> CatalogReading:
    """All wanted tables. Valid at its position if no DDL of them comes before `after_ts`."""
    position = Position(reach_newest(clients).next())
    with translated("reading the catalog of the source's shards"), ThreadPoolExecutor(_THREADS, "catalog") as threads:
        hosts = clients.read_shards()
        listed = [table for table in _listed(clients, hosts) if wanted(table.name)]
        indexes = threads.map(lambda table: _indexes(clients, table), listed)
        tables = tuple(_schema(table, found, position) for table, found in zip(listed, indexes, strict=True))
    return CatalogReading(tables=tables, position=position, after_ts=reach_newest(clients))


def _listed(clients: ClusterClients, hosts: Mapping[str, str]) -> Iterator[_ClusterTable]:
    with one_term(clients.config, "reading the catalog of the config servers"):
        primaries = {each["_id"]: each["primary"] for each in _config(clients, "databases")}
        sharded = {each["_id"]: each for each in _config(clients, "collections")}
    for db, primary in sorted(primaries.items()):
        if db in SYSTEM_DATABASES:
            continue
        client = clients.of(primary, hosts.get(primary, ""))
        with one_term(client, f"reading the collections of shard {primary}"):
            infos = {info["name"]: info for info in _cursor(client, db, {"listCollections": 1})}
        for coll, info in infos.items():
            name = TableName(db, coll)
            entry = sharded.get(str(name))
            if coll.startswith("system."):
                continue
            if entry is None:
                yield _ClusterTable(name, info, (primary,), uuid_of(info.get("info", {}).get("uuid")))
                continue
            uuid = uuid_of(entry["uuid"])
            if uuid_of(info.get("info", {}).get("uuid")) != uuid:
                raise SourceUnavailable(f"{name} has two UUIDs while the catalog is read; it is read again")
            owners = {chunk["shard"] for chunk in _config(clients, "chunks", {"uuid": entry["uuid"]}, {"shard": 1})}
            yield _ClusterTable(name, info, tuple(sorted(owners)), uuid)


def _indexes(clients: ClusterClients, table: _ClusterTable) -> tuple[Document, ...]:
    """Of an owner, in the order of their creation there, if all others have them too."""
    if table.info["type"] == "view":
        return ()
    of_shards = []
    for shard in table.owners:
        client = clients.of(shard)
        with one_term(client, f"reading the indexes of shard {shard}"):
            of_shards.append(list(_specifications(client, table.name)))
    if not of_shards:
        return ()
    names = [{index_name(spec) for spec in found} for found in of_shards]
    common = set.intersection(*names)
    return tuple(index_document(spec) for spec in of_shards[0] if index_name(spec) in common)


def _specifications(client: Client, name: TableName) -> Iterator[Mapping[str, Any]]:
    try:
        for spec in _cursor(client, name.db, {"listIndexes": name.coll, "includeBuildUUIDs": True}):
            if not {"buildUUID", "clustered"} & spec.keys():
                yield spec
    except OperationFailure as error:
        # dropped or renamed since it was listed: the DDL watch will show it, and the reading is disturbed
        if error.code != _NAMESPACE_NOT_FOUND:
            raise


def _schema(table: _ClusterTable, indexes: tuple[Document, ...], valid_from: Position) -> TableSchema:
    options = {option: value for option, value in table.info.get("options", {}).items() if option != "temp"}
    kind = TableKind.TIMESERIES if "timeseries" in options else _KINDS.get(table.info["type"], TableKind.COLLECTION)
    return TableSchema(
        id=table.uuid if table.uuid is not None and kind is TableKind.COLLECTION else view_id(table.name),
        name=table.name,
        kind=kind,
        options=Document.of(options),
        indexes=indexes,
        valid_from=valid_from,
    )


def _config(
    clients: ClusterClients,
    coll: str,
    filter: Mapping[str, Any] | None = None,
    projection: Mapping[str, int] | None = None,
) -> Iterator[Mapping[str, Any]]:
    command = {"find": coll, "filter": filter or {}, "readConcern": {"level": "majority"}}
    if projection is not None:
        command["projection"] = projection
    return _cursor(clients.config, "config", command)


def _cursor(client: Client, db: str, command: dict[str, Any]) -> Iterator[Mapping[str, Any]]:
    return client[db].cursor_command(
        command, codec_options=client[db].codec_options, read_preference=client.read_preference
    )
