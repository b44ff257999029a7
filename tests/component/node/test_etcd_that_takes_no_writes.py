"""The state that a node reports while etcd answers but accepts no writes, or has no majority."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
import yaml

from admin.stubs.sluice.admin.v1 import admin_pb2 as pb
from admin.stubs.sluice.admin.v1.admin_pb2_grpc import ChangefeedServiceStub
from devstack.etcd.cluster import EtcdCluster
from devstack.etcd.server import SMALL_QUOTA, EtcdServer
from devstack.mongodb.server import Client
from tests.component.node.server_process import Server
from tests.until import until


@pytest.fixture
def small_etcd(tmp_path: Path) -> Iterator[EtcdServer]:
    with EtcdServer(tmp_path / "etcd", tmp_path / "etcd.log", quota_bytes=SMALL_QUOTA) as etcd:
        yield etcd


def _changefeed(server: Server, id: str) -> pb.Changefeed:
    with grpc.insecure_channel(server.address) as channel:
        stub = ChangefeedServiceStub(channel)  # type: ignore[no-untyped-call]  # generated
        found: pb.Changefeed = stub.GetChangefeed(pb.GetChangefeedRequest(id=id))
        return found


def _events(server: Server) -> list[str]:
    return [json.loads(line)["event"] for line in server.log.splitlines() if line.startswith("{")]


def _create(server: Server, id: str, source_uri: str, target_uri: str) -> None:
    created = server.sluice(
        *("changefeed", "create", "--id", id, "--source", source_uri, "--sink", target_uri),
        *("--start", "now", "--tables", f"{id}.*"),
    )
    assert created.returncode == 0, created.stderr


def test_an_etcd_out_of_space_is_told_everywhere_and_once_in_the_log_and_with_room_all_goes_on(
    small_etcd: EtcdServer, tmp_path: Path, source_uri: str, target_uri: str, source_client: Client, database: str
) -> None:
    with Server(small_etcd.endpoint, tmp_path / "log") as server:
        _create(server, database, source_uri, target_uri)
        until(lambda: _changefeed(server, database).obeyed, "the changefeed to begin")
        small_etcd.fill_up()
        source_client[database]["t"].insert_one({"_id": 1})  # so that the owner has something to write
        until(lambda: "owner_waits_for_etcd" in _events(server), "the owner to notice")
        until(lambda: server.get("/readyz")[0] == 503, "the node to be not ready")
        assert "the node cannot write to etcd since" in server.get("/readyz")[1]
        assert "database space exceeded" in server.get("/readyz")[1]
        feed = yaml.safe_load(server.sluice("changefeed", "query", database, "-o", "yaml").stdout)
        assert (feed["state"], feed["error"]["code"]) == ("warning", "coordination_full")
        assert "disarm its NOSPACE alarm" in feed["error"]["message"]
        listed = server.sluice("changefeed", "list").stdout.splitlines()[1].split()
        assert (listed[1], listed[-1]) == ("warning", "coordination_full")
        assert "database space exceeded" in server.sluice("node", "list").stdout
        assert "sluice_etcd_writable 0.0" in server.get("/metrics")[1]
        assert f'sluice_changefeed_state{{changefeed="{database}",state="warning"}} 1.0' in server.get("/metrics")[1]
        refused = server.sluice("changefeed", "pause", database)
        assert (refused.returncode, "disarm" in refused.stderr) == (5, True)

        small_etcd.make_room()
        server.until_ready()
        assert "sluice_etcd_writable 1.0" in server.get("/metrics")[1]
        before = _changefeed(server, database).resolved
        source_client[database]["t"].insert_one({"_id": 2})
        until(lambda: _changefeed(server, database).resolved > before, "the owner to go on")
        assert _changefeed(server, database).state == pb.CHANGEFEED_STATE_NORMAL
        told = _events(server)
    once = {"etcd_takes_no_writes", "etcd_takes_writes_again", "owner_waits_for_etcd", "owner_goes_on"}
    assert [event for event in told if told.count(event) > 1 and event != "ddl_command_sent"] == []
    assert once <= set(told)


def test_a_node_that_starts_on_an_etcd_out_of_space_says_why_it_has_no_session(
    small_etcd: EtcdServer, tmp_path: Path
) -> None:
    with Server(small_etcd.endpoint, tmp_path / "log") as server:
        assert _events(server).count("node_joined") == 1
    small_etcd.fill_up()
    server.start()
    try:
        until(lambda: "database space exceeded" in server.get("/readyz")[1], "the reason")
        assert "the node has no session in etcd: " in server.get("/readyz")[1]
        small_etcd.make_room()
        server.until_ready()
        assert _events(server).count("node_waits_for_etcd") == 1
    finally:
        server.kill()


def test_an_etcd_without_a_majority_is_told_with_what_it_answers(etcd_cluster: EtcdCluster, tmp_path: Path) -> None:
    with Server(",".join(etcd_cluster.endpoints), tmp_path / "log", "--session-ttl", "60") as server:
        for member in etcd_cluster.members[1:]:
            member.kill()
        until(lambda: "the node does not follow etcd: etcd at" in server.get("/readyz")[1], "the node to notice")
        refused = server.sluice("changefeed", "list")
        assert refused.returncode == 5
        assert "this node does not follow etcd at present: etcd at" in refused.stderr
        until(lambda: "sluice_etcd_writable 0.0" in server.get("/metrics")[1], "the metric")
        etcd_cluster.start()
        server.until_ready()
        told = _events(server)
    assert (told.count("etcd_takes_no_writes"), told.count("etcd_takes_writes_again")) == (1, 1)
    assert told.count("node_joined") == 1
