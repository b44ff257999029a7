"""`Node`: one `sluice server` in a process of its own, by default with both roles."""

from __future__ import annotations

import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from devstack.ports import Ports
from devstack.process import ServerProcess

_ENV = Path("/usr/bin/env")


class Node(ServerProcess):
    def __init__(
        self,
        name: str,
        etcd: str,
        directory: Path,
        log: Path,
        *flags: str,
        roles: str = "owner,processor",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(name, directory, log)
        self._etcd = etcd
        self._flags = flags
        self._roles = roles
        self._environment = environment or {}
        ports = Ports(directory / "ports.json")
        self._admin_port, self._http_port, self._console_port = (
            ports.of(f"{name} {server}") for server in ("admin", "http", "console")
        )

    @property
    def address(self) -> str:
        """The address of the admin API."""
        return f"127.0.0.1:{self._admin_port}"

    @property
    def http(self) -> str:
        return f"http://127.0.0.1:{self._http_port}"

    @property
    def console(self) -> str:
        return f"http://127.0.0.1:{self._console_port}"

    @property
    def ports(self) -> tuple[int, ...]:
        return self._admin_port, self._http_port, self._console_port

    def command(self) -> list[str]:
        return [
            *(str(_ENV), *(f"{name}={value}" for name, value in self._environment.items())),
            *(str(Path(sys.executable).with_name("sluice")), "server", "--name", self.name),
            *("--etcd", self._etcd, "--roles", self._roles),
            *("--admin-address", self.address, "--http-address", self.http.removeprefix("http://")),
            *("--console-address", self.console.removeprefix("http://")),
            *self._flags,
        ]

    def ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.http}/readyz", timeout=1):  # noqa: S310 - our own address
                return True
        except (urllib.error.URLError, OSError):
            return False
