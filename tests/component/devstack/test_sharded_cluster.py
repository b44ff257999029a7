"""A cluster's servers take what the test router sends, as they take it from a `mongos`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from devstack.sharded.cluster import ShardedCluster
from devstack.sharded.ddl import ClusterDdl
from devstack.sharded.router import ClusterRouter

pytestmark = pytest.mark.since("5.0")  # older servers do not reshard
ITEMS, PLAIN = "shop.items", "shop.plain"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShardedCluster]:
    directory: Path = tmp_path_factory.mktemp("sharded")
    with ShardedCluster(directory / "data", directory / "log") as cluster:
        yield cluster


@pytest.fixture
def router(cluster: ShardedCluster) -> Iterator[ClusterRouter]:
    with cluster.router() as router:
        yield router


def test_rows_and_schema_of_a_cluster(cluster: ShardedCluster, router: ClusterRouter) -> None:
    ddl = ClusterDdl(router)
    ddl.create_database("shop", primary="sa")
    ddl.shard(ITEMS, {"k": 1})
    ddl.split(ITEMS, {"k": 100})
    for number in range(0, 200, 20):
        router.insert(ITEMS, {"_id": number, "k": number, "b": number})
    with cluster.router() as other:
        assert other.insert(ITEMS, {"_id": 100.5, "k": 100.5, "b": 100.5}) == "sa"
        ddl.move(ITEMS, {"k": 100}, "sb", wait_for_delete=True)
        assert other.insert(ITEMS, {"_id": 101, "k": 101, "b": 101}) == "sb", "its routes were stale"
    router.refresh()
    transaction = router.transaction()
    transaction.update(ITEMS, {"_id": 0, "k": 0}, {"$set": {"z": 1}})
    transaction.update(ITEMS, {"_id": 101, "k": 101}, {"$set": {"z": 1}})
    assert transaction.shards == ["sa", "sb"]
    transaction.commit()
    taken_back = router.transaction()
    taken_back.insert(ITEMS, {"_id": 1, "k": 1})
    taken_back.delete(ITEMS, {"_id": 101, "k": 101})
    assert list(taken_back.abort()) == []
    expected = {*range(0, 200, 20), 100.5, 101}
    assert {row["_id"] for row in router.rows(ITEMS)} == expected
    assert {row["_id"] for row in router.rows(ITEMS) if "z" in row} == {0, 101}
    ddl.create_index(ITEMS, {"b": 1})
    ddl.reshard(ITEMS, {"b": 1}, numInitialChunks=1)
    assert len(router.route(ITEMS).chunks) == 1
    assert {row["_id"] for row in router.rows(ITEMS)} == expected
    router.insert(PLAIN, {"_id": 1})
    if cluster.version >= (6, 0):
        ddl.modify(ITEMS, index={"name": "k_1", "hidden": True})
        ddl.drop_index(ITEMS, "k_1")
        ddl.move_primary("shop", "sb")
        assert router.update(PLAIN, {"_id": 1}, {"$set": {"n": 1}}) == "sb"
    ddl.create_index(ITEMS, {"b": 1, "c": 1})
    ddl.refine(ITEMS, {"b": 1, "c": 1})
    ddl.rename(ITEMS, "shop.renamed")
    assert {row["_id"] for row in router.rows("shop.renamed")} == expected
    ddl.drop("shop.renamed")
    ddl.drop_database("shop")
    assert router.known_by_config("databases", {"_id": "shop"}) == []


def test_a_shard_that_is_added_later_takes_rows_and_can_leave(cluster: ShardedCluster, router: ClusterRouter) -> None:
    ddl = ClusterDdl(router)
    ddl.create_database("later", primary="sa")
    ddl.shard("later.rows", {"_id": 1})
    cluster.add_shard("sc")
    ddl.move("later.rows", {"_id": 0}, "sc")
    router.refresh()
    assert router.insert("later.rows", {"_id": 5}) == "sc"
    ddl.move("later.rows", {"_id": 0}, "sa", wait_for_delete=True)
    router.refresh()
    cluster.remove_shard("sc")
    assert [row["_id"] for row in router.rows("later.rows")] == [5]
