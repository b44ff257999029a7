"""`Nodes`: an owner and a processor that stand still at chosen failpoints, where they, their tasks or the sink's server get kill -9."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from itertools import chain
from pathlib import Path

import psutil

from coordination import failpoint
from devstack.process import ServerProcess
from tests.component.node.server_process import Server
from tests.e2e.node.filed_changefeed import S3_KEYS
from tests.e2e.sinks.gateway import KEY, SECRET
from tests.until import until

OF_TASKS = ("window_read", "window_applied")
OF_DRIVERS = {
    "directory": ("window_committing", "window_committed"),
    "bucket": ("window_committing", "window_committed"),
    "topics": ("window_begins", "window_ended"),
}
OF_OWNERS = ("ddl_due", "ddl_executing", "ddl_applied")
_OF_COPIES = {
    "directory": ("chunks_committing", "chunks_committed"),
    "bucket": ("chunks_committing", "chunks_committed"),
    "topics": ("chunk_loaded", "chunks_read"),
}
_VICTIMS = ("task", "driver", "owner")
_SERVERS = {"bucket": "store", "topics": "broker"}
IN_COPIES = [
    (sink, point, victim)
    for sink, points in _OF_COPIES.items()
    for point in points
    for victim in (*_VICTIMS, *([_SERVERS[sink]] if sink in _SERVERS else []))
]
"""Each sink, point of a copy, and victim."""
BEFORE_A_CHUNK = "chunk_due"
_POINTS = {BEFORE_A_CHUNK, *OF_TASKS, *chain(*OF_DRIVERS.values()), *OF_OWNERS, *chain(*_OF_COPIES.values())}
KEYS = dict(zip(S3_KEYS, (KEY, SECRET), strict=True))
_FLAGS = ("--session-ttl", "10", "--grace", "150")  # the nodes share two cores with their Spark


class Nodes:
    def __init__(self, etcd_endpoint: str, directory: Path) -> None:
        self._holds = directory / "holds"
        for point in _POINTS:
            (self._holds / point).mkdir(parents=True)
        holds = " ".join(f"{point}=hold:{self._holds}" for point in _POINTS)
        environment = {failpoint.VARIABLE: holds, **KEYS}
        cluster = f"test-{uuid.uuid4().hex[:12]}"
        self.owner, self.processor = (
            Server(
                etcd_endpoint,
                directory / f"{role}.log",
                *_FLAGS,
                cluster=cluster,
                name=role,
                roles=role,
                environment=environment,
            )
            for role in ("owner", "processor")
        )

    def kill_task(self) -> None:
        """All workers: one of them has the task, if there is one."""
        daemons = {each.pid for each in self.processor.processes if "worker_daemon" in _command(each)}
        for process in self.processor.processes:
            if "worker_daemon" in _command(process) and process.ppid() in daemons:
                process.kill()

    def kill_driver(self) -> None:
        _restart(self.processor)

    def kill_owner(self) -> None:
        _restart(self.owner)

    def at(self, point: str, subject: str, do: Callable[[], None], *, cause: Callable[[], None]) -> None:
        """Does it while the failpoint is reached, which `cause` brings about."""
        held = self._holds / point / subject
        reached = held.with_name(f"{subject}.reached")
        held.touch()
        try:
            cause()
            until(reached.exists, f"{point} of {subject}")
            do()
        finally:
            held.unlink()
            reached.unlink(missing_ok=True)


def _restart(server: Server) -> None:
    server.kill()
    server.start()


def kill_and_start(server: ServerProcess) -> None:
    server.kill()
    server.start()


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""
