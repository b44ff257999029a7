"""What is refused of a target that is, or is not, the router of a sharded cluster."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from admin.preflight.looked import Looked, SourceFindings
from admin.preflight.privileges import Privileges
from admin.preflight.sink_checks import shards
from admin.preflight.sink_probe import SinkFindings, probe_sink
from changefeed.cluster_time import ClusterTime
from changefeed.config.configuration import Configuration
from changefeed.position import Position
from changefeed.table import TableId, TableName, TableSchema
from devstack.mongodb.server import Client
from devstack.sharded.cluster import ShardedCluster
from devstack.sharded.served.router_server import RouterServer

pytestmark = pytest.mark.since("6.0")
AT = Position(ClusterTime(5, 1))
ORDERS = TableName("shop", "orders")
CLUSTER = SourceFindings(
    version=(6, 0), sharded=True, tables=(TableSchema(id=TableId("ab" * 16), name=ORDERS, valid_from=AT),)
)


@pytest.fixture(scope="module")
def router(cluster: ShardedCluster) -> Iterator[RouterServer]:
    with RouterServer(cluster) as router:
        yield router


def configuration(sink: str, **options: Any) -> Configuration:
    return Configuration.parse({"id": "f", "source": "mongodb://s/", "sink": sink, **options})


def obstacles(configuration: Configuration, source: SourceFindings, sink: SinkFindings) -> list[str]:
    return list(shards(Looked(configuration=configuration, source=source, sink=sink, choice=None)))


def test_a_router_is_taken_and_tables_that_it_shards_are_looked_at(router: RouterServer) -> None:
    feed = configuration(router.uri, shard_target=True)
    target = probe_sink(feed)
    assert (target.problems, target.sharded, target.version) == ((), True, (6, 0))
    assert obstacles(feed, CLUSTER, target) == []
    with Client(router.uri) as client:
        client.admin.command("shardCollection", str(ORDERS), key={"customer.id": 1})
        assert obstacles(feed, CLUSTER, target) == []
        rule = {"tables": ["shop.orders"], "drop": ["customer"]}
        [problem] = obstacles(configuration(router.uri, columns=[rule]), CLUSTER, target)
        assert problem.startswith("columns: shop.orders: customer is part of the shard key of shop.orders at the sink")
        client.drop_database("shop")
        client.shop.create_collection("orders", collation={"locale": "de"})
        client.shop.orders.create_index("k", collation={"locale": "simple"})
        client.admin.command("shardCollection", str(ORDERS), key={"k": 1}, collation={"locale": "simple"})
        [problem] = obstacles(feed, CLUSTER, target)
        assert "has a collation" in problem


def test_both_sides_have_to_be_clusters(target_uri: str) -> None:
    feed = configuration(target_uri, shard_target=True)
    one_set = SourceFindings(version=(6, 0))
    router, source = obstacles(feed, one_set, probe_sink(feed))
    assert router.startswith("shard_target: the sink is no router of a sharded cluster")
    assert source.startswith("shard_target: the source is no sharded cluster")
    assert obstacles(configuration(target_uri), one_set, probe_sink(feed)) == []


def test_missing_rights_are_named_with_the_grant() -> None:
    feed = configuration("mongodb://t/", shard_target=True)
    target = SinkFindings(version=(6, 0), sharded=True, privileges=Privileges(user="writer"))
    read, share = obstacles(feed, CLUSTER, target)
    assert "its user 'writer' may not find in config.collections" in read
    assert "may not enableSharding, splitChunk, moveChunk in all databases" in share
    assert '[{role: "clusterMonitor", db: "admin"}, {role: "clusterManager", db: "admin"}]' in share
    [read] = obstacles(configuration("mongodb://t/"), CLUSTER, target)
    assert "clusterManager" not in read
