"""`DevStack`: etcd, a source and a target, started and stopped together."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from devstack.etcd.server import EtcdServer
from devstack.mongodb.server import CACHE_GB, MongoDB
from devstack.ports import Ports
from devstack.process import side_by_side

SOURCE_VARIABLE = "SLUICE_TEST_SOURCE"
TARGET_VARIABLE = "SLUICE_TEST_TARGET"


class DevStack:
    """A MongoDB URI in SLUICE_TEST_SOURCE or SLUICE_TEST_TARGET replaces the `mongod` of that side.

    Without a directory it uses a temporary one, which is removed at the end; a failed start keeps it with the logs.
    `parameters`: of both servers.
    """

    def __init__(
        self, directory: Path | None = None, *, cache_gb: float = CACHE_GB, parameters: Mapping[str, str] | None = None
    ) -> None:
        self._temporary = directory is None
        self.directory = directory or Path(tempfile.mkdtemp(prefix="sluice-devstack-"))
        self._running = ExitStack()
        self._ports = Ports(self.directory / "ports.json")
        self.etcd = EtcdServer(
            self.directory / "etcd", self.directory / "log" / "etcd.log", port=self._ports.of("etcd")
        )
        self._cache_gb, self._parameters = cache_gb, parameters
        self.source = self._mongodb("source", SOURCE_VARIABLE)
        self.target = self._mongodb("target", TARGET_VARIABLE)

    @property
    def etcd_endpoint(self) -> str:
        return self.etcd.endpoint

    @property
    def source_uri(self) -> str:
        return self.source if isinstance(self.source, str) else self.source.uri

    @property
    def target_uri(self) -> str:
        return self.target if isinstance(self.target, str) else self.target.uri

    def start(self) -> Self:
        servers = [server for server in (self.etcd, self.source, self.target) if not isinstance(server, str)]
        with ExitStack() as stopping:
            stopping.callback(side_by_side, [server.stop for server in servers])
            side_by_side([server.start for server in servers])
            self._running = stopping.pop_all()
        return self

    def stop(self) -> None:
        """Stops all servers in parallel, as they do not depend on each other. May be called again."""
        self._running.close()
        if self._temporary:
            shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def _mongodb(self, name: str, variable: str) -> MongoDB | str:
        given = os.environ.get(variable)
        log = self.directory / "log" / f"{name}.log"
        port = self._ports.of(name)
        return given or MongoDB(
            name, self.directory / name, log, port=port, cache_gb=self._cache_gb, parameters=self._parameters
        )
