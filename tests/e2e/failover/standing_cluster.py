"""`StandingCluster`: real nodes that run for all tests of a module: two candidates for owner, two processors.

The survivors recover from an accident alone. The killed nodes restart afterwards, while the next test prepares.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from changefeed.position import Position
from changefeed.records.ddl import DdlRecord
from changefeed.records.node import NodeId, Role
from changefeed.records.requests import ChangefeedId, MoveRequest
from changefeed.table import TableId
from coordination import failpoint
from coordination.decoded import Decoded
from coordination.etcd.protocol import Put
from coordination.layout import encode
from devstack.mongodb.server import Client
from devstack.node import Node
from devstack.process import side_by_side
from tests.component.node.server_process import run
from tests.component.owner.conftest import Cluster
from tests.e2e.failover.holds import Holds
from tests.until import until

T = TypeVar("T")

OWNERS = ("o1", "o2")
PROCESSORS = ("p1", "p2")
_TTL = "30"
"""Long, so that no session ends on a busy machine. The lease of a killed node is revoked."""


class StandingCluster(Cluster):
    def __init__(
        self, endpoint: str, source_uri: str, target_uri: str, source: Client, target: Client, directory: Path
    ) -> None:
        super().__init__(endpoint, source_uri, target_uri, source, target)
        self.target_uri = target_uri
        self.holds = Holds(directory / "holds")
        self.nodes = {
            name: self._node(name, role, directory)
            for role, names in ((Role.OWNER, OWNERS), (Role.PROCESSOR, PROCESSORS))
            for name in names
        }
        self._starts = ThreadPoolExecutor(len(self.nodes), thread_name_prefix="start")
        self._starting: list[Future[Node]] = []

    def _node(self, name: str, role: Role, directory: Path) -> Node:
        flags = ("--cluster", self.layout.cluster, "--session-ttl", _TTL, "--log-format", "json")
        environment = {failpoint.VARIABLE: self.holds.failpoints}
        log = directory / f"{name}.log"
        return Node(name, self.endpoint, directory / name, log, *flags, roles=role, environment=environment)

    def close(self) -> None:
        self._starts.shutdown()
        side_by_side([node.kill for node in self.nodes.values()])
        super().close()

    def start_again(self) -> None:
        """Starts the nodes that do not run, without waiting for them."""
        self._starting += [self._starts.submit(node.start) for node in self.nodes.values() if not node.running]

    def stand_ready(self) -> None:
        """Waits until all nodes run and see each other."""
        if not self._starting:
            self.start_again()
        for start in self._starting:
            start.result()
        self._starting.clear()
        self.until(lambda: all(self.id_of(name) for name in self.nodes), "a session of each node")
        self.until(lambda: all(map(self._stands, OWNERS)), "the line of owners")

    def id_of(self, name: str) -> NodeId | None:
        """The id of the node's live session."""
        found = self._mirror.view().group(self.layout.nodes).values()
        ids = [NodeId(kv.key.removeprefix(self.layout.nodes)) for kv in found]
        return next((id for id in ids if id.rpartition("-")[0] == name), None)

    def kill(self, names: Iterable[str]) -> None:
        """`kill -9`, and the end of the leases. All that wait at a failpoint are released."""
        for name in names:
            self.nodes[name].kill()
        self.holds.release_all()
        for name in names:
            self.revoke_lease(name)

    def sluice(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs a command at the owner's node."""
        node = self.nodes[self.until(lambda: self.owner() or "", "an owner")]
        done = run(arguments, {"SLUICE_SERVER": node.address})
        assert done.returncode == 0, f"{arguments}: {done.stderr}"
        return done

    def homes(self, id: ChangefeedId) -> Mapping[TableId, str]:
        """The name of each table's node."""
        return {table: node.rpartition("-")[0] for table, node in self.assigned(id).items()}

    def send_home(self, id: ChangefeedId, homes: Mapping[TableId, str]) -> None:
        """Moves tables like `sluice table move`, but all in one transaction, so that nodes stay evenly loaded."""
        ids = {name: self.id_of(name) for name in PROCESSORS}
        wrong = {table: ids[name] for table, name in homes.items() if self.homes(id).get(table) != name}
        puts = [
            Put(self.layout.move(id, table), encode(MoveRequest(node=node))) for table, node in wrong.items() if node
        ]
        if puts:
            self.etcd.txn((), puts)
        self.until(lambda: not self.moves(id) and homes.items() <= self.homes(id).items(), "the tables at home")

    def checkpoint(self, id: ChangefeedId, table: TableId) -> Position | None:
        """The checkpoint that the table's node reports."""
        node = self.assigned(id).get(table)
        found = Decoded(self.layout).report(self._mirror.view(), id, NodeId(node)) if node else None
        return found.of(table) if found else None

    def records_of(self, id: ChangefeedId, database: str) -> list[DdlRecord]:
        """The records in stream order."""
        return sorted((r for r in self.ddls(id) if r.event.db == database), key=lambda record: record.position)

    until = staticmethod(until)
