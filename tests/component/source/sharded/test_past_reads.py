"""A cluster as of a time of the past, as a comparison at a sync point reads it: right, or an error that says that it cannot be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing

import bson
import pytest

from changefeed.cluster_time import ClusterTime
from changefeed.errors import SourceUnavailable
from changefeed.table import TableName
from devstack.sharded.cluster import ShardedCluster
from devstack.sharded.ddl import ClusterDdl
from devstack.sharded.router import ClusterRouter
from devstack.sharded.wire import MAJORITY
from source.sharded.cluster_clients import ClusterClients, reach_newest
from source.sharded.owned.cluster_catalog import read_cluster_catalog
from source.sharded.source import ComparedCluster
from verify.at_point import unread

pytestmark = pytest.mark.since("6.0")

ORDERS, PLAIN = TableName("shop", "orders"), TableName("shop", "plain")
_ROWS = 60

Change = Callable[[ClusterRouter, ClusterDdl], object]


def as_of(clients: ClusterClients, name: TableName, ts: ClusterTime) -> list[int]:
    [schema] = read_cluster_catalog(clients, lambda each: each == name).tables
    options = {"sort": {"_id": 1}, "readConcern": {"level": "snapshot", "atClusterTime": ts.to_bson()}}
    batches = b"".join(ComparedCluster(clients).find(schema, options))
    return sorted(row["_id"] for row in bson.decode_all(batches))


def make(router: ClusterRouter, ddl: ClusterDdl) -> None:
    """Anew, with half of the orders on each shard."""
    if router.known_by_config("databases", {"_id": ORDERS.db}):
        ddl.drop_database(ORDERS.db)
    ddl.create_database(ORDERS.db, primary="sa")
    ddl.shard(str(ORDERS), {"k": 1})
    ddl.split(str(ORDERS), {"k": 30})
    ddl.move(str(ORDERS), {"k": 30}, "sb")
    router.refresh()
    for number in range(_ROWS):
        for name in (ORDERS, PLAIN):
            router.insert(str(name), {"_id": number, "k": number, "b": number}, writeConcern=MAJORITY)


def move_there_and_back(router: ClusterRouter, ddl: ClusterDdl) -> None:
    for shard in ("sb", "sa"):
        ddl.move(str(ORDERS), {"k": 1}, shard, wait_for_delete=True)


def split_and_move(router: ClusterRouter, ddl: ClusterDdl) -> None:
    ddl.split(str(ORDERS), {"k": 10}, {"k": 50})
    ddl.move(str(ORDERS), {"k": 50}, "sa", wait_for_delete=True)


def move_and_merge(router: ClusterRouter, ddl: ClusterDdl) -> None:
    split_and_move(router, ddl)
    ddl.move(str(ORDERS), {"k": 40}, "sa", wait_for_delete=True)
    router.refresh()
    entry = router.route(str(ORDERS)).collection
    assert entry is not None
    merge = {"mergeChunks": str(ORDERS), "bounds": [{"k": 10}, router.route(str(ORDERS)).chunks[-1]["max"]]}
    epoch = {"epoch": entry["lastmodEpoch"], "timestamp": entry["timestamp"]}
    router.wire("sa").command("admin", {**merge, **epoch, **router.versions(str(ORDERS), "sa")})


def reshard(router: ClusterRouter, ddl: ClusterDdl) -> None:
    ddl.reshard(str(ORDERS), {"b": 1}, numInitialChunks=2)


def shard_it(router: ClusterRouter, ddl: ClusterDdl) -> None:
    ddl.create_index(str(PLAIN), {"k": 1})
    ddl.shard(str(PLAIN), {"k": 1})


def move_primary(router: ClusterRouter, ddl: ClusterDdl) -> None:
    ddl.move_primary(PLAIN.db, "sb")


@pytest.mark.parametrize("change", [move_there_and_back, split_and_move])
def test_moved_chunks_are_read_where_they_were(cluster: ShardedCluster, change: Change) -> None:
    with cluster.router() as router, closing(ClusterClients(cluster.config.uri, capture=None)) as clients:
        ddl = ClusterDdl(router)
        make(router, ddl)
        then = reach_newest(clients)
        change(router, ddl)
        router.refresh()
        router.delete(str(ORDERS), {"_id": 1, "k": 1}, writeConcern=MAJORITY)
        router.insert(str(ORDERS), {"_id": 1_000, "k": 55}, writeConcern=MAJORITY)
        assert as_of(clients, ORDERS, then) == list(range(_ROWS))
        assert as_of(clients, ORDERS, reach_newest(clients)) == [0, *range(2, _ROWS), 1_000]


@pytest.mark.parametrize(
    ("change", "name"), [(move_and_merge, ORDERS), (reshard, ORDERS), (shard_it, PLAIN), (move_primary, PLAIN)]
)
def test_what_no_shard_knows_any_more_is_an_error(cluster: ShardedCluster, change: Change, name: TableName) -> None:
    with cluster.router() as router, closing(ClusterClients(cluster.config.uri, capture=None)) as clients:
        ddl = ClusterDdl(router)
        make(router, ddl)
        then = reach_newest(clients)
        change(router, ddl)
        refuses(clients, name, then)
        assert as_of(clients, name, reach_newest(clients)) == list(range(_ROWS))


def test_a_time_in_the_middle_of_a_moved_primary_is_an_error(cluster: ShardedCluster) -> None:
    """The new primary shard shows what it had by then, as if that were all."""
    with cluster.router() as router, closing(ClusterClients(cluster.config.uri, capture=None)) as clients:
        ddl = ClusterDdl(router)
        make(router, ddl)
        ddl.move_primary(PLAIN.db, "sb")
        moved = router.wire("sb").find("local", "oplog.rs", {"ns": str(PLAIN), "op": "i", "fromMigrate": True})
        refuses(clients, PLAIN, ClusterTime.from_bson(moved[-_ROWS // 2]["ts"]))


def test_the_rows_of_a_shard_that_was_removed_since_are_not_left_out(cluster: ShardedCluster) -> None:
    class WithoutOne(ClusterClients):
        def read_shards(self) -> Mapping[str, str]:
            return {name: host for name, host in super().read_shards().items() if name != "sb"}

    with cluster.router() as router, closing(ClusterClients(cluster.config.uri, capture=None)) as clients:
        make(router, ClusterDdl(router))
        then = reach_newest(clients)
        [schema] = read_cluster_catalog(clients, lambda each: each == ORDERS).tables
    options = {"readConcern": {"level": "snapshot", "atClusterTime": then.to_bson()}}
    with closing(WithoutOne(cluster.config.uri, capture=None)) as clients, pytest.raises(SourceUnavailable) as refused:
        b"".join(ComparedCluster(clients).find(schema, options))
    assert "a shard was removed" in str(refused.value)
    assert unread(refused.value)


def refuses(clients: ClusterClients, name: TableName, ts: ClusterTime) -> None:
    with pytest.raises(SourceUnavailable) as refused:
        as_of(clients, name, ts)
    assert unread(refused.value), refused.value
