"""How a node joins, leaves and restarts."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

from devstack.etcd.server import EtcdServer
from tests.component.node.server_process import Server
from tests.until import until


def _nodes(server: Server) -> dict[str, Any]:
    return {node["name"]: node for node in json.loads(server.sluice("node", "list", "-o", "json").stdout)}


def test_the_owner_changes_when_it_is_asked_to_and_when_it_stops(etcd_endpoint: str, tmp_path: Path) -> None:
    with (
        Server(etcd_endpoint, tmp_path / "n1") as first,
        Server(etcd_endpoint, tmp_path / "n2", cluster=first.cluster, name="n2") as second,
    ):
        assert _nodes(first)["n1"]["owner"]
        before = _nodes(first)["n1"]["id"]
        resigned = second.sluice("node", "resign", "--yes")
        assert resigned.stdout == f"{before} resigns\n", resigned.stderr
        until(lambda: _nodes(first)["n2"]["owner"], "another owner")
        assert _nodes(first)["n1"]["id"] == before, "it resigned from one role, and kept its session"
        second.signal(signal.SIGTERM)
        assert second.wait() == 0
        assert list(_nodes(first)) == ["n1"]
        until(lambda: _nodes(first)["n1"]["owner"], "the first to lead again")


def test_a_lost_session_is_followed_by_another_under_a_new_id(own_etcd: EtcdServer, tmp_path: Path) -> None:
    with Server(own_etcd.endpoint, tmp_path / "log") as server:
        before = _nodes(server)["n1"]["id"]
        own_etcd.pause()
        until(lambda: "no session" in server.get("/readyz")[1], "the loss")
        own_etcd.resume()
        server.until_ready()
        until(lambda: _nodes(server).get("n1", {}).get("owner"), "the owner")
        assert _nodes(server)["n1"]["id"] != before


def test_a_node_waits_for_an_etcd_that_is_not_there_yet(own_etcd: EtcdServer, tmp_path: Path) -> None:
    own_etcd.stop()
    server = Server(own_etcd.endpoint, tmp_path / "log")
    own_etcd.start()
    with server:
        assert server.get("/readyz") == (200, "ready\n")


def test_a_node_that_cannot_reach_etcd_ends_when_it_is_told_to(own_etcd: EtcdServer, tmp_path: Path) -> None:
    with Server(own_etcd.endpoint, tmp_path / "log") as server:
        own_etcd.pause()
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
        assert "node_stopped" in server.log


def test_a_second_signal_ends_a_node_at_once(own_etcd: EtcdServer, tmp_path: Path) -> None:
    with Server(own_etcd.endpoint, tmp_path / "log") as server:
        own_etcd.pause()  # so that the first shutdown takes long
        server.signal(signal.SIGTERM)
        until(lambda: server.get("/readyz") == (503, "the node is stopping\n"), "the first signal")
        server.signal(signal.SIGTERM)
        assert server.wait() == 128 + signal.SIGTERM


def test_what_cannot_work_ends_the_process_with_words(etcd_endpoint: str, tmp_path: Path) -> None:
    with Server(etcd_endpoint, tmp_path / "log") as server:
        same_port = server.sluice(
            *("server", "--etcd", etcd_endpoint, "--cluster", server.cluster, "--admin-address", server.address),
            *("--http-address", "127.0.0.1:0"),
        )
        assert same_port.returncode == 2
        assert f"sluice: admin.address: cannot listen on {server.address}" in same_port.stderr
