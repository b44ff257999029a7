"""`Node`: one `sluice server` with both roles, in a process of its own."""

from __future__ import annotations

import sys
import urllib.error
import urllib.request
from pathlib import Path

from devstack.ports import free_port
from devstack.process import ServerProcess


class Node(ServerProcess):
    def __init__(self, name: str, etcd: str, directory: Path, log: Path) -> None:
        super().__init__(name, directory, log)
        self._etcd = etcd
        self._admin_port = free_port()
        self._http_port = free_port()

    @property
    def address(self) -> str:
        """Of the admin API."""
        return f"127.0.0.1:{self._admin_port}"

    @property
    def http(self) -> str:
        return f"http://127.0.0.1:{self._http_port}"

    @property
    def ports(self) -> tuple[int, ...]:
        return self._admin_port, self._http_port

    def command(self) -> list[str]:
        return [
            *(str(Path(sys.executable).with_name("sluice")), "server", "--name", self.name),
            *("--etcd", self._etcd, "--roles", "owner,processor"),
            *("--admin-address", self.address, "--http-address", self.http.removeprefix("http://")),
        ]

    def ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.http}/readyz", timeout=1):  # noqa: S310 - our own address
                return True
        except (urllib.error.URLError, OSError):
            return False
