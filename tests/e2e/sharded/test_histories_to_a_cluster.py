"""Random histories of a sharded cluster with accidents, replicated into another one, through a stand-in for a `mongos`, while its chunks move."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from devstack.mongodb.server import Client
from devstack.sharded.cluster import ShardedCluster
from devstack.sharded.ddl import ClusterDdl
from devstack.sharded.served.router_server import RouterServer
from devstack.sharded.wire import CommandFailed
from tests.component.node.server_process import Server
from tests.e2e.sharded.site import Site
from tests.e2e.sharded.test_histories import SEEDS, STEPS, cluster, follow, nodes

pytestmark = [pytest.mark.since("6.0"), pytest.mark.soak]
__all__ = ["cluster", "nodes"]
_PAUSE_SECONDS = 0.3


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShardedCluster]:
    directory: Path = tmp_path_factory.mktemp("other")
    with ShardedCluster(directory / "data", directory / "log") as started:
        yield started


@contextmanager
def moving(target: ShardedCluster, seed: int) -> Iterator[list[str]]:
    """Gives the tables of which chunks have moved. A move may be refused: its table is dropped, renamed, or busy."""
    over, moved, chance = threading.Event(), list[str](), random.Random(seed)

    def move() -> None:
        with target.router() as router:
            ddl = ClusterDdl(router)
            while not over.wait(_PAUSE_SECONDS):
                chunks = router.known_by_config("chunks", {})
                tables = {bytes(each["uuid"]): each["_id"] for each in router.known_by_config("collections", {})}
                of_shop = [each for each in chunks if tables.get(bytes(each["uuid"]), "").startswith("shop.")]
                if not of_shop:
                    continue
                chunk = chance.choice(of_shop)
                table = tables[bytes(chunk["uuid"])]
                router.refresh(table)
                try:
                    ddl.move_chunk(table, chunk, "sb" if chunk["shard"] == "sa" else "sa")
                except (CommandFailed, AssertionError):
                    continue
                moved.append(table)

    mover = threading.Thread(target=move)
    mover.start()
    try:
        yield moved
    finally:
        over.set()
        mover.join()


@pytest.mark.parametrize("seed", SEEDS or [2])
def test_histories(cluster: ShardedCluster, other: ShardedCluster, nodes: list[Server], seed: int) -> None:
    with RouterServer(other) as server, Client(server.uri) as client:
        site = Site(cluster, client, server.uri, nodes, shard_target=True)
        try:
            with moving(other, seed) as moved:
                follow([site], nodes, seed=seed, steps=STEPS, accidents=STEPS)
            assert moved
            assert len(list(client.config.collections.find({"_id": {"$regex": "^shop"}}))) > 1
        finally:
            site.end()
