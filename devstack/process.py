"""`ServerProcess`: one server in its own process, which ends with the process that started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

import psutil

from devstack.ports import taken

START_TIMEOUT_SECONDS = 180.0
STOP_TIMEOUT_SECONDS = 20.0
_POLL_SECONDS = 0.05
_LOG_TAIL_LINES = 40
_TETHER = Path(__file__).with_name("tether.py")

_SPAWNER = ThreadPoolExecutor(max_workers=1, thread_name_prefix="devstack-spawner")
"""Starts every server: the kernel kills a tethered process when the *thread* that started it ends, and this thread ends last."""


class ServerFailed(Exception):
    """A server did not start, or did not stop. The message ends with the last lines of its log."""


class ServerProcess(ABC):
    """Can be started, stopped and started again on the same directory and ports."""

    def __init__(self, name: str, directory: Path, log: Path) -> None:
        self.name = name
        self.directory = directory
        self.log = log
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def command(self) -> list[str]:
        """The command line; its first word is an absolute path."""

    @abstractmethod
    def ready(self) -> bool:
        """Whether the server is ready. It is called until it returns True or the deadline passes, and must not wait long."""

    @property
    @abstractmethod
    def ports(self) -> tuple[int, ...]:
        """The ports on which it listens. A taken port fails the start at once; otherwise `ready` would test the wrong server."""

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        if self._process is None:
            raise ServerFailed(f"{self.name} was not started")
        return self._process.pid

    @property
    def processes(self) -> list[psutil.Process]:
        """The running process and its descendants."""
        if not self.running:
            return []
        try:
            process = psutil.Process(self.pid)
            return [process, *process.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def start(self) -> Self:
        if self.running:
            raise ServerFailed(f"{self.name} is already running as process {self.pid}")
        for port in self.ports:
            if taken(port):
                raise ServerFailed(f"{self.name} cannot start: port {port} of 127.0.0.1 is taken by another process")
        self.directory.mkdir(parents=True, exist_ok=True)
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self._process = _SPAWNER.submit(self._spawn).result()
        try:
            self._wait_until_ready(self._process)
        except BaseException:
            self.kill()
            raise
        return self

    def stop(self) -> None:
        """Asks the process to end, and kills it if it does not. May be called again."""
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            process.terminate()
            process.send_signal(signal.SIGCONT)
        try:
            process.wait(STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise ServerFailed(
                self._failure(f"did not stop within {STOP_TIMEOUT_SECONDS:.0f} s and was killed")
            ) from None

    def kill(self) -> None:
        """Ends the process as a power cut would. May be called again."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def pause(self) -> None:
        """Freezes the process: connections stay open, but it does not answer."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def _spawn(self) -> subprocess.Popen[bytes]:
        tethered = [sys.executable, "-I", "-S", str(_TETHER), str(os.getpid()), *self.command()]
        with self.log.open("ab") as log:
            return subprocess.Popen(
                tethered,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C in the terminal reaches only the starter, which stops its servers in order
            )

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        def ended_or_ready() -> bool:
            return process.poll() is not None or self.ready()

        in_time = wait_until(ended_or_ready, START_TIMEOUT_SECONDS)
        if process.poll() is not None:
            raise ServerFailed(self._failure(f"ended with status {process.returncode} before it was ready"))
        if not in_time:
            raise ServerFailed(self._failure(f"was not ready within {START_TIMEOUT_SECONDS:.0f} s"))

    def _failure(self, what: str) -> str:
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines() if self.log.exists() else []
        tail = "\n".join(f"    {line}" for line in lines[-_LOG_TAIL_LINES:])
        return f"{self.name} {what}; the end of {self.log}:\n{tail}"


def wait_until(condition: Callable[[], bool], timeout_seconds: float) -> bool:
    """Whether the condition came true before the deadline."""
    deadline = time.monotonic() + timeout_seconds
    pause = threading.Event()
    while not condition():
        if time.monotonic() >= deadline:
            return False
        pause.wait(_POLL_SECONDS)
    return True


def side_by_side(steps: Sequence[Callable[[], object]]) -> None:
    """Runs all steps in parallel and returns when all have ended; raises the error of the first one, in their order, that failed."""
    with ThreadPoolExecutor(max(1, len(steps))) as workers:
        for done in [workers.submit(step) for step in steps]:
            done.result()
