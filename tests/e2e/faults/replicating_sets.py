"""`ReplicatingSets`: source and target are replica sets of three, etcd has three members, two nodes replicate one changefeed.

All of them run for all tests of a module. Each test has its own databases.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Self, TypeVar

from pymongo.errors import PyMongoError

from changefeed.lifecycle import State
from changefeed.records.requests import ChangefeedId
from coordination.etcd.client import EtcdClient
from coordination.etcd.protocol import EtcdConfig
from coordination.layout import Layout
from coordination.mirror import Mirror
from devstack.etcd.cluster import EtcdCluster
from devstack.mongodb.replica_set import ReplicaSet
from devstack.mongodb.server import TESTING
from devstack.node import Node
from devstack.process import side_by_side
from tests.component.node.server_process import run
from tests.e2e.chaos.workload import Workload
from tests.e2e.faults.state_log import Shown, StateLog
from tests.independent_compare import differences
from tests.until import PATIENCE_SECONDS, until

T = TypeVar("T")

NODES = ("n1", "n2")
_FEED = ChangefeedId("faults")
_PREFIX = "fault"
_LAYOUT = Layout("faults")
_ELECTION_TIMEOUT_MS = 2_000
_QUOTA_BYTES = 32 << 20

"""For a machine with ten other busy processes."""

_NOTICE_MS = 2_000
"""The time after which the tests' own clients notice a dead connection."""


class ReplicatingSets:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.sets = {name: self._set(name) for name in ("source", "target")}
        self.etcd = EtcdCluster(directory / "etcd", directory / "log", quota_bytes=_QUOTA_BYTES)
        endpoints = ",".join(self.etcd.endpoints)
        flags = ("--cluster", _LAYOUT.cluster, "--log-format", "json", "--spark-master", "local[2]")
        self.nodes = {
            name: Node(name, endpoints, directory / name, directory / "log" / f"{name}.log", *flags) for name in NODES
        }
        self._running = ExitStack()
        self._seeds = itertools.count(1)

    def _set(self, name: str) -> ReplicaSet:
        log = self._directory / "log"
        short = _ELECTION_TIMEOUT_MS
        return ReplicaSet(name, self._directory, log, linked=True, election_timeout_ms=short, parameters=TESTING)

    def __enter__(self) -> Self:
        with ExitStack() as running:
            servers: list[EtcdCluster | ReplicaSet] = [self.etcd, *self.sets.values()]
            for server in servers:
                running.callback(server.stop)
            side_by_side([server.start for server in servers])
            running.callback(side_by_side, [node.kill for node in self.nodes.values()])
            side_by_side([node.start for node in self.nodes.values()])
            self.source = running.enter_context(self.sets["source"].client(connectTimeoutMS=_NOTICE_MS))
            self.target = running.enter_context(self.sets["target"].client(connectTimeoutMS=_NOTICE_MS))
            etcd = running.enter_context(EtcdClient(EtcdConfig(endpoints=self.etcd.endpoints)))
            mirror = Mirror(etcd, _LAYOUT.root)
            mirror.start()
            running.callback(mirror.stop)
            self._create()
            self.states = running.enter_context(StateLog(mirror, _LAYOUT, _FEED))
            self._running = running.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    def sluice(self, *arguments: str) -> None:
        done = run(arguments, {"SLUICE_SERVER": self.nodes["n1"].address})
        assert done.returncode == 0, f"{arguments}: {done.stderr}"

    @contextmanager
    def load(self, *, begin: bool = True) -> Iterator[Workload]:
        """Writes to the source all the time, unless `begin` is false. At the end both sides must be equal and the changefeed healthy."""
        self._mend()
        seed = next(self._seeds)
        workload = Workload(self.source, seed, name=f"{_PREFIX}{seed}")
        workload.prepare()
        self.until_replicated()
        self.states.clear()
        began = time.monotonic()
        with workload if begin else nullcontext():
            yield workload
            mended = time.monotonic()
            self.until_replicated()
            recovered = time.monotonic()
        for members in self.sets.values():
            members.wait_until_whole()
        self.until(lambda: not self.differences(workload.databases), "equality")
        self.until(lambda: self.states.now == Shown(State.NORMAL), "a changefeed that is well")
        sys.stdout.write(
            f"\nfault {mended - began:.1f} s, recovery {recovered - mended:.1f} s, equality {time.monotonic() - recovered:.1f} s; {workload.summary()}\n"
            + "".join(f"  {at:5.1f} s {shown.state} {shown.code} {shown.message}\n" for at, shown in self.states.shown)
        )

    def _mend(self) -> None:
        """Repairs the servers that a failed test left broken."""
        self.etcd.start()
        for members in self.sets.values():
            members.mend()
        side_by_side([node.start for node in self.nodes.values() if not node.running])

    def until_replicated(self) -> None:
        """Waits until a row written now has arrived."""
        mark = {"_id": f"mark {time.monotonic()}"}
        self.until(lambda: self._written(mark), "a primary of the source")
        self.until(lambda: self._arrived(mark), "a row that is written now")

    def until_majority(self, side: str) -> None:
        """Waits until a majority has everything that the primary has."""
        client = {"source": self.source, "target": self.target}[side]
        client.admin.command("appendOplogNote", 1, data={"test": "until_majority"}, writeConcern={"w": "majority"})

    def _written(self, mark: dict[str, str]) -> bool:
        try:
            self.source[_PREFIX]["marks"].replace_one(mark, mark, upsert=True)
        except PyMongoError:
            return False
        return True

    def _arrived(self, mark: dict[str, str]) -> bool:
        try:
            return self.target[_PREFIX]["marks"].find_one(mark) is not None
        except PyMongoError:
            return False

    def differences(self, databases: Sequence[str] = ()) -> list[str]:
        return [
            difference
            for database in (_PREFIX, *databases)
            for difference in differences(self.source, database, self.target, database)
        ]

    def until(self, condition: Callable[[], T], what: str) -> T:
        return until(condition, what, lambda: self.states.now, within=2 * PATIENCE_SECONDS)

    def _create(self) -> None:
        file = self._directory / "changefeed.yaml"
        file.write_text(
            f"""
id: {_FEED}
source: {self.sets["source"].uri}
sink: {self.sets["target"].uri}
start: now
on_divergence: fail
filter: {{tables: ["{_PREFIX}*.*"]}}
""",
            encoding="utf-8",
        )
        self.sluice("changefeed", "create", str(file))
