"""`SparkMaster`, `SparkWorker`: the two daemons of a standalone cluster, from the installed pyspark."""

from __future__ import annotations

import json
import sys
import urllib.request
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import Any

import psutil

from devstack.ports import free_port
from devstack.process import STOP_TIMEOUT_SECONDS, ServerFailed, ServerProcess

SPARK_HOME = Path(str(files("pyspark")))

_ENV = Path("/usr/bin/env")
_HOST = "127.0.0.1"
_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_DAEMON_MEMORY = "256m"
_NOT_YET = (OSError, json.JSONDecodeError)
"""A daemon that starts serves an empty page first."""


class _SparkDaemon(ServerProcess):
    def __init__(self, name: str, directory: Path, log: Path, environment: Mapping[str, str]) -> None:
        super().__init__(name, directory, log)
        self._environment = {
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOCAL_IP": _HOST,
            "SPARK_LOCAL_DIRS": str(directory / "local"),
            "SPARK_DAEMON_MEMORY": _DAEMON_MEMORY,
            "SPARK_DAEMON_JAVA_OPTS": _JAVA,
            **environment,
        }
        self._port = free_port()
        self._web_port = free_port()

    @property
    def ports(self) -> tuple[int, ...]:
        return self._port, self._web_port

    def command(self) -> list[str]:
        listens = ("--host", _HOST, "--port", str(self._port), "--webui-port", str(self._web_port))
        return [
            *(str(_ENV), *(f"{name}={value}" for name, value in self._environment.items())),
            *(str(SPARK_HOME / "bin" / "spark-class"), *self._main(), *listens),
        ]

    @abstractmethod
    def _main(self) -> list[str]:
        """The daemon's class and its own options."""

    def _shown(self) -> dict[str, Any]:
        """What the daemon's web page shows."""
        with urllib.request.urlopen(f"http://{_HOST}:{self._web_port}/json/", timeout=5) as answer:
            return dict(json.load(answer))


class SparkMaster(_SparkDaemon):
    def __init__(self, directory: Path, log: Path) -> None:
        super().__init__("spark-master", directory, log, {})

    @property
    def url(self) -> str:
        return f"spark://{_HOST}:{self._port}"

    def ready(self) -> bool:
        try:
            return bool(self._shown()["status"] == "ALIVE")
        except _NOT_YET:
            return False

    def workers(self) -> int:
        """The registered workers that are alive."""
        return int(self._shown()["aliveworkers"])

    def applications(self) -> list[dict[str, Any]]:
        """The running and waiting applications: each `SparkContext` is one."""
        return list(self._shown()["activeapps"])

    def _main(self) -> list[str]:
        return ["org.apache.spark.deploy.master.Master"]


class SparkWorker(_SparkDaemon):
    """`environment`: for the worker and its executors, as an operator sets it in `spark-env.sh`."""

    def __init__(
        self,
        name: str,
        master: SparkMaster,
        directory: Path,
        log: Path,
        *,
        cores: int,
        memory: str,
        environment: Mapping[str, str],
    ) -> None:
        path = {"PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"}
        super().__init__(name, directory, log, {**path, **environment})
        self._master = master
        self._cores = cores
        self._memory = memory

    def ready(self) -> bool:
        """Whether it is connected to its master."""
        try:
            return bool(self._shown()["masterurl"] == self._master.url)
        except _NOT_YET:
            return False

    @property
    def executors(self) -> list[psutil.Process]:
        """The executors' JVMs."""
        return [process for process in self.processes[1:] if _runs_executor(process)]

    def executor_logs(self) -> str:
        """What its executors and their Python workers have written so far."""
        logs = sorted(self.directory.glob("work/*/*/std*"))
        return "".join(log.read_text(encoding="utf-8", errors="replace") for log in logs)

    def freeze(self) -> list[psutil.Process]:
        """Freezes the worker with everything that it has started, like a machine that stands still. Returns the frozen processes."""
        frozen = self.processes
        for process in frozen:
            with suppress(psutil.NoSuchProcess):
                process.suspend()
        return frozen

    @staticmethod
    def thaw(frozen: Sequence[psutil.Process]) -> None:
        """The first ones that wake up may end the others."""
        for process in frozen:
            with suppress(psutil.NoSuchProcess):
                process.resume()

    def stop(self) -> None:
        """A Python worker may outlive its executor, and a frozen process does not end by itself."""
        left = self.processes[1:]
        try:
            super().stop()
        finally:
            _end(left)

    def kill(self) -> None:
        """Like the loss of the machine."""
        left = self.processes[1:]
        super().kill()
        _end(left)

    def _main(self) -> list[str]:
        work = str(self.directory / "work")
        size = ("--cores", str(self._cores), "--memory", self._memory)
        return ["org.apache.spark.deploy.worker.Worker", self._master.url, *size, "--work-dir", work]


def _runs_executor(process: psutil.Process) -> bool:
    try:
        return any("CoarseGrainedExecutorBackend" in word for word in process.cmdline())
    except psutil.NoSuchProcess:
        return False


def _end(processes: list[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    _, alive = psutil.wait_procs(processes, STOP_TIMEOUT_SECONDS)
    if alive:
        raise ServerFailed(f"still running after kill -9: {alive}")
