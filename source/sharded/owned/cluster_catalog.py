"""`read_cluster_catalog`: the tables of a sharded cluster, each once, with the indexes that all its owners have.

    config.collections, config.databases, config.chunks    which UUID a name means, its shard key, the shards that own it
    listCollections of a database's primary shard          its unsharded tables
    listCollections of an owner                            the options of a sharded one
    listIndexes of the owners                              an index that only some of them have is none of the table yet

`refuse_orphans`, `balancer_runs`: whether documents stand, or may come, on shards that do not own them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from changefeed.cluster_time import ClusterTime
from changefeed.documents.document import Document
from changefeed.errors import SourceUnavailable, SourceUnsupported
from changefeed.position import Position
from changefeed.table import SYSTEM_DATABASES, TableId, TableKind, TableName, kind_of, view_id
from source.connection import MAJORITY, Client, config_documents, read_cursor
from source.ddl_description import bson_uuid, index_document, printable, uuid_of
from source.errors import translated
from source.sharded.catalog_reading import name_now, specifications
from source.sharded.cluster_clients import ClusterClients, reach_newest
from source.sharded.tables.cluster_state import table_name
from source.sharded.tables.orphan_guard import MIGRATIONS, RANGES, REMEDY
from source.sharded.tables.owned_ddl import index_name
from source.tables.catalog import CatalogReading, of_utf8, schema_of
from source.tables.row_read import one_term

_THREADS = 16


@dataclass(frozen=True, slots=True)
class _ClusterTable:
    name: TableName
    info: Mapping[str, Any]
    owners: tuple[str, ...]
    uuid: TableId | None
    shard_key: Mapping[str, Any] | None = None

    @property
    def id(self) -> TableId:
        plain = kind_of(self.info.get("options", {})) is TableKind.COLLECTION
        return self.uuid if self.uuid is not None and plain else view_id(self.name)


def read_cluster_catalog(clients: ClusterClients, wanted: Callable[[TableName], bool]) -> CatalogReading:
    """All wanted tables. Valid at its position if no DDL of them comes before `after_ts`."""
    reached_ts = reach_newest(clients)
    position = Position(reached_ts.next())
    with translated("reading the catalog of the source's shards"), ThreadPoolExecutor(_THREADS, "catalog") as threads:
        hosts = clients.read_shards()
        listed = [table for table in _each_once(_listed(clients, hosts, reached_ts, wanted)) if wanted(table.name)]
        indexes = threads.map(lambda table: _indexes(clients, table), listed)
        tables = tuple(
            schema_of(table.name, table.info, table.id, found, table.shard_key, position)
            for table, found in zip(listed, indexes, strict=True)
        )
    return CatalogReading(tables=tables, position=position, after_ts=reach_newest(clients))


def _listed(
    clients: ClusterClients, hosts: Mapping[str, str], after_ts: ClusterTime, wanted: Callable[[TableName], bool]
) -> Iterator[_ClusterTable]:
    """As it was at that time or later: after an election, a majority may show less than it did. Of a table that is not wanted only what it is called:
    its records may contradict each other for good.
    """
    with one_term(clients.config, "reading the catalog of the config servers"):
        databases, collections = (
            config_documents(clients.config, coll, concern=_after(after_ts)) for coll in ("databases", "collections")
        )
        primaries = {each["_id"]: each["primary"] for each in databases}
        entries = {printable(str(each["_id"])): each for each in collections}
        sharded = {ns: uuid_of(entry.get("uuid")) for ns, entry in entries.items()}
    shards = _Listings(clients, hosts)
    for db, primary in sorted(primaries.items()):
        for info in shards.infos(primary, db) if db not in SYSTEM_DATABASES else ():
            name = TableName(db, printable(info["name"]))
            if name.coll.startswith("system."):
                continue
            if str(name) not in sharded:
                yield _ClusterTable(name, info, (primary,), _uuid(info))
            elif wanted(name) and None not in (uuids := {_uuid(info), sharded[str(name)]}) and len(uuids) > 1:
                raise _other_table(name, primary)
    for ns, uuid in sorted(sharded.items()):
        named = table_name(ns)
        if named is not None and not named.system and uuid is not None:
            table = shards.sharded(named, uuid, after_ts) if wanted(named) else _ClusterTable(named, {}, (), uuid)
            yield replace(table, shard_key=entries[ns].get("key"))


def _other_table(name: TableName, shard: str) -> SourceUnavailable:
    """The config servers learn last that a table which is not sharded has taken the name of a sharded one: it would have no name at all."""
    return SourceUnavailable(
        f"shard {shard} has another table named {name} than the config servers: one is being renamed over the other, or resharded; the catalog "
        "is read again. If it stays so while no such operation is under way, the cluster's own catalog is inconsistent: mend that first "
        "(`checkMetadataConsistency` of mongosh says more, from 7.0 on), and drop nothing before you know which table is which"
    )


def _each_once(listed: Iterable[_ClusterTable]) -> Iterator[_ClusterTable]:
    """Config servers and shards rename a table one after another, so one that is being renamed may be listed under both names."""
    names: dict[TableId, TableName] = {}
    for table in listed:
        other = names.setdefault(table.uuid, table.name) if table.uuid is not None else table.name
        if other != table.name:
            raise SourceUnavailable(
                f"{other} was renamed to {table.name}, or back, while the catalog was read; it is read again"
            )
        yield table


class _Listings:
    """The collections of each shard, read when they are first needed."""

    def __init__(self, clients: ClusterClients, hosts: Mapping[str, str]) -> None:
        self._clients, self._hosts = clients, hosts
        self._infos: dict[tuple[str, str], list[Mapping[str, Any]]] = {}

    def infos(self, shard: str, db: str) -> list[Mapping[str, Any]]:
        if (shard, db) not in self._infos:
            client = self._clients.of(shard, self._hosts.get(shard, ""))
            with one_term(client, f"reading the collections of shard {shard}"):
                self._infos[shard, db] = list(read_cursor(client, db, {"listCollections": 1}))
        return self._infos[shard, db]

    def sharded(self, name: TableName, uuid: TableId, after_ts: ClusterTime) -> _ClusterTable:
        """An owner has its options. The database's primary shard may have older ones, or after a resharding no collection at all."""
        key = bson_uuid(uuid)
        chunks = config_documents(
            self._clients.config, "chunks", {"uuid": key}, concern=_after(after_ts), projection={"shard": 1}
        )
        owners = tuple(sorted({str(chunk["shard"]) for chunk in chunks}))
        infos = self.infos(owners[0], name.db) if owners else []
        info = next((each for each in infos if _uuid(each) == uuid), None)
        if info is None:
            raise SourceUnavailable(
                f"{name} got another UUID or other owners while the catalog was read; it is read again"
            )
        return _ClusterTable(name, info, owners, uuid)


