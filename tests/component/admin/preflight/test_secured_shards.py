"""The least rights of a reader of shards, on a cluster with a key file: what create prints is what it needs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from admin.preflight.source_probe import probe_source
from changefeed.capture import Capture
from changefeed.config.configuration import Configuration
from changefeed.position import Position
from changefeed.table import TableName
from devstack.mongodb.replica_set import ReplicaSet
from devstack.mongodb.security import Security
from devstack.sharded.cluster import ShardedCluster
from devstack.sharded.ddl import ClusterDdl
from source.sharded.cluster_clients import ClusterClients, reach_newest
from source.sharded.owned.owned_chunks import OwnedChunk
from source.tables.chunk_reader import Chunk

pytestmark = pytest.mark.since("5.0")

_AT_SHARDS = ["clusterMonitor", "readAnyDatabase"]
_ROWS = 60


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ShardedCluster]:
    with (
        ShardedCluster(tmp_path / "data", tmp_path / "log", security=Security(tmp_path / "security")) as cluster,
        cluster.router() as router,
    ):
        ddl = ClusterDdl(router)
        ddl.create_database("shop", primary="sa")
        ddl.shard_in_zones("shop.orders", "k", [5], ["sa", "sb"])
        for number in range(_ROWS):
            router.insert("shop.orders", {"_id": number, "k": number % 10})
        yield cluster


def give(set_: ReplicaSet, roles: list[str]) -> None:
    with set_.client() as client:
        known = client.admin.command("usersInfo", "reader")["users"]
        command = "updateUser" if known else "createUser"
        client.admin.command(command, "reader", pwd="secret", roles=roles, writeConcern={"w": "majority"})


def test_what_a_reader_lacks_is_named_and_what_it_is_told_suffices(cluster: ShardedCluster) -> None:
    uri = cluster.config.uri.replace("mongodb://", "mongodb://reader:secret@")
    configuration = Configuration.parse(
        {"id": "f", "source": f"{uri}&authSource=admin", "sink": "mongodb://t/", "filter": {"tables": ["shop.*"]}}
    )

    def problems() -> tuple[str, ...]:
        return probe_source(configuration, Capture.OPLOG).problems

    give(cluster.config, [])
    said = "source: on the config servers, its user 'reader' may not "
    lacking = {problem.removeprefix(said).partition(" ")[0] for problem in problems()}
    assert lacking == {"find", "getParameter"}
    assert any('[{role: "clusterMonitor", db: "admin"}]' in each for each in problems())

    give(cluster.config, ["clusterMonitor"])
    give(cluster.shards["sa"], _AT_SHARDS)
    [problem] = problems()
    assert problem.startswith("source: shard sb (sb/127.0.0.1:")
    assert (
        'createUser({user: "reader", pwd: passwordPrompt(), roles: [{role: "clusterMonitor", db: "admin"}, ' in problem
    )

    give(cluster.shards["sb"], ["clusterMonitor"])
    assert any("on shard sb" in each and "in all databases" in each for each in problems())

    give(cluster.shards["sb"], _AT_SHARDS)
    assert problems() == ()
    with closing(ClusterClients(f"{uri}&authSource=admin")) as clients:
        chunk = Chunk(table=TableName("shop", "orders"), not_before=Position(reach_newest(clients)))
        assert sum(map(len, OwnedChunk(clients, chunk).batches())) == _ROWS
