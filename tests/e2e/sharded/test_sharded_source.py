"""A changefeed of a real sharded cluster, read by the oplogs of its shards: real nodes, real Spark, real config servers and shards."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from bson.binary import UUID_SUBTYPE, Binary

from devstack.mongodb.server import Client
from devstack.sharded.cluster import ShardedCluster
from devstack.sharded.ddl import ClusterDdl
from devstack.sharded.router import ClusterRouter
from devstack.sharded.wire import MAJORITY, CommandFailed
from source.sharded.cluster_clients import ClusterClients, reach_newest
from tests.component.node.server_process import Server
from tests.component.source.odd_texts import no_utf8
from tests.e2e.sharded.site import PATIENCE, Site, owned_at, points_of, replicated_at
from tests.until import until

pytestmark = [
    pytest.mark.since("6.0"),
    pytest.mark.costly("config servers, two shards and a node with Spark"),
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShardedCluster]:
    directory: Path = tmp_path_factory.mktemp("sharded")
    with ShardedCluster(directory / "data", directory / "log") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def node(etcd_endpoint: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    log = Path(tmp_path_factory.mktemp("n1")) / "log"
    with Server(etcd_endpoint, log, *PATIENCE, name="n1", roles="owner,processor") as started:
        yield started


@pytest.fixture
def site(cluster: ShardedCluster, target_client: Client, target_uri: str, node: Server) -> Iterator[Site]:
    """It ends when a test failed, too, so that the next one is not disturbed."""
    site = Site(cluster, target_client, target_uri, [node])
    yield site
    site.end()


def test_ddl_and_moves_are_followed(site: Site, cluster: ShardedCluster) -> None:
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
        capped = {"create": "recent", "capped": True, "size": 1 << 20, "max": 8}
        router.wire("sa").command("shop", {**capped, **router.versions("shop.recent", "sa")})
        for number in range(10):
            router.insert("shop.recent", {"_id": number})
        site.create(filter={"tables": ["shop.*", "!shop.late"]})
        site.until_equal()

        ddl.create_index("shop.orders", {"v": 1})
        ddl.move("shop.orders", {"k": 0}, "sb")
        _exchange_places(router, rows[10], rows[150])
        ddl.move_primary("shop", "sb")
        router.insert("shop.plain", {"_id": "after the move"})
        router.insert("shop.recent", {"_id": "after the move"})
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


def test_at_a_sync_point_the_target_is_what_all_shards_own(
    site: Site, cluster: ShardedCluster, target_client: Client, node: Server
) -> None:
    accounts, plain, over = "shop.accounts", "shop.plain", threading.Event()
    key: list[dict[str, Any]] = [{"_id": number, "k": number} for number in range(20)]

    def transfer() -> None:
        """Between the shards, as long as the test looks."""
        with cluster.router() as router:
            for number in count():
                if over.wait(0.02):
                    return
                transaction = router.transaction()
                try:
                    transaction.update(accounts, key[number % 10], {"$inc": {"balance": -1}})
                    transaction.update(
                        plain if number % 3 else accounts, key[10 + number % 10], {"$inc": {"balance": 1}}
                    )
                    transaction.commit()
                except CommandFailed:  # a chunk moves
                    list(transaction.abort())
                    router.refresh()

    def whole() -> list[dict[str, Any]]:
        return [point for point in points_of(target_client) if not point["except"]]

    with cluster.router() as router, ThreadPoolExecutor(1) as threads:
        ddl = ClusterDdl(router)
        ddl.create_database("shop", primary="sb")
        ddl.shard(accounts, {"k": 1})
        ddl.split(accounts, {"k": 10})
        ddl.move(accounts, {"k": 1}, "sa")
        router.refresh()
        for row in key:
            for ns in (accounts, plain):
                router.insert(ns, {**row, "balance": 100})
        site.create(sync_points={"every": "10s"})
        transfers = threads.submit(transfer)
        try:
            until(whole, "a point of all tables")
            ddl.move(accounts, {"k": 1}, "sb", wait_for_delete=True)
            before = len(whole())
            node.sluice("changefeed", "sync-now", "shop")
            until(lambda: len(whole()) > before, "another one")
            at = str(whole()[-1]["source"]["at"].time)
            verified = json.loads(site.sluice("verify", "shop", "--at", at, "-o", "json"))
            ddl.move(accounts, {"k": 1}, "sa", wait_for_delete=True)
            for point in whole():
                found = {ns: replicated_at(target_client, ns, point["target"]["at"]) for ns in (accounts, plain)}
                for ns, rows in found.items():
                    assert rows == owned_at(router, ns, point["source"]["at"]), (ns, point)
                assert sum(row["balance"] for rows in found.values() for row in rows) == 2 * 20 * 100
        finally:
            over.set()
        transfers.result()
    assert {table["name"]: table["outcome"] for table in verified["tables"]} == {accounts: "equal", plain: "equal"}
    assert any(row["balance"] != 100 for row in found[plain])


def test_a_start_in_the_past_finds_the_tables_of_that_time(
    site: Site, cluster: ShardedCluster, target_client: Client
) -> None:
    with cluster.router() as router, closing(ClusterClients(cluster.config.uri)) as clients:
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
        # a target that was equal at that time has the index from before it, and it is not brought again
        target_client["shop"].orders.create_index("k", name="k_1")
        site.create(start=str(start))
        site.until_equal()
        router.insert("shop.sales", {"_id": "later", "k": 1, "b": 1})
        site.until_equal()


def test_a_shard_that_is_away_is_named_and_nothing_is_missed(site: Site, cluster: ShardedCluster, node: Server) -> None:
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
        until(lambda: _answers(node) == {"config": 1.0, "sa": 1.0, "sb": 0.0}, "the metrics name the shard")
        member.start()
        router.forget("sb")
        site.until_equal()
        assert site.rows()["shop.orders"].keys() == {"before", "just before", "meanwhile"}


def test_one_id_on_two_shards_stops_its_table_alone(site: Site, cluster: ShardedCluster) -> None:
    with cluster.router() as router:
        ddl = ClusterDdl(router)
        ddl.create_database("shop", primary="sa")
        for name in ("shop.orders", "shop.notes"):
            ddl.shard(name, {"k": 1})
            ddl.split(name, {"k": 100})
            ddl.move(name, {"k": 100}, "sb")
        router.refresh()
        router.insert("shop.orders", {"_id": 1, "k": 1})
        site.create()
        site.until_equal()
        router.insert("shop.orders", {"_id": 7, "k": 1})
        until(lambda: 7 in site.rows()["shop.orders"], "the first of the two is at the target")
        router.insert("shop.orders", {"_id": 7, "k": 150})

        def named() -> bool:
            return "shards sa and sb of the source each have" in site.sluice("changefeed", "query", "shop")

        until(named, "the state names both shards")
        router.insert("shop.notes", {"_id": 1, "k": 1})
        until(lambda: 1 in site.rows()["shop.notes"], "the other table goes on")


def test_what_was_written_past_the_routers_stops_its_own_name_alone_and_can_be_taken_in_again(
    site: Site, cluster: ShardedCluster, target_client: Client, node: Server
) -> None:
    with (
        cluster.router() as router,
        Client(cluster.shards["sa"].uri) as primary,
        Client(cluster.shards["sb"].uri) as other,
        Client(cluster.config.uri) as config,
    ):
        ddl = ClusterDdl(router)
        ddl.create_database("shop", primary="sa")
        for name in ("shop.notes", "shop.strict"):
            router.insert(name, {"_id": 1})
        site.create()
        site.until_equal()
        other["shop"].stray.insert_one({"_id": "on a shard that is not the primary one"})
        primary["shop"].command("collMod", "strict", validator=no_utf8({"a": {"$ne": "caf?"}}))
        config["config"]["collections"].insert_one({"_id": "shop.ghost", "uuid": Binary(b"g" * 16, UUID_SUBTYPE)})
        odd = {"shop.stray", "shop.strict", "shop.ghost"}

        def told() -> bool:
            site.running()
            return odd <= {ddl["table"] for ddl in site.refused()}

        router.insert("shop.strict", {"_id": 2})
        router.insert("shop.notes", {"_id": 2})
        until(told, "each of them waits for a user", lambda: str(site.refused()))
        until(lambda: 2 in site.rows()["shop.notes"], "the other table goes on")
        assert odd <= {*re.findall(r"shop\.\w+", node.sluice("changefeed", "ready", "shop").stderr)}
        config["config"]["collections"].delete_one({"_id": "shop.ghost"})
        other["shop"].stray.drop()
        primary["shop"].command("collMod", "strict", validator={})
        site.update(filter={"tables": ["shop.*", *(f"!{name}" for name in sorted(odd))]})
        until(lambda: not site.refused(), "what was left out waits no longer")
        target_client["shop"].strict.drop()
        site.update()
        router.insert("shop.strict", {"_id": 3})
        site.until_equal()
        assert site.rows()["shop.strict"].keys() == {1, 2, 3}


def _answers(node: Server) -> dict[str, float]:
    said = re.findall(r'sluice_shard_answers\{changefeed="shop",shard="(\w+)"\} (\S+)', node.get("/metrics")[1])
    return {shard: float(value) for shard, value in said}


def _exchange_places(router: ClusterRouter, one: dict[str, Any], other: dict[str, Any]) -> None:
    """Each document goes to the other one's shard, by one transaction."""
    transaction = router.transaction()
    router.refresh("shop.notes")
    for row, to in ((one, other), (other, one)):
        assert transaction.delete("shop.notes", {"_id": row["_id"], "k": row["k"]}) == 1
        transaction.insert("shop.notes", {**row, "k": to["k"]})
    transaction.commit()


