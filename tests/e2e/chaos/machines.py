"""`Machines`: etcd, source and target of three members each, three nodes, and a link from each node to each of the servers.

Proxies cut or block a link. Each node reaches etcd through its own proxies. All nodes reach the members of source and target
through shared proxies, which know a connection's node by the process that opened it.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from devstack.etcd.cluster import EtcdCluster
from devstack.mongodb.replica_set import ReplicaSet
from devstack.mongodb.server import TESTING
from devstack.node import Node
from devstack.process import ServerFailed, side_by_side
from devstack.proxy import Loop, Ports, Proxy, opened_by
from sink.sink import ARRIVES_WITHIN
from tests.component.node.server_process import run
from tests.e2e.chaos.journal import Journal
from tests.e2e.chaos.schedule import NODES

CLUSTER = "chaos"
_ETCD_QUOTA_BYTES = 128 << 20
_GRACE_SECONDS = 10.0
_AFTER_GRACE_SECONDS = 40.0
_UNREACHABLE = 5


class ChaosNode(Node):
    """`wanted`: whether the node should run, so that a node that ends by itself is detected."""

    wanted = False

    def end(self) -> int | None:
        """The exit code after SIGTERM; None when the node did not end within its grace period."""
        self.wanted = False
        assert self._process is not None
        self._process.terminate()
        try:
            return self._process.wait(_GRACE_SECONDS + _AFTER_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            return None


@dataclass(frozen=True)
class Link:
    """A node's connections to the members of one server."""

    node: str
    proxies: Sequence[Proxy]
    whose: Ports
    gives_up_seconds: float | None = None
    """Of the node's connections to it."""

    def cut(self) -> None:
        for proxy in self.proxies:
            proxy.cut(self.whose)

    def block(self) -> None:
        for proxy in self.proxies:
            proxy.block(self.node, self.whose, gives_up_seconds=self.gives_up_seconds)

    def unblock(self) -> None:
        for proxy in self.proxies:
            proxy.unblock(self.node)


class Machines:
    def __init__(self, directory: Path, journal: Journal) -> None:
        self._journal = journal
        self._running = ExitStack()
        self.directory = directory
        log = directory / "log"
        self.etcd = EtcdCluster(directory / "etcd", log, quota_bytes=_ETCD_QUOTA_BYTES)
        self.sets = {
            name: ReplicaSet(name, directory, log, linked=True, parameters=TESTING) for name in ("source", "target")
        }
        self.links: dict[str, Link] = {}
        self.nodes: dict[str, ChaosNode] = {}

    @property
    def uris(self) -> tuple[str, str]:
        """The URIs of source and target."""
        return self.sets["source"].uri, self.sets["target"].uri

    def __enter__(self) -> Self:
        with ExitStack() as running:
            loop = running.enter_context(Loop())
            servers: list[EtcdCluster | ReplicaSet] = [self.etcd, *self.sets.values()]
            for server in servers:
                running.callback(server.stop)
            side_by_side([server.start for server in servers])
            running.callback(lambda: side_by_side([node.kill for node in self.nodes.values()]))
            for name in NODES:
                self.nodes[name] = self._node(name, loop)
            side_by_side([lambda name=name: self.start(name) for name in NODES])  # type: ignore[misc]  # the loop's
            self._running = running.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    def _node(self, name: str, loop: Loop) -> ChaosNode:
        to_etcd = [Proxy(loop, member.port) for member in self.etcd.members]
        flags = (
            *("--cluster", CLUSTER, "--grace", f"{_GRACE_SECONDS:g}"),
            *("--log-format", "json", "--spark-master", "local[2]"),
        )
        log = self.directory / "log" / f"{name}.log"
        endpoints = ",".join(proxy.address for proxy in to_etcd)
        node = ChaosNode(name, endpoints, self.directory / name, log, *flags)
        whose = opened_by(lambda: node.processes)
        self.links[f"{name}-etcd"] = Link(name, to_etcd, whose)
        for server, members in self.sets.items():
            gives_up = ARRIVES_WITHIN.total_seconds() if server == "target" else None
            self.links[f"{name}-{server}"] = Link(name, members.proxies, whose, gives_up)
        return node

    def start(self, name: str) -> None:
        """Retries: while etcd is unavailable, a node waits for it, here longer than a start may take."""
        node = self.nodes[name]
        while not node.wanted:
            try:
                node.start()
            except ServerFailed as failed:
                self._journal.tell(name, str(failed).partition(";")[0])
            else:
                node.wanted = True

    def kill(self, name: str) -> None:
        self.nodes[name].wanted = False
        self.nodes[name].kill()

    def sluice(self, *arguments: str, seconds: float = 60.0) -> subprocess.CompletedProcess[str]:
        """Runs a command at the first node that answers; retries while no node answers."""
        deadline = time.monotonic() + seconds
        while True:
            for node in self.nodes.values():
                done = _at(node, arguments)
                if done.returncode != _UNREACHABLE or time.monotonic() > deadline:
                    return done

    def asked(self, *arguments: str) -> list[Any]:
        """The output of a list command; empty when no node answers."""
        done = self.sluice(*arguments, "-o", "json")
        return list(json.loads(done.stdout)) if done.returncode == 0 else []


def _at(node: Node, arguments: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    """Aborts a command that takes longer than a user would wait."""
    try:
        return run(arguments, {"SLUICE_SERVER": node.address})
    except subprocess.TimeoutExpired as late:
        return subprocess.CompletedProcess(
            late.cmd, _UNREACHABLE, "", f"{node.name} has not answered in {late.timeout} s"
        )