def _uuid(info: Mapping[str, Any]) -> TableId | None:
    return uuid_of(info.get("info", {}).get("uuid"))


def _indexes(clients: ClusterClients, table: _ClusterTable) -> tuple[Document, ...]:
    """Of an owner, in the order of their creation there, if all others have them too."""
    if table.uuid is None or table.info["type"] == "view":
        return ()
    with of_utf8(table.name, table.info):
        return _common_indexes(clients, table, table.uuid)


def _common_indexes(clients: ClusterClients, table: _ClusterTable, uuid: TableId) -> tuple[Document, ...]:
    of_shards = []
    for shard in table.owners:
        client = clients.of(shard)
        with one_term(client, f"reading the indexes of shard {shard}"):
            # while a resharding ends, the shards give its collection the table's name one after another
            name = name_now(client, table.name.db, uuid)
            # None: dropped or replaced since it was listed; the DDL watch will show it, and the reading is disturbed
            of_shards.append((specifications(client, uuid, name) if name is not None else None) or [])
    if not of_shards:
        return ()
    names = [{index_name(spec) for spec in found} for found in of_shards]
    common = set.intersection(*names)
    return tuple(index_document(spec) for spec in of_shards[0] if index_name(spec) in common)


def _after(after_ts: ClusterTime) -> Mapping[str, object]:
    return {**MAJORITY, "afterClusterTime": after_ts.to_bson()}


_MOVES_NOTHING = ("off", "autoSplitOnly")


def refuse_orphans(client: Client, shard: str) -> None:
    """Raises `SourceUnsupported` if the shard gives or takes a chunk, or has not deleted what one has left."""
    for name in (MIGRATIONS, RANGES):
        with translated(f"reading {name} of shard {shard}"):
            found = config_documents(client, name.coll, limit=1)
        if found:
            raise SourceUnsupported(f"shard {shard} has orphaned documents of {found[0]['nss']}, by {name}: {REMEDY}")


def balancer_runs(client: Client) -> bool:
    """As the config servers take their settings: without any, it does."""
    with translated("reading config.settings"):
        found = config_documents(client, "settings", {"_id": "balancer"})
    said = found[0] if found else {}
    return not said.get("stopped") and said.get("mode", "full") not in _MOVES_NOTHING
