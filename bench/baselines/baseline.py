"""`replicate_naively`, `send_at_the_floor`, `copy_naively`: run a baseline in a process of its own, to compare its figures with ours."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.usage import Usage
from bench.workload import DATABASE
from changefeed.cluster_time import ClusterTime
from changefeed.position import Window
from devstack.stack import DevStack

_ROOT = Path(__file__).parents[2]


def replicate_naively(
    stack: DevStack, *, start_ts: ClusterTime, events: int, database: str = DATABASE, target: str = ""
) -> Usage:
    """The cost of so many events for the replicator and both servers. `target`: another one, such as a directory."""
    options = ["--from", str(start_ts), "--database", database, "--events", str(events)]
    return _run(stack, "bench.baselines.naive_replicator", [stack.source_uri, target or stack.target_uri, *options])


def send_at_the_floor(stack: DevStack, window: Window, commands: Path) -> Usage:
    """The cost of reading a window, and of the commands that the product sent for it."""
    return _run(
        stack,
        "bench.baselines.floor",
        [*_floor(stack, window), "--target", stack.target_uri, "--commands", str(commands)],
    )


def read_at_the_floor(stack: DevStack, window: Window) -> Usage:
    """The cost of reading a window with any content."""
    return _run(stack, "bench.baselines.floor", _floor(stack, window))


def copy_naively(stack: DevStack, *, database: str, tables: Sequence[str], only: str = "") -> Usage:
    """`only`: "read" or "write"."""
    options = ["--only", only] if only else []
    return _run(stack, "bench.baselines.naive_copy", [*options, stack.source_uri, stack.target_uri, database, *tables])


def server_pids(stack: DevStack) -> dict[str, int]:
    """The process ids of the servers that this stack started."""
    sides = (("source", stack.source), ("target", stack.target))
    return {name: server.pid for name, server in sides if not isinstance(server, str)}


def _floor(stack: DevStack, window: Window) -> list[str]:
    return [stack.source_uri, "--from", str(window.start.ts), "--to", str(window.end.ts)]


def _run(stack: DevStack, module: str, arguments: Sequence[str]) -> Usage:
    """Measures from the moment when the process is ready to when it is done: the interpreter takes long to start, and the driver's client half
    a second to close.
    """
    command = [sys.executable, "-m", module, *arguments]
    process = subprocess.Popen(command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        with Usage({"itself": process.pid, **server_pids(stack)}) as usage:
            process.stdin.close()
            process.stdout.readline()
    finally:
        code = process.wait()
    if code != 0:
        raise RuntimeError(f"{module} ended with code {code}")
    return usage


def wait_for_start() -> None:
    """Called in the baseline's process: reports that it is ready, and waits for the signal to start."""
    print("ready", flush=True)
    sys.stdin.read()


def say_done() -> None:
    """Called in the baseline's process."""
    print("done", flush=True)
