"""A shard, or a config server, is not taken for a replica set: neither at create nor as what it holds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from admin.preflight.deployment import part_of_a_cluster
from admin.preflight.sink_probe import probe_sink
from admin.preflight.source_probe import probe_source
from changefeed.capture import Capture
from changefeed.config.configuration import Configuration
from devstack.mongodb.server import Client
from devstack.sharded.cluster import ShardedCluster
from devstack.sharded.ddl import ClusterDdl

pytestmark = pytest.mark.since("5.0")  # the development stack's clusters reshard


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShardedCluster]:
    directory = tmp_path_factory.mktemp("sharded")
    with ShardedCluster(directory / "data", directory / "log", shards=["sa"]) as cluster:
        yield cluster


@pytest.mark.parametrize("capture", [Capture.AUTO, Capture.OPLOG, Capture.CHANGE_STREAM])
def test_a_shard_is_refused_as_source(cluster: ShardedCluster, target_uri: str, capture: Capture) -> None:
    found = probe_source(configuration(cluster.shards["sa"].uri, target_uri), capture)
    refused = "it is sa, a shard of a sharded cluster, which is not a deployment of its own; name the cluster's routers (mongos)"
    assert found.problems == (f"source: {refused}, or its config servers",)


def test_a_part_of_a_cluster_is_refused_as_sink(cluster: ShardedCluster, source_uri: str) -> None:
    parts = {
        "a config server of a sharded cluster": cluster.config.uri,
        "sa, a shard of a sharded cluster": cluster.shards["sa"].uri,
    }
    for part, uri in parts.items():
        found = probe_sink(configuration(source_uri, uri))
        refused = f"it is {part}, which is not a deployment of its own; name the cluster's routers (mongos)"
        assert found.problems == (f"sink: {refused}",)


def configuration(source: str, sink: str, **options: Any) -> Configuration:
    return Configuration.parse({"id": "probed", "start": "now", "source": source, "sink": sink} | options)


class TestConfigServers:
    def test_they_are_read_by_the_oplogs_of_their_shards(self, cluster: ShardedCluster, target_uri: str) -> None:
        for asked in (Capture.AUTO, Capture.OPLOG):
            found = probe_source(configuration(cluster.config.uri, target_uri), asked)
            assert found.problems == ()
            assert found.choice is not None
            assert found.choice.capture is Capture.SHARD_OPLOGS

    def test_what_their_capture_cannot_do_is_refused_with_the_reason(
        self, cluster: ShardedCluster, target_uri: str
    ) -> None:
        with cluster.router() as router:
            ddl = ClusterDdl(router)
            ddl.create_database("metrics", primary="sa")
            command = {"create": "cpu", "timeseries": {"timeField": "t"}}
            router.wire("sa").command("metrics", {**command, **router.versions("metrics.cpu", "sa")})
            before = {"tables": ["*.*"], "ignore_where": {"delete": {"n": 1}}}
            refused = {
                "filter.events asks for documents before": probe(
                    cluster, target_uri, Capture.OPLOG, filter={"events": [before]}
                ),
                "images: available asks for documents": probe(
                    cluster, "file:///srv/feed", Capture.AUTO, images="available"
                ),
                "show no change stream": probe(cluster, target_uri, Capture.CHANGE_STREAM),
                "found time series (metrics.cpu)": probe(cluster, target_uri, Capture.OPLOG),
                "is no longer in the source's oplog": probe(cluster, target_uri, Capture.OPLOG, start="1000.1"),
                "pipeline.pre_images asks for documents": probe(
                    cluster, target_uri, Capture.AUTO, pipeline={"pre_images": ["*.*"]}
                ),
                "users of a sharded cluster": probe(cluster, target_uri, Capture.AUTO, users=True),
            }
            ddl.drop_database("metrics")
        for said, problems in refused.items():
            assert any(said in problem for problem in problems), (said, problems)

    @pytest.mark.parametrize(
        ("reader", "version", "said"),
        [
            (
                "source.sharded.cluster_clients",
                (4, 4),
                "MongoDB 4.4; the oldest version whose oplogs can be read is 5.0",
            ),
            (
                "admin.preflight.shards_probe",
                (7, 0),
                "its config servers are MongoDB 7.0; reading the oplogs of shards",
            ),
        ],
    )
    def test_those_of_a_version_that_was_not_tried_are_refused(
        self,
        cluster: ShardedCluster,
        target_uri: str,
        monkeypatch: pytest.MonkeyPatch,
        reader: str,
        version: tuple[int, int],
        said: str,
    ) -> None:
        """The development stack has no cluster of them."""
        monkeypatch.setattr(f"{reader}.version_of", lambda _: version)
        [problem] = probe(cluster, target_uri, Capture.OPLOG)
        assert said in problem

    def test_a_shard_that_cannot_be_read_is_named(self, tmp_path: Path, target_uri: str) -> None:
        with ShardedCluster(tmp_path / "data", tmp_path / "log") as cluster:
            cluster.shards["sb"].stop()
            [problem] = probe(cluster, target_uri, Capture.OPLOG)
        assert problem.startswith("source: shard sb (sb/127.0.0.1:")
        assert 'createUser({user: "sluice"' in problem


def probe(cluster: ShardedCluster, target_uri: str, asked: Capture, **options: Any) -> tuple[str, ...]:
    return probe_source(configuration(cluster.config.uri, target_uri, **options), asked).problems


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
