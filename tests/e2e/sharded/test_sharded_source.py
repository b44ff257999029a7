"""A changefeed of a real sharded cluster, read by the oplogs of its shards: real nodes, real Spark, real config servers and shards."""

from __future__ import annotations

import json
import os
import random
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from devstack.mongodb.server import Client
from devstack.sharded.cluster import ShardedCluster
from devstack.sharded.ddl import ClusterDdl
from devstack.sharded.router import ClusterRouter
from devstack.sharded.wire import MAJORITY
from source.sharded.clock import reach_newest
from source.sharded.cluster_clients import ClusterClients
from tests.component.node.server_process import Server
from tests.component.source.sharded.history import History, content, indexes
from tests.e2e.node.workload import until

pytestmark = pytest.mark.since("6.0")

SEEDS = [int(seed) for seed in os.environ.get("SLUICE_SHARDED_SEEDS", "").split(",") if seed]
STEPS = int(os.environ.get("SLUICE_SHARDED_STEPS", "15"))
_PATIENCE = ("--session-ttl", "10", "--grace", "150")  # nodes share two cores with their Spark


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShardedCluster]:
    directory: Path = tmp_path_factory.mktemp("sharded")
    with ShardedCluster(directory / "data", directory / "log") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def node(etcd_endpoint: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    log = Path(tmp_path_factory.mktemp("n1")) / "log"
    with Server(etcd_endpoint, log, *_PATIENCE, name="n1", roles="owner,processor") as started:
        yield started


class Site:
    """A cluster whose database `shop` one changefeed replicates. Each command goes to a node that is ready."""

    def __init__(self, cluster: ShardedCluster, target: Client, target_uri: str, nodes: Sequence[Server]) -> None:
        self.cluster, self._client = cluster, target
        self._nodes = nodes
        self._uris = cluster.config.uri, target_uri

    def sluice(self, *arguments: str, input: str | None = None) -> str:
        node = next(each for each in self._nodes if each.get("/readyz")[0] == 200)
        answer = node.sluice(*arguments, input=input)
        state = node.sluice("changefeed", "query", "shop").stdout if answer.returncode else ""
        assert answer.returncode == 0, f"sluice {' '.join(arguments)}: {answer.stderr}{answer.stdout}{state}"
        return answer.stdout

    def end(self) -> None:
        self.sluice("changefeed", "remove", "shop", "--yes")
        with self.cluster.router() as router:
            ClusterDdl(router).drop_database("shop")
        self._client.drop_database("shop")

    def create(self, **options: Any) -> None:
        self.sluice("changefeed", "create", "-", input=self._configuration(**options))

    def update(self, **options: Any) -> None:
        self.sluice("changefeed", "update", "shop", "-", "--yes", input=self._configuration(**options))

    def _configuration(self, **options: Any) -> str:
        source, sink = self._uris
        said = {"id": "shop", "source": source, "sink": sink, "filter": {"tables": ["shop.*"]}, "capture": "oplog"}
        return yaml.safe_dump(said | options)

    def rows(self) -> dict[str, dict[Any, Any]]:
        found = self._client["shop"]
        names = [name for name in found.list_collection_names() if not name.startswith("system.")]
        return {f"shop.{name}": {row["_id"]: row for row in found[name].find()} for name in names}

    def indexes(self) -> dict[str, set[str]]:
        found = self._client["shop"]
        names = [name for name in found.list_collection_names() if not name.startswith("system.")]
        return {f"shop.{name}": set(found[name].index_information()) - {"_id_"} for name in names}

    def until_equal(self) -> None:
        """Nobody writes at the source."""

        def equal() -> bool:
            state = json.loads(self.sluice("changefeed", "query", "shop", "-o", "json"))
            assert state["state"] in ("normal", "warning"), state
            return self.rows() == content(self.cluster) and self.indexes() == indexes(self.cluster)

        until(equal, "the target has the rows that the shards own, and the indexes of all owners")


def test_ddl_and_moves_are_followed(
    cluster: ShardedCluster, target_client: Client, target_uri: str, node: Server
) -> None:
    site = Site(cluster, target_client, target_uri, [node])
    with cluster.router() as router:
        ddl = ClusterDdl(router)
        ddl.create_database("shop", primary="sa")
        for name in ("shop.orders", "shop.notes"):
            ddl.shard(name, {"k": 1})
            ddl.split(name, {"k": 100})
            ddl.move(name, {"k": 100}, "sb")
        ddl.refresh("shop.orders")
        rows = [{"_id": number, "k": number, "b": number, "v": 0} for number in range(200)]
        for row in rows:
            router.insert("shop.orders", row)
            router.insert("shop.notes", row)
            router.insert("shop.plain", row)
        site.create(filter={"tables": ["shop.*", "!shop.late"]})
        site.until_equal()

        ddl.create_index("shop.orders", {"v": 1})
        ddl.move("shop.orders", {"k": 0}, "sb")
        _exchange_places(router, rows[10], rows[150])
        ddl.move_primary("shop", "sb")
        router.insert("shop.plain", {"_id": "after the move"})
        router.update("shop.plain", {"_id": 7}, {"$set": {"v": 7}})
        ddl.reshard("shop.orders", {"b": 1}, numInitialChunks=2)
        router.insert("shop.orders", {"_id": "resharded", "k": 1, "b": 1})
        ddl.rename("shop.orders", "shop.sales")
        router.insert("shop.sales", {"_id": "renamed", "k": 1, "b": 1})
        site.sluice("changefeed", "pause", "shop")
        ddl.drop("shop.notes")
        router.insert("shop.notes", {"_id": "not sharded any more"})
        site.sluice("changefeed", "resume", "shop")
        ddl.create_index("shop.plain", {"v": 1})
        router.insert("shop.plain", {"_id": "last"})
        site.until_equal()
        ddl.shard("shop.late", {"k": 1})
        router.insert("shop.late", {"_id": 1, "k": 1})
        site.update()
        router.insert("shop.late", {"_id": 2, "k": 2})
        router.update("shop.plain", {"_id": 8}, {"$set": {"v": 8}})
        router.update("shop.sales", {"_id": 8, "b": 8}, {"$set": {"v": 8}})
        site.until_equal()
        site.end()


def test_a_start_in_the_past_finds_the_tables_of_that_time(
    cluster: ShardedCluster, target_client: Client, target_uri: str, node: Server
) -> None:
    site = Site(cluster, target_client, target_uri, [node])
    with cluster.router() as router, ClusterClients(cluster.config.uri) as clients:
        ddl = ClusterDdl(router)
        ddl.create_database("shop", primary="sa")
        ddl.shard("shop.orders", {"k": 1})
        ddl.split("shop.orders", {"k": 100})
        ddl.move("shop.orders", {"k": 100}, "sb")
        start = reach_newest(clients).next()
        router.refresh()
        for number in range(50):
            router.insert("shop.orders", {"_id": number, "k": 4 * number, "b": number})
            router.insert("shop.plain", {"_id": number})
        ddl.move_primary("shop", "sb")
        ddl.reshard("shop.orders", {"b": 1}, numInitialChunks=2)
        router.update("shop.orders", {"_id": 7, "b": 7}, {"$set": {"v": 1}})
        ddl.rename("shop.orders", "shop.sales")
        router.delete("shop.sales", {"_id": 8, "b": 8})
        router.delete("shop.plain", {"_id": 9})
        site.create(start=str(start))
        site.until_equal()
        router.insert("shop.sales", {"_id": "later", "k": 1, "b": 1})
        site.until_equal()
        site.end()


def test_a_shard_that_is_away_is_named_and_nothing_is_missed(
    cluster: ShardedCluster, target_client: Client, target_uri: str, node: Server
) -> None:
    site = Site(cluster, target_client, target_uri, [node])
    with cluster.router() as router:
        ddl = ClusterDdl(router)
        ddl.create_database("shop", primary="sa")
        ddl.shard("shop.orders", {"k": 1})
        ddl.split("shop.orders", {"k": 100})
        ddl.move("shop.orders", {"k": 100}, "sb")
        router.refresh()
        router.insert("shop.orders", {"_id": "before", "k": 150})
        site.create()
        site.until_equal()
        router.insert("shop.orders", {"_id": "just before", "k": 150}, writeConcern=MAJORITY)
        [member] = cluster.shards["sb"].members
        member.kill()
        router.insert("shop.orders", {"_id": "meanwhile", "k": 1})

        def named() -> bool:
            return "sb: " in site.sluice("changefeed", "query", "shop")

        until(named, "the state names the shard")
        member.start()
        router.forget("sb")
        site.until_equal()
        assert site.rows()["shop.orders"].keys() == {"before", "just before", "meanwhile"}
        site.end()


def _exchange_places(router: ClusterRouter, one: dict[str, Any], other: dict[str, Any]) -> None:
    """Each document goes to the other one's shard, by one transaction."""
    transaction = router.transaction()
    router.refresh("shop.notes")
    for row, to in ((one, other), (other, one)):
        assert transaction.delete("shop.notes", {"_id": row["_id"], "k": row["k"]}) == 1
        transaction.insert("shop.notes", {**row, "k": to["k"]})
    transaction.commit()


@pytest.mark.soak
def test_a_shard_comes_and_goes(cluster: ShardedCluster, target_client: Client, target_uri: str, node: Server) -> None:
    site = Site(cluster, target_client, target_uri, [node])
    with cluster.router() as router:
        ddl = ClusterDdl(router)
        ddl.create_database("shop", primary="sa")
        ddl.shard("shop.orders", {"k": 1})
        ddl.split("shop.orders", {"k": 100})
        ddl.move("shop.orders", {"k": 100}, "sb")
        router.refresh()
        rows = [{"_id": number, "k": number} for number in range(200)]
        for row in rows:
            router.insert("shop.orders", row)
        site.create()
        site.until_equal()
        cluster.add_shard("sc")
        ddl.move("shop.orders", {"k": 100}, "sc")
        router.refresh()
        for row in rows:
            router.update("shop.orders", row, {"$set": {"v": 1}})
        site.until_equal()
        site.sluice("changefeed", "pause", "shop")
        for row in rows:
            router.update("shop.orders", row, {"$set": {"v": 2}})
        site.sluice("changefeed", "resume", "shop")
        for row in rows:
            router.update("shop.orders", row, {"$inc": {"v": 1}})
        ddl.move("shop.orders", {"k": 100}, "sa", wait_for_delete=True)
        cluster.drain_shard("sc")
        router.refresh()
        for row in rows:
            router.update("shop.orders", row, {"$inc": {"v": 1}})
        site.until_equal()
        cluster.shards.pop("sc").stop()
        router.update("shop.orders", rows[150], {"$set": {"last": True}})
        site.until_equal()
        site.end()


@pytest.mark.soak
@pytest.mark.parametrize("seed", SEEDS or [1, 2])
def test_histories_while_nodes_are_killed(
    cluster: ShardedCluster, target_client: Client, target_uri: str, etcd_endpoint: str, tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    with ExitStack() as stack:
        nodes = [Server(etcd_endpoint, tmp_path / "n1.log", *_PATIENCE, name="n1", roles="owner,processor")]
        nodes.append(
            Server(
                etcd_endpoint,
                tmp_path / "n2.log",
                *_PATIENCE,
                cluster=nodes[0].cluster,
                name="n2",
                roles="owner,processor",
            )
        )
        for each in nodes:
            stack.enter_context(each)
        site = Site(cluster, target_client, target_uri, nodes)
        history = History(cluster, seed, STEPS)
        history.prepare()
        site.create()
        running = threading.Thread(target=history.run)
        running.start()
        try:
            while running.is_alive():
                running.join(chance.uniform(3, 12))
                killed = chance.choice(nodes)
                killed.kill()
                running.join(chance.uniform(0, 4))
                killed.start()
                for each in nodes:
                    each.until_ready()
        finally:
            running.join()
        history.last_write()
        site.until_equal()
        assert history.errors == []
        site.end()
