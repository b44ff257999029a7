"""From cluster to cluster: the shards of one are read by their oplogs, the other is written through a router. No `mongos`: see `RouterServer`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from devstack.mongodb.server import Client
from devstack.process import side_by_side
from devstack.sharded.cluster import ShardedCluster
from devstack.sharded.ddl import ClusterDdl
from devstack.sharded.served.router_server import RouterServer
from tests.component.node.server_process import Server
from tests.e2e.sharded.site import PATIENCE, Site
from tests.until import until

pytestmark = [
    pytest.mark.since("6.0"),
    pytest.mark.costly("two clusters of shards and a node with Spark"),
]


@pytest.fixture
def clusters(tmp_path: Path) -> Iterator[tuple[ShardedCluster, ShardedCluster]]:
    found = [ShardedCluster(tmp_path / name, tmp_path / f"{name}-log") for name in ("source", "target")]
    try:
        side_by_side([cluster.start for cluster in found])
        yield found[0], found[1]
    finally:
        side_by_side([cluster.stop for cluster in found])


@pytest.fixture
def node(etcd_endpoint: str, tmp_path: Path) -> Iterator[Server]:
    with Server(etcd_endpoint, tmp_path / "log", *PATIENCE, name="n1", roles="owner,processor") as started:
        yield started


def test_tables_are_sharded_and_rows_follow_their_keys(
    clusters: tuple[ShardedCluster, ShardedCluster], node: Server
) -> None:
    source, target = clusters
    with RouterServer(target) as server, Client(server.uri) as client, source.router() as router:
        ddl = ClusterDdl(router)
        ddl.create_database("shop", primary="sa")
        ddl.shard("shop.orders", {"k": 1})
        ddl.split("shop.orders", {"k": 100})
        ddl.move("shop.orders", {"k": 100}, "sb")
        ddl.refresh("shop.orders")
        for number in range(200):
            router.insert("shop.orders", {"_id": number, "k": number, "v": 0})
        router.insert("shop.plain", {"_id": 1, "v": 0})
        site = Site(source, client, server.uri, [node])
        site.create(shard_target=True)
        site.until_equal()
        assert keys(client) == {"shop.orders": {"k": 1}}
        assert shards_of(client, "shop.orders") == {"sa", "sb"}

        with target.router() as at_target:
            for number in range(0, 200, 5):
                router.update("shop.orders", {"_id": number, "k": number}, {"$set": {"v": number}})
            ClusterDdl(at_target).move("shop.orders", {"k": 150}, "sa")
        for number, k in ((10, 11), (20, 150), (160, 161), (170, 3)):
            change_key(router, number, k)
        router.delete("shop.orders", {"_id": 30, "k": 30})
        router.update("shop.plain", {"_id": 1}, {"$set": {"v": 1}})
        ddl.shard("shop.late", {"n": 1, "k": 1})
        router.insert("shop.late", {"_id": 1, "n": 1, "k": 1})
        router.update("shop.late", {"_id": 1, "n": 1, "k": 1}, {"$set": {"v": 1}})
        site.until_equal()
        until(lambda: keys(client).get("shop.late") == {"n": 1, "k": 1}, "the new table is sharded")
        ddl.reshard("shop.orders", {"v": 1}, numInitialChunks=1)
        router.update("shop.orders", {"_id": 40, "v": 40}, {"$set": {"w": 1}})
        router.delete("shop.orders", {"_id": 50, "v": 50})
        site.until_equal()
        assert keys(client)["shop.orders"] == {"k": 1}, "the target keeps its key"
        site.sluice("table", "recopy", "shop", "shop.orders", "--yes")
        until(lambda: keys(client).get("shop.orders") == {"v": 1}, "the copied table has the source's key")
        site.until_equal()
        site.verify()


def change_key(router: Any, id: int, k: int) -> None:
    """On one shard a change, on two a delete and an insert, as a `mongos` does it."""
    before = {"_id": id, "k": id}
    route = router.route("shop.orders")
    transaction = router.transaction()
    if route.owner(before) == route.owner({"k": k}):
        transaction.update("shop.orders", before, {"$set": {"k": k}})
    else:
        row = transaction.take_out("shop.orders", before)
        transaction.insert("shop.orders", {**row, "k": k})
    transaction.commit()


def keys(client: Client) -> dict[str, dict[str, Any]]:
    return {each["_id"]: each["key"] for each in client.config.collections.find({"_id": {"$regex": "^shop"}})}


def shards_of(client: Client, name: str) -> set[str]:
    entry = client.config.collections.find_one({"_id": name})
    assert entry is not None
    return {chunk["shard"] for chunk in client.config.chunks.find({"uuid": entry["uuid"]})}
