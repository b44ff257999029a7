"""A shard is removed and switched off before its changefeed has read the last that it has: its tables are lost, and copied anew."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from devstack.mongodb.server import Client
from devstack.sharded.cluster import ShardedCluster
from devstack.sharded.ddl import ClusterDdl
from devstack.sharded.wire import MAJORITY
from tests.component.node.server_process import Server
from tests.e2e.sharded.site import PATIENCE, Site
from tests.until import until

pytestmark = [pytest.mark.since("6.0"), pytest.mark.soak]

_IMPATIENT = str(Path(__file__).with_name("impatient_node.py"))
ORDERS, NOTES = "shop.orders", "shop.notes"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ShardedCluster]:
    with ShardedCluster(tmp_path / "data", tmp_path / "log", shards=("sa", "sb")) as cluster:
        yield cluster


@pytest.fixture
def site(
    cluster: ShardedCluster, target_client: Client, target_uri: str, etcd_endpoint: str, tmp_path: Path
) -> Iterator[Site]:
    log = tmp_path / "n1.log"
    with Server(etcd_endpoint, log, *PATIENCE, roles="owner,processor", program=_IMPATIENT) as node:
        site = Site(cluster, target_client, target_uri, [node])
        yield site
        site.end()


def test_tables_of_a_gone_shard_are_lost_and_copied_anew_while_the_others_go_on(
    site: Site, cluster: ShardedCluster
) -> None:
    with cluster.router() as router:
        ddl = ClusterDdl(router)
        ddl.create_database("shop", primary="sa")
        for name in (ORDERS, NOTES):
            ddl.shard(name, {"k": 1})
        ddl.split(ORDERS, {"k": 100})
        ddl.move(ORDERS, {"k": 100}, "sb")
        router.refresh()
        for number in range(0, 200, 5):
            router.insert(ORDERS, {"_id": number, "k": number})
        router.insert(NOTES, {"_id": "before", "k": 1})
        site.create()
        site.until_equal()
        site.sluice("changefeed", "pause", "shop")
        for number in (50, 100, 150):
            router.update(ORDERS, {"_id": number, "k": number}, {"$set": {"v": 1}}, writeConcern=MAJORITY)
        router.delete(ORDERS, {"_id": 195, "k": 195}, writeConcern=MAJORITY)
        ddl.move(ORDERS, {"k": 100}, "sa", wait_for_delete=True)
        cluster.remove_shard("sb")
        router.refresh()
        router.insert(NOTES, {"_id": "meanwhile", "k": 1})
        site.sluice("changefeed", "resume", "shop")

        until(lambda: "lost" in _tables(site)[ORDERS]["state"], "orders are lost")
        error = _tables(site)[ORDERS]["error"]
        assert error["code"] == "history_lost"
        assert "shard sb, which may have had rows of it, was removed" in error["message"]
        assert "sluice table recopy" in error["message"]
        router.insert(NOTES, {"_id": "after", "k": 1})
        until(lambda: {"meanwhile", "after"} <= site.rows()[NOTES].keys(), "notes go on")
        assert site.rows()[ORDERS][100] == {"_id": 100, "k": 100}
        until(lambda: _tables(site)[NOTES]["state"] == "following", "notes follow")

        site.sluice("table", "recopy", "shop", ORDERS, "--yes")
        router.update(ORDERS, {"_id": 150, "k": 150}, {"$set": {"v": 2}})
        site.until_equal()
        assert 195 not in site.rows()[ORDERS]
        site.verify()


def _tables(site: Site) -> dict[str, dict[str, Any]]:
    return {table["name"]: table for table in json.loads(site.sluice("table", "list", "shop", "-o", "json"))}
