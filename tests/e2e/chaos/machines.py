"""`Machines`: etcd, source, target, three nodes, and a proxy between each node and each server.

etcd is killed by `kill -9`. Source and target are stopped, which breaks all connections and ends the commands under way, and come back with their data: the
stand-in does not change a schema and write its oplog entry in one, so that a kill between the two would lose a DDL, as no MongoDB does.

Each node reaches the servers through proxies of its own, named in its environment: the changefeeds' configuration, which all nodes share, refers to that.
"""

from __future__ import annotations

import json
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from devstack.mongodb import MongoDB
from devstack.node import Node
from devstack.process import ServerFailed, ServerProcess, side_by_side
from devstack.proxy import Loop, Proxy
from devstack.stack import DevStack
from tests.component.node.server_process import run
from tests.e2e.chaos.journal import Journal
from tests.e2e.chaos.schedule import NODES

CLUSTER = "chaos"
SOURCE = "mongodb://${env:CHAOS_SOURCE}/?directConnection=true"
TARGET = "mongodb://${env:CHAOS_TARGET}/?directConnection=true"
_GRACE_SECONDS = 10.0
_AFTER_GRACE_SECONDS = 40.0
_UNREACHABLE = 5


class ChaosNode(Node):
    """`wanted`: whether it is to run now, so that one that ends by itself is found out."""

    wanted = False

    def end(self) -> int | None:
        """How it ended after SIGTERM; None when it did not in the time that it promises."""
        self.wanted = False
        assert self._process is not None
        self._process.terminate()
        try:
            return self._process.wait(_GRACE_SECONDS + _AFTER_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            return None


class Machines:
    def __init__(self, directory: Path, journal: Journal) -> None:
        self._journal = journal
        self._running = ExitStack()
        self.stack = DevStack(directory)
        self._directory = directory
        self.proxies: dict[str, Proxy] = {}
        self.nodes: dict[str, ChaosNode] = {}

    @property
    def servers(self) -> dict[str, ServerProcess]:
        source, target = self.stack.source, self.stack.target
        assert isinstance(source, MongoDB)
        assert isinstance(target, MongoDB)
        return {"etcd": self.stack.etcd, "source": source, "target": target}

    def __enter__(self) -> Self:
        with ExitStack() as running:
            loop = running.enter_context(Loop())
            running.enter_context(self.stack)
            running.callback(lambda: side_by_side([node.kill for node in self.nodes.values()]))
            for name in NODES:
                self.nodes[name] = self._node(name, loop)
            side_by_side([lambda name=name: self.start(name) for name in NODES])  # type: ignore[misc]  # the loop's
            self._running = running.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    def _node(self, name: str, loop: Loop) -> ChaosNode:
        own = {server: Proxy(loop, process.ports[0]) for server, process in self.servers.items()}
        self.proxies |= {f"{name}-{server}": proxy for server, proxy in own.items()}
        environment = {"CHAOS_SOURCE": own["source"].address, "CHAOS_TARGET": own["target"].address}
        flags = (
            "--cluster",
            CLUSTER,
            "--grace",
            f"{_GRACE_SECONDS:g}",
            "--log-format",
            "json",
            "--spark-master",
            "local[2]",
        )
        log = self._directory / "log" / f"{name}.log"
        return ChaosNode(name, own["etcd"].address, self._directory / name, log, *flags, environment=environment)

    def start(self, name: str) -> None:
        """A node waits for an etcd that is not to be had, here longer than a start may take: so it is started once more."""
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

    def take_down(self, server: str) -> None:
        if server == "etcd":
            self.servers[server].kill()
        else:
            self.servers[server].stop()

    def sluice(self, *arguments: str, seconds: float = 60.0) -> subprocess.CompletedProcess[str]:
        """The command line at the first node that answers, tried again for as long as none does."""
        deadline = time.monotonic() + seconds
        while True:
            for node in self.nodes.values():
                done = _at(node, arguments)
                if done.returncode != _UNREACHABLE or time.monotonic() > deadline:
                    return done

    def asked(self, *arguments: str) -> list[Any]:
        """What a list in the command line shows; empty when nobody answers."""
        done = self.sluice(*arguments, "-o", "json")
        return list(json.loads(done.stdout)) if done.returncode == 0 else []


def _at(node: Node, arguments: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    """What waits for longer than a user would is broken off, as a user would."""
    try:
        return run(arguments, {"SLUICE_SERVER": node.address})
    except subprocess.TimeoutExpired as late:
        return subprocess.CompletedProcess(
            late.cmd, _UNREACHABLE, "", f"{node.name} has not answered in {late.timeout} s"
        )
