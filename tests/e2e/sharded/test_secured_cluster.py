"""A changefeed of a cluster with a key file, whose user has on the config servers and on each shard what `create` asks for, and no more."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from devstack.mongodb.security import Security
from devstack.mongodb.server import Client
from devstack.sharded.cluster import ShardedCluster
from devstack.sharded.ddl import ClusterDdl
from tests.component.node.server_process import Server
from tests.e2e.sharded.site import PATIENCE, Site
from tests.until import until

pytestmark = [pytest.mark.since("6.0"), pytest.mark.soak]

_MAJORITY = {"w": "majority"}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ShardedCluster]:
    with ShardedCluster(tmp_path / "data", tmp_path / "log", security=Security(tmp_path / "security")) as cluster:
        with cluster.config.client() as client:
            client.admin.command("createUser", "reader", pwd="secret", roles=["clusterMonitor"], writeConcern=_MAJORITY)
        for shard in cluster.shards.values():
            with shard.client() as client:
                roles = ["clusterMonitor", "readAnyDatabase"]
                client.admin.command("createUser", "reader", pwd="secret", roles=roles, writeConcern=_MAJORITY)
        yield cluster


class SecuredSite(Site):
    """The rows are looked for at the target only: no router here has a password of a reader."""

    def rows_are(self, ids: set[object]) -> None:
        until(lambda: self.rows().get("shop.orders", {}).keys() == ids, f"the target has {len(ids)} orders")


def test_a_changefeed_of_a_secured_cluster(
    cluster: ShardedCluster, target_client: Client, target_uri: str, etcd_endpoint: str, tmp_path: Path
) -> None:
    source = cluster.config.uri_of("reader", "secret", authSource="admin")
    with Server(etcd_endpoint, tmp_path / "n1.log", *PATIENCE, name="n1", roles="owner,processor") as node:
        site = SecuredSite(cluster, target_client, target_uri, [node])
        with cluster.router() as router:
            ddl = ClusterDdl(router)
            ddl.create_database("shop", primary="sa")
            ddl.shard("shop.orders", {"k": 1})
            ddl.split("shop.orders", {"k": 50})
            ddl.move("shop.orders", {"k": 50}, "sb")
            router.refresh()
            for number in range(100):
                router.insert("shop.orders", {"_id": number, "k": number})
            site.create(source=source)
            site.rows_are(set(range(100)))
            site.sluice("changefeed", "pause", "shop")
            ddl.move("shop.orders", {"k": 0}, "sb")
            ddl.move_primary("shop", "sb")
            router.refresh()
            router.insert("shop.orders", {"_id": "moved", "k": 1})
            site.sluice("changefeed", "resume", "shop")
            site.rows_are({*range(100), "moved"})
            target_client["shop"].orders.delete_one({"_id": 5})
            assert "repaired, and equal now: 1 document" in site.sluice("verify", "shop", "--repair")
            site.verify()
            site.end()
