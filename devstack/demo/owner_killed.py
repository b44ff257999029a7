"""`OwnerKilled`: the accident of the demonstration. The owner dies by `kill -9` while the gate of a table is closed, and another node goes on.

The owner is held just before it sends a rename, by a failpoint, so that the gate is closed for sure when it dies. The hold ends with it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from admin.stubs.sluice.admin.v1 import admin_pb2 as pb
from cli import cells
from cli.channel import Connection, ServerAddress
from coordination.failpoint import VARIABLE
from devstack.demo.outcome import DemoFailed
from devstack.node import Node
from devstack.process import side_by_side, wait_until
from devstack.stack import DevStack

_NODES = 3
_FLAGS = ("--session-ttl", "3", "--spark-master", "local[1]", "--spark-conf", "spark.driver.memory=512m")
_POINT, _KIND = "ddl_executing", "rename"
_PATIENCE_SECONDS = 120.0
_WATCHED_SECONDS = 2.0


class OwnerKilled:
    """Nodes of one cluster, of which the owner is to die. `connection` leads to one that lives."""

    def __init__(self, stack: DevStack, changefeed: str) -> None:
        self._changefeed = changefeed
        self._holds = stack.directory / "holds"
        self._running = ExitStack()
        environment = {VARIABLE: f"{_POINT}=hold:{self._holds}"}
        self._nodes = [
            Node(
                f"node-{number}",
                stack.etcd_endpoint,
                stack.directory / f"node-{number}",
                stack.directory / "log" / f"node-{number}.log",
                *_FLAGS,
                environment=environment,
            )
            for number in range(1, _NODES + 1)
        ]

    def __enter__(self) -> Self:
        self._file.parent.mkdir(parents=True)
        side_by_side([node.start for node in self._nodes])
        for node in self._nodes:
            self._running.callback(node.stop)
        self.connection = Connection(ServerAddress(server=self._nodes[0].address))
        return self

    def __exit__(self, *exc: object) -> None:
        self.connection.close()
        self._file.unlink(missing_ok=True)
        self._running.close()

    @property
    def _file(self) -> Path:
        return self._holds / _POINT / _KIND

    def prepare(self) -> None:
        """Before the rename."""
        self._file.touch()

    def happen(self, say: Callable[[str], None]) -> None:
        """After the rename at the source."""
        self._wait("the owner stands before the rename", Path(f"{self._file}.reached").exists)
        before = {table.name: table for table in self._tables()}
        time.sleep(_WATCHED_SECONDS)
        after = self._tables()
        held = [table.name for table in after if table.held]
        on = [
            table.name for table in after if table.name in before and table.checkpoint != before[table.name].checkpoint
        ]
        [ddl] = [ddl for ddl in self._ddls() if ddl.type == _KIND and not ddl.HasField("done_at")]
        say(
            f"the rename stands at {cells.position(ddl.position)}: the gate of {', '.join(held)} is closed, {', '.join(on)} go on"
        )
        owner = next(node.name for node in self._listed() if node.owner)
        dying = next(node for node in self._nodes if node.name == owner)
        survivor = next(node for node in self._nodes if node is not dying)
        self.connection.close()
        self.connection = Connection(ServerAddress(server=survivor.address))
        killed_at = time.monotonic()
        dying.kill()
        self._file.unlink()
        say(f"kill -9: {owner}, the owner, is gone, with its tables and the rename that it was about to send")
        self._wait("another owner", lambda: any(node.owner and node.name != owner for node in self._listed()))
        heir = next(node.name for node in self._listed() if node.owner)
        say(f"{heir} is elected after {time.monotonic() - killed_at:.1f} s, and finds the rename in etcd")
        self._wait("the end of the rename", lambda: all(each.HasField("done_at") for each in self._ddls()))
        say(f"the rename is applied once, and the gate opens {time.monotonic() - killed_at:.1f} s after the kill")

    def _wait(self, what: str, condition: Callable[[], bool]) -> None:
        if not wait_until(condition, _PATIENCE_SECONDS):
            raise DemoFailed(f"{what} was not reached within {_PATIENCE_SECONDS:.0f} s")

    def _tables(self) -> list[pb.Table]:
        return list(self.connection.tables_of(self._changefeed))

    def _ddls(self) -> list[pb.Ddl]:
        return list(
            self.connection.stream(self.connection.ddls.ListDdl, pb.ListDdlRequest(changefeed=self._changefeed))
        )

    def _listed(self) -> Sequence[pb.Node]:
        found: Sequence[pb.Node] = self.connection.ask(self.connection.nodes.ListNodes, pb.ListNodesRequest()).nodes
        return found
