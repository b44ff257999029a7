"""A shard, or a config server, is not taken for a replica set: neither at create nor as what it holds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from admin.preflight.deployments.cluster_part import part_of_a_cluster
from admin.preflight.sink_probe import probe_sink
from admin.preflight.source_probe import probe_source
from changefeed.capture import Capture
from changefeed.config.configuration import Configuration
from devstack.mongodb.server import Client
from devstack.sharded.cluster import ShardedCluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShardedCluster]:
    directory = tmp_path_factory.mktemp("sharded")
    with ShardedCluster(directory / "data", directory / "log", shards=["sa"]) as cluster:
        yield cluster


@pytest.mark.parametrize("capture", [Capture.AUTO, Capture.CHANGE_STREAM])
def test_a_part_of_a_cluster_is_refused_as_source_and_as_sink(
    cluster: ShardedCluster, source_uri: str, target_uri: str, capture: Capture
) -> None:
    parts = {
        "a config server of a sharded cluster": cluster.config.uri,
        "sa, a shard of a sharded cluster": cluster.shards["sa"].uri,
    }
    for part, uri in parts.items():
        refused = f"it is {part}, which is not a deployment of its own; name the cluster's routers (mongos)"
        fields = {"id": "probed", "start": "now"}
        found = probe_source(Configuration.parse(fields | {"source": uri, "sink": target_uri}), capture)
        assert found.problems == (f"source: {refused}",)
        at_sink = probe_sink(Configuration.parse(fields | {"source": source_uri, "sink": uri}))
        assert at_sink.problems == (f"sink: {refused}",)


def test_a_shard_is_known_with_the_privileges_of_a_reader_of_the_oplog(
    cluster: ShardedCluster, source_client: Client
) -> None:
    """`shardingState` needs clusterMonitor; here it is refused."""
    failing = {"failCommands": ["shardingState"], "errorCode": 13}
    with cluster.shards["sa"].client() as shard:
        shard.admin.command("configureFailPoint", "failCommand", mode="alwaysOn", data=failing)
        try:
            assert "sa, a shard" in (part_of_a_cluster(shard) or "")
        finally:
            shard.admin.command("configureFailPoint", "failCommand", mode="off")
    assert part_of_a_cluster(source_client) is None
