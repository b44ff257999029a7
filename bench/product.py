"""`Product`: Sluice as users run it, to be measured: an owner and a processor, each a `sluice server` of its own, or one node with both roles."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from types import TracebackType
from typing import IO, Self

from admin.desired.desired_store import DesiredStore
from bench.baselines.baseline import server_pids
from bench.result import LOGS
from bench.usage import Usage
from bench.workload import Workload
from changefeed.capture import Capture
from changefeed.config.configuration import Configuration
from changefeed.event import DdlType
from changefeed.lifecycle import State
from changefeed.position import Position
from changefeed.records.copy import CopyRecord, CopyStage
from changefeed.records.ddl import DdlRecord
from changefeed.records.node import NodeRecord
from changefeed.records.requests import ChangefeedId, ChangefeedInfo, DesiredState, TableVerb
from changefeed.records.status import ChangefeedStatus
from changefeed.table import TableId
from coordination.etcd.client import EtcdClient
from coordination.etcd.protocol import EtcdConfig, Put
from coordination.layout import Layout, decode, encode
from devstack.stack import DevStack
from source.connection import Client

BLACKHOLE = "blackhole://"
_DEADLINE_SECONDS = 1_800.0
_ENDING_SECONDS = 30.0
_ONE_FOR_EACH = {"owner": ("owner",), "processor": ("processor",)}
_ONE_FOR_BOTH = {"node": ("owner", "processor")}


class Product:
    """Its Spark session starts with its first changefeed; `warm_up` does this before a measurement."""

    def __init__(
        self,
        stack: DevStack,
        *,
        spark_master: str | None = None,
        spark_conf: Mapping[str, str] | None = None,
        one_node: bool = False,
    ) -> None:
        self._stack = stack
        self._nodes = _ONE_FOR_BOTH if one_node else _ONE_FOR_EACH
        conf = [word for name, value in (spark_conf or {}).items() for word in ("--spark-conf", f"{name}={value}")]
        self._spark = [*(("--spark-master", spark_master) if spark_master else ()), *conf]
        self.layout = Layout(f"bench-{uuid.uuid4().hex[:8]}")
        self.etcd = EtcdClient(EtcdConfig(endpoints=(stack.etcd_endpoint,)))
        self._store = DesiredStore(self.etcd, self.layout)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._log: IO[bytes] = (LOGS / "product.log").open("wb")

    def __enter__(self) -> Self:
        for name in self._nodes:
            self.start(name)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stops both processes in parallel: there is nothing to hand over."""
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            try:
                process.wait(_ENDING_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.etcd.close()
        self._log.close()

    def warm_up(self, source: Client) -> None:
        """Starts Spark and its workers, and lets the JVM compile the code that every job runs."""
        workload = Workload(events=5_000, tables=4, database=f"warm_{uuid.uuid4().hex[:8]}")
        workload.prepare(source)
        window = workload.insert(source)
        for sink in (BLACKHOLE, None):
            id = self.create(workload.database, sink=sink, start=str(window.start.ts))
            self.until_at(id, window.end)
            self.remove(id)

    def usage(self, others: Mapping[str, int] = {}, *, memory: bool = True) -> Usage:
        """The usage of each node's Python, the JVM, the workers, the servers, and the `others`, by name."""
        nodes = {name: process.pid for name, process in self._processes.items()}
        return Usage({**nodes, **server_pids(self._stack), **others}, memory=memory)

    def create(
        self,
        database: str,
        *,
        source: str | None = None,
        sink: str | None = None,
        start: str = "now",
        capture: Capture = Capture.OPLOG,
        more: Mapping[str, object] = {},
    ) -> ChangefeedId:
        """Replicates the database to the name that `target_of` returns, so that a baseline can use the original name. `more`: of its configuration."""
        id = ChangefeedId(f"f-{uuid.uuid4().hex[:8]}")
        fields = {
            "id": id,
            "source": source or self._stack.source_uri,
            "sink": sink or self._stack.target_uri,
            "start": start,
            "filter": {"tables": [f"{database}.*"]},
            "routes": [{"from": f"{database}.*", "to": f"{target_of(database)}.*"}],
            **more,
        }
        info = ChangefeedInfo(capture=capture, configuration=Configuration.parse(fields), created_at=datetime.now(UTC))
        self._store.create(info)
        return id

    def remove(self, id: ChangefeedId) -> None:
        self.want(id, DesiredState.REMOVED)

    def want(self, id: ChangefeedId, desired: DesiredState) -> None:
        info, _ = self._store.read(id)
        wanted = replace(info, desired=desired, version=info.version + 1)
        self.etcd.txn((), (Put(self.layout.info(id), encode(wanted)),))

    def until_in(self, id: ChangefeedId, state: State) -> None:
        self.until(lambda: (at := self.status(id)) is not None and at.lifecycle.state is state, f"{id} is {state}")

    def until_still(self, id: ChangefeedId) -> None:
        """Of one that is to be paused."""
        self.until(lambda: (at := self.status(id)) is not None and at.still, f"{id} stands still")

    def until_begun(self, id: ChangefeedId) -> None:
        self.until(lambda: self.checkpoint(id) is not None, f"{id} begins")

    def until_gone(self, id: ChangefeedId) -> None:
        self.until(lambda: self.etcd.get(self.layout.info(id)) is None, f"{id} is removed")

    def until_ddl(self, id: ChangefeedId) -> None:
        """Waits until the owner has recorded one."""
        self.until(lambda: bool(self.ddls(id)), f"{id} has a DDL")

    def until_at(self, id: ChangefeedId, position: Position) -> None:
        """Waits until everything before the position is reported as replicated."""
        self.until(lambda: (at := self.checkpoint(id)) is not None and at >= position, f"{id} passes {position}")

    def until_copied(self, id: ChangefeedId, tables: int) -> None:
        """Waits until so many tables are copied and have their indexes. Counting at the target would cost it more than the copy does."""

        def copied() -> bool:
            under = self.layout.copies(id)
            if len(self.etcd.keys(under)) != tables:  # those of a table in copy are two or more
                return False
            records = [kv for kv in self.etcd.range(under).items if "/" not in kv.key.removeprefix(under)]
            return sum(decode(CopyRecord, kv).stage is CopyStage.DONE for kv in records) == tables

        self.until(copied, f"{id} has copied {tables} tables", every=0.1)

    def until_exchanged(self, id: ChangefeedId, times: int) -> None:
        """Waits until so many copies have taken their tables' places."""

        def exchanged() -> int:
            types = [record.event.type for record in self.ddls(id) if not record.open]
            return types.count(DdlType.EXCHANGE)

        self.until(lambda: exchanged() == times, f"{id} has exchanged {times} tables")

    def recopy(self, id: ChangefeedId) -> None:
        """All that was copied."""
        for found in self.etcd.range(self.layout.copies(id)).items:
            if found.key.count("/") == self.layout.copies(id).count("/"):
                self._store.ask(id, TableId(found.key.rpartition("/")[2]), TableVerb.RECOPY)

    def admin_address(self) -> str:
        """Of one of the nodes."""
        found = self.etcd.range(self.layout.nodes).items[0]
        return decode(NodeRecord, found).admin_address

    def ddls(self, id: ChangefeedId) -> list[DdlRecord]:
        return [decode(DdlRecord, found) for found in self.etcd.range(self.layout.ddls(id)).items]

    def checkpoint(self, id: ChangefeedId) -> Position | None:
        status = self.status(id)
        if status and status.lifecycle.state is State.FAILED:
            raise RuntimeError(f"{id} has failed: {status.lifecycle.error}")
        return status.checkpoint if status else None

    def status(self, id: ChangefeedId) -> ChangefeedStatus | None:
        found = self.etcd.get(self.layout.status(id))
        return decode(ChangefeedStatus, found) if found else None

    def until(self, condition: Callable[[], bool], what: str, *, every: float = 0.02) -> None:
        """Raises an error if a node ends before, and after a while."""
        deadline = time.monotonic() + _DEADLINE_SECONDS
        while not condition():
            for name, process in self._processes.items():
                if process.poll() is not None:
                    raise RuntimeError(f"the {name} ended with code {process.returncode} before {what}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"not within {_DEADLINE_SECONDS:g} s: {what}; see {self._log.name}")
            time.sleep(every)

    def start(self, name: str) -> None:
        roles = ",".join(self._nodes[name])
        command = [
            sys.executable,
            "-c",
            "from cli.main import main; main()",
            "server",
            "--roles",
            roles,
            "--name",
            name,
        ]
        command += ["--cluster", self.layout.cluster, "--etcd", self._stack.etcd_endpoint, "--grace", "1"]
        command += ["--admin-address", "127.0.0.1:0", "--http-address", "127.0.0.1:0", *self._spark]
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        self._processes[name] = subprocess.Popen(command, stdout=self._log, stderr=self._log, env=environment)

    def stop(self, name: str) -> None:
        self._processes[name].terminate()
        self._processes[name].wait(_ENDING_SECONDS)

    def kill(self, name: str) -> None:
        self._processes[name].kill()
        self._processes[name].wait()


def target_of(database: str) -> str:
    return f"{database}_to"
