"""Below featureCompatibilityVersion 6.0 a changefeed ends where a chunk moves, and its target is right up to there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from devstack.mongodb.server import Client
from devstack.sharded.cluster import ShardedCluster
from devstack.sharded.ddl import ClusterDdl
from tests.component.node.server_process import Server
from tests.e2e.sharded.site import PATIENCE, Site
from tests.until import until

pytestmark = [pytest.mark.since("5.0"), pytest.mark.soak]

ORDERS = "shop.orders"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ShardedCluster]:
    with ShardedCluster(tmp_path / "data", tmp_path / "log") as cluster:
        yield cluster


def test_a_moved_chunk_ends_the_changefeed_and_a_new_one_begins_when_its_orphans_are_gone(
    cluster: ShardedCluster, target_client: Client, target_uri: str, etcd_endpoint: str, tmp_path: Path
) -> None:
    with (
        Server(etcd_endpoint, tmp_path / "n1.log", *PATIENCE, name="n1", roles="owner,processor") as node,
        cluster.router() as router,
    ):
        site, ddl = Site(cluster, target_client, target_uri, [node]), ClusterDdl(router)
        if cluster.version >= (6, 0):
            router.config({"setFeatureCompatibilityVersion": "5.0", "writeConcern": {"w": "majority"}})
        ddl.create_database("shop", primary="sa")
        ddl.shard_in_zones(ORDERS, "k", [50], ["sa", "sb"])
        for number in range(100):
            router.insert(ORDERS, {"_id": number, "k": number})
        site.create()
        site.until_equal()

        def query() -> dict[str, Any]:
            found: dict[str, Any] = json.loads(site.sluice("changefeed", "query", "shop", "-o", "json"))
            return found

        ddl.move(ORDERS, {"k": 1}, "sb", wait_for_delete=True)
        router.refresh()
        router.insert(ORDERS, {"_id": "after the move", "k": 1})
        until(lambda: query()["state"] == "failed", "the changefeed ends", lambda: str(query()))
        assert "shard sa moved or cleaned up a chunk of shop.orders" in str(query())
        assert set(site.rows()[ORDERS]) == set(range(100))
        site.sluice("changefeed", "remove", "shop", "--yes")
        target_client.drop_database("shop")
        site.create()
        site.until_equal()
        assert "after the move" in site.rows()[ORDERS]
        site.end()
