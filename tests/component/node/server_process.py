"""A real node: `sluice server` in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import urllib.error
import urllib.request
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

import psutil

from devstack.ports import free_port
from tests import zygote
from tests.until import PATIENCE_SECONDS, until
from tests.zygote import SLUICE


class Server:
    """Started by `with`. Its only role is owner unless `roles` says otherwise: an owner needs no Spark. `program`: what stands for `sluice`."""

    def __init__(
        self,
        etcd_endpoint: str,
        log: Path,
        *flags: str,
        cluster: str | None = None,
        name: str = "n1",
        roles: str = "owner",
        host: str = "127.0.0.1",
        environment: Mapping[str, str] | None = None,
        program: str = str(SLUICE),
    ) -> None:
        self.cluster = cluster or f"test-{uuid.uuid4().hex[:12]}"
        self.address = f"{host}:{free_port()}"
        self.http = f"127.0.0.1:{free_port()}"
        self.console = f"http://127.0.0.1:{free_port()}"
        self._log = log
        self._environment = {**os.environ, **(environment or {})}
        self._command = [
            *(program, "server", "--etcd", etcd_endpoint, "--cluster", self.cluster, "--name", name),
            *("--roles", roles, "--admin-address", self.address, "--http-address", self.http),
            *("--console-address", self.console.removeprefix("http://")),
            *("--session-ttl", "3", "--log-format", "json", *flags),
        ]
        self._process: zygote.Process | None = None

    def __enter__(self) -> Self:
        self.start()
        self.until_ready()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Does not wait until the server is ready. May be called again after `kill`."""
        with self._log.open("ab") as log:
            self._process = zygote.start(self._command, self._environment, stderr=log)

    @property
    def processes(self) -> list[psutil.Process]:
        """The server, its JVM and the workers."""
        assert self._process is not None
        try:
            process = psutil.Process(self._process.pid)
            return [process, *process.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def kill(self) -> None:
        assert self._process is not None
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()

    @property
    def log(self) -> str:
        return self._log.read_text()

    def until_ready(self) -> None:
        def ready() -> bool:
            assert self._process is not None
            assert self._process.poll() is None, f"the server ended: {self.log}"
            return self.get("/readyz")[0] == 200

        until(ready, "the server is ready", lambda: f"{self.get('/readyz')}, {self.log}")

    def get(self, path: str) -> tuple[int, str]:
        """Status and body; status 0 without an answer."""
        try:
            with urllib.request.urlopen(f"http://{self.http}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def wait(self, timeout: float = PATIENCE_SECONDS) -> int:
        assert self._process is not None
        return self._process.wait(timeout)

    def sluice(
        self, *arguments: str, environment: Mapping[str, str] | None = None, input: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """The result of `sluice ARGUMENTS`, as a user sees it in a shell."""
        return run(arguments, {"SLUICE_SERVER": self.address, **(environment or {})}, input)


def run(
    arguments: Sequence[str], environment: Mapping[str, str], input: str | None = None
) -> subprocess.CompletedProcess[str]:
    return zygote.run(
        [str(SLUICE), *arguments], {**os.environ, "HOME": "/nonexistent", **environment}, input or "", PATIENCE_SECONDS
    )