@pytest.mark.soak
def test_a_shard_comes_and_goes(site: Site, cluster: ShardedCluster, target_client: Client) -> None:
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
        site.create(filter={"tables": ["shop.*", "brought.*"]})
        site.until_equal()

        def fill(shard: Client) -> None:
            """A database that comes with the shard."""
            shard["brought"].gifts.insert_many([{"_id": number} for number in range(300)])
            shard["brought"].gifts.create_index("v")

        cluster.add_shard("sc", fill)
        router.refresh()
        router.insert("brought.gifts", {"_id": "later"})
        until(lambda: _gifts(target_client) == ({*range(300), "later"}, {"_id_", "v_1"}), "what came is copied")
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
        ddl.move_primary("brought", "sb")
        router.insert("brought.gifts", {"_id": "last"})
        cluster.drain_shard("sc")
        router.refresh()
        for row in rows:
            router.update("shop.orders", row, {"$inc": {"v": 1}})
        site.until_equal()
        cluster.shards.pop("sc").stop()
        router.update("shop.orders", rows[150], {"$set": {"last": True}})
        site.until_equal()
        assert _gifts(target_client)[0] == {*range(300), "later", "last"}
        site.verify()
        site.end()
        ddl.drop_database("brought")
        target_client.drop_database("brought")


def _gifts(target: Client) -> tuple[set[Any], set[str]]:
    gifts = target["brought"].gifts
    return {row["_id"] for row in gifts.find()}, set(gifts.index_information())
