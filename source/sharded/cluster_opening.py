"""`ClusterOpening`: opens the watch of a cluster at a time: the streams from there on, and what the cluster was at that time.

config servers   catalog of now, entries since ─┐
each shard       catalog of now, entries since ─┼─ rewound to the time (`rewind.py`) ── LiveTables, OwnedDdl
└─ the entries wait as units for `resolved`
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import structlog

from changefeed.cluster_time import ClusterTime
from changefeed.errors import HistoryLost
from changefeed.table import TableId, TableName
from source.ddl_description import is_utf8
from source.sharded.catalog_reading import (
    OplogsBefore,
    read_chunks,
    read_collections,
    read_config,
    read_indexes,
    read_views,
)
from source.sharded.cluster_clients import CONFIG, ClusterClients
from source.sharded.effective_order import Operation, Unit
from source.sharded.owned.cluster_catalog import refuse_orphans
from source.sharded.shard_roster import AddedShard, ArrivingShard, ShardRoster
from source.sharded.stream import ClusterStream, caught_up, operations_of, wait_for_start
from source.sharded.tables.cluster_state import DATABASES, SHARDS, changed_field, document_id
from source.sharded.tables.live_tables import LiveTables
from source.sharded.tables.orphan_guard import OrphanGuard
from source.sharded.tables.owned_ddl import IndexName, OwnedDdl, rewound_indexes
from source.sharded.tables.rewind import rewound, rewound_shard
from source.tables.row_read import one_term

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedCluster:
    tables: LiveTables
    owned: OwnedDdl
    guard: OrphanGuard
    units: list[Unit]
    """Of all streams, in no order."""


@dataclass(frozen=True, slots=True)
class _OpenedShard:
    collections: Mapping[TableId, TableName]
    indexes: Mapping[TableId, Mapping[IndexName, Mapping[str, Any]]]
    units: list[Unit]


class ClusterOpening:
    """For one thread. `streams` has each stream that is open, also when the rest fails; `roster` is told of the shards."""

    def __init__(
        self,
        clients: ClusterClients,
        threads: ThreadPoolExecutor,
        streams: dict[str, ClusterStream],
        roster: ShardRoster,
    ) -> None:
        self._clients = clients
        self._threads = threads
        self._streams = streams
        self._roster = roster

    def open(self, start_ts: ClusterTime, ids: Mapping[TableId, TableId]) -> OpenedCluster:
        self._clients.refuse_others()
        client = self._clients.config
        stream = ClusterStream(CONFIG, client, start_ts, config=True)
        wait_for_start(stream)
        with one_term(client, "reading the catalog of the config servers"):
            config, hosts = read_config(client), dict(self._clients.read_shards())
            chunks = read_chunks(client, start_ts)
            features = self._clients.read_features()
        config_units = caught_up(stream)
        self._streams[CONFIG] = stream
        hosts = self._hosts_since(start_ts, hosts, config_units)
        config_operations = operations_of(config_units)
        guard = OrphanGuard.of(features, config_operations)
        wanted = config.filling.union(config.sharded.values())
        opening = {name: self._threads.submit(self._open, name, host, start_ts, wanted) for name, host in hosts.items()}
        opened = {name: each.result() for name, each in opening.items()}
        for name, host in hosts.items() if guard.on else ():
            refuse_orphans(self._clients.of(name, host), name)
        operations = {name: operations_of(each.units) for name, each in opened.items()}
        state = rewound(
            config,
            config_operations,
            {name: each.collections for name, each in opened.items()},
            operations,
            OplogsBefore(self._clients, start_ts),
        )
        for shard in self._roster.gone:
            refuse_lost_primary(
                shard, _removed(shard, self._roster.removed[shard], start_ts), state.primaries, config_operations
            )
            self._roster.added.pop(shard, None)
        indexes: dict[TableId, dict[str, Mapping[IndexName, Mapping[str, Any]]]] = {}
        for name, each in opened.items():
            for uuid, of_shard in each.indexes.items():
                indexes.setdefault(uuid, {})[name] = of_shard
        tables = LiveTables.of(state, ids)
        return OpenedCluster(
            tables=tables,
            owned=OwnedDdl(tables, chunks, rewound_indexes(indexes, operations), operations, self._roster.gone),
            guard=guard,
            units=[*config_units, *(unit for each in opened.values() for unit in each.units)],
        )

    def admit(self, shard: str, added: AddedShard) -> list[Unit]:
        """Open the stream of a shard at the time at which it was added, and return the units that it has shown."""
        views = read_views(self._clients.of(shard, added.host), shard)
        opened = self._open(shard, added.host, added.ts, None)
        operations = operations_of(opened.units)
        by_shard = {uuid: {shard: of_shard} for uuid, of_shard in opened.indexes.items()}
        indexes = rewound_indexes(by_shard, {shard: operations})
        had = ArrivingShard(
            rewound_shard(opened.collections, operations), {uuid: each[shard] for uuid, each in indexes.items()}, views
        )
        self._roster.arrives(shard, had)
        return opened.units

    def _open(self, shard: str, host: str, start_ts: ClusterTime, wanted: frozenset[TableId] | None) -> _OpenedShard:
        """`wanted`: UUIDs of which the indexes matter. None: all."""
        client = self._clients.of(shard, host)
        stream = ClusterStream(shard, client, start_ts)
        stream.reach_start(self._streams[CONFIG].cluster_time)
        wait_for_start(stream)
        with one_term(client, f"reading the collections of shard {shard}"):
            collections = read_collections(client, shard)
            of_tables = {
                uuid: name
                for uuid, name in collections.items()
                if (not name.system if wanted is None else uuid in wanted) and is_utf8(name)
            }
            indexes = read_indexes(client, shard, of_tables)
        units = caught_up(stream)
        self._streams[shard] = stream
        return _OpenedShard(collections, indexes, units)

    def _hosts_since(self, start_ts: ClusterTime, now: Mapping[str, str], units: Iterable[Unit]) -> dict[str, str]:
        """The shards that are read from the start on: also those that were removed since, and none that was added since."""
        hosts = dict(now)
        for unit in units:
            for operation in unit.operations:
                self._roster.read(operation, unit.ts)
                if operation["ns"] == str(SHARDS) and operation["op"] == "d":
                    shard = str(document_id(operation))
                    hosts[shard] = self._former_host(shard, unit.ts, start_ts)
                if operation["ns"] == str(SHARDS) and operation["op"] == "i":
                    _refuse_another(str(operation["o"]["_id"]), unit.ts, self._roster.removed, start_ts)
                    hosts.pop(operation["o"]["_id"], None)
        return {name: host for name, host in hosts.items() if name not in self._roster.gone}

    def _former_host(self, shard: str, removed_ts: ClusterTime, start_ts: ClusterTime) -> str:
        """Of a shard that was removed after the start. It has history that is needed, and has to run until that was read, unless it is gone."""
        host = self._clients.read_former_host(shard)
        why = _removed(shard, removed_ts, start_ts)
        if host is None:
            raise HistoryLost(
                f"{why}, and config.changelog no longer says where it is; remove the changefeed and create it again with a new initial copy"
            )
        silence = self._clients.silence(shard, host)
        if silence is not None and not silence.over:
            raise silence.told(why)
        if silence is not None:
            self._roster.gone_before(shard, host, removed_ts)
            log.warning("shard_gone", shard=shard, removed=str(removed_ts), reason=str(silence.error))
        return host


def _refuse_another(
    shard: str, added_ts: ClusterTime, removed: Mapping[str, ClusterTime], from_ts: ClusterTime
) -> None:
    """A history has one shard of a name."""
    if shard in removed:
        raise HistoryLost(
            f"{_removed(shard, removed[shard], from_ts)}, and another one was added under its name at {added_ts}; remove the changefeed and create "
            "it again with a new initial copy"
        )


def _removed(shard: str, removed_ts: ClusterTime, from_ts: ClusterTime) -> str:
    return f"shard {shard} was removed at {removed_ts}, but its history from {from_ts} on is needed"


def refuse_lost_primary(shard: str, why: str, primaries: Mapping[str, str], operations: Iterable[Operation]) -> None:
    """Raise if a shard that is gone was a primary shard, now or by these operations. It alone logs the DDL of unsharded tables and of views."""
    primary_of = {db for db, primary in primaries.items() if primary == shard}
    for operation in operations:
        if (
            operation["ns"] == str(DATABASES)
            and operation["op"] != "d"
            and changed_field(operation, "primary") == shard
        ):
            primary_of.add(document_id(operation))
    if primary_of:
        raise HistoryLost(
            f"{why}. It is gone, and it was the primary shard of {', '.join(sorted(primary_of))}, whose schema changes no other shard has; "
            "remove the changefeed and create it again with a new initial copy"
        )
