"""`start`: a process of the product for a test: a command, a node, an owner. It is forked from one that has imported the product already.

Python needs a second of CPU to import what a command needs, two for a node, and a run of all tests starts a thousand of them. A forked
process is as separate as one that was executed: it has its own memory, environment, streams and exit code, and no threads or connections
of its parent. Failpoints, which read the environment when they are imported, are read anew.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import random
import runpy
import select
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO, Any, NoReturn, Protocol

from coordination import failpoint

SLUICE = Path(sys.executable).with_name("sluice")
_ROOT = Path(__file__).parents[1]
_IMPORTED = (
    "cli.main",
    "cli.commands.configured",
    "cli.commands.table",
    "node.process",
    "processor.processor",
    "owner.owner",
)
_MOST_BYTES = 1 << 20


class Process(Protocol):
    """What a `subprocess.Popen` has, too."""

    pid: int

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...

    def send_signal(self, number: int) -> None: ...

    def kill(self) -> None: ...


def start(
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    stdin: IO[Any] | None = None,
    stdout: IO[Any] | None = None,
    stderr: IO[Any] | None = None,
) -> Process:
    """`command`: `sluice` or the path of a Python script, and its arguments. A stream that is not given is this process's own."""
    streams = [own if given is None else given.fileno() for own, given in enumerate((stdin, stdout, stderr))]
    return _zygote().fork(command, environment, streams)


def run(
    command: Sequence[str], environment: Mapping[str, str], input: str, timeout: float
) -> subprocess.CompletedProcess[str]:
    with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        stdin.write(input.encode())
        stdin.seek(0)
        process = start(command, environment, stdin=stdin, stdout=stdout, stderr=stderr)
        try:
            code = process.wait(timeout)
        finally:
            if process.poll() is None:
                process.kill()
        stdout.seek(0)
        stderr.seek(0)
        return subprocess.CompletedProcess(list(command), code, stdout.read().decode(), stderr.read().decode())


class _Forked:
    """`ended`: the exit code arrives there."""

    def __init__(self, pid: int, ended: socket.socket) -> None:
        self.pid = pid
        self._ended = ended
        self._code: int | None = None

    def poll(self) -> int | None:
        if self._code is None and select.select([self._ended], [], [], 0)[0]:
            self._code = _number(self._ended)
            self._ended.close()
        return self._code

    def wait(self, timeout: float | None = None) -> int:
        if self._code is None:
            select.select([self._ended], [], [], timeout)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired([str(self.pid)], timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class _Zygote:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.zygote", str(theirs.fileno())],
                cwd=_ROOT,
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )

    def fork(self, command: Sequence[str], environment: Mapping[str, str], streams: Sequence[int]) -> _Forked:
        ours, theirs = socket.socketpair()
        request = json.dumps({"command": list(command), "environment": dict(environment), "directory": str(Path.cwd())})
        with self._lock, theirs:
            socket.send_fds(self._requests, [request.encode()], [*streams, theirs.fileno()])
            return _Forked(_number(self._requests), ours)


def _number(connection: socket.socket) -> int:
    if not (text := connection.recv(16)):
        raise RuntimeError("the process from which tests fork others has died: see what it wrote to standard error")
    return int(text)


@cache
def _zygote() -> _Zygote:
    return _Zygote()


def _serve(requests: socket.socket) -> Callable[[], object]:
    """Returns in each forked process, with what that process is to do. Has no threads: these would be missing after a fork."""
    running: dict[int, tuple[int, int]] = {}
    with selectors.DefaultSelector() as selector:
        selector.register(requests, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is requests:
                    text, handles, _, _ = socket.recv_fds(requests, _MOST_BYTES, 4)
                    if not text:
                        _leave([pid for pid, _ in running.values()])
                    pid = os.fork()
                    if pid == 0:
                        requests.close()
                        for watched, (_, ended) in running.items():
                            os.close(watched)
                            os.close(ended)
                        return _become(json.loads(text), handles)
                    for handle in handles[:3]:
                        os.close(handle)
                    watched = os.pidfd_open(pid)
                    running[watched] = pid, handles[3]
                    selector.register(watched, selectors.EVENT_READ)
                    try:
                        requests.send(str(pid).encode())
                    except OSError:
                        _leave([pid for pid, _ in running.values()])
                else:
                    selector.unregister(key.fd)
                    pid, ended = running.pop(key.fd)
                    os.close(key.fd)
                    _, status = os.waitpid(pid, 0)
                    os.write(ended, str(os.waitstatus_to_exitcode(status)).encode())
                    os.close(ended)


def _leave(running: Sequence[int]) -> NoReturn:
    """The tests have ended, however: by `kill -9`, too."""
    for pid in running:
        os.kill(pid, signal.SIGKILL)
    os._exit(0)


def _become(request: Mapping[str, Any], handles: Sequence[int]) -> Callable[[], object]:
    for stream, handle in enumerate(handles[:3]):
        os.dup2(handle, stream)
    for handle in handles:
        os.close(handle)
    os.environ.clear()
    os.environ.update(request["environment"])
    importlib.reload(failpoint)
    os.chdir(request["directory"])
    random.seed()
    program, *_ = sys.argv = request["command"]
    if program == str(SLUICE):
        return lambda: sys.exit(importlib.import_module("cli.main").main())
    return lambda: runpy.run_path(program, run_name="__main__")


def _end(work: Callable[[], object]) -> NoReturn:
    """Ends as the interpreter does, but leaves the memory as it is: to take it apart would copy what all forked processes share."""
    code = 1
    try:
        work()
        code = 0
    except SystemExit as done:
        code = done.code if isinstance(done.code, int) else int(done.code is not None)
        if isinstance(done.code, str):
            sys.stderr.write(f"{done.code}\n")
    except BaseException:  # noqa: BLE001  # the edge of a process
        traceback.print_exc()
    finally:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    for name in _IMPORTED:
        importlib.import_module(name)
    gc.freeze()
    _end(_serve(socket.socket(fileno=int(sys.argv[1]))))
