"""Running a baseline in a process of its own, so that its figures can stand beside ours."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.usage import Usage
from bench.workload import DATABASE
from changefeed.cluster_time import ClusterTime

_ROOT = Path(__file__).parents[1]


def replicate_naively(
    source_uri: str, target_uri: str, *, start_ts: ClusterTime, events: int, database: str = DATABASE
) -> Usage:
    """Time, CPU and memory of replicating so many events."""
    options = ["--from", str(start_ts), "--database", database, "--events", str(events)]
    return _run("bench.naive_replicator", [source_uri, target_uri, *options])


def copy_naively(source_uri: str, target_uri: str, *, database: str, tables: Sequence[str]) -> Usage:
    return _run("bench.naive_copy", [source_uri, target_uri, database, *tables])


def _run(module: str, arguments: Sequence[str]) -> Usage:
    """From when it has started: what an interpreter's start costs says nothing about replication."""
    command = [sys.executable, "-m", module, *arguments]
    process = subprocess.Popen(command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        with Usage(naive=process.pid) as usage:
            process.stdin.close()
            _wait_without_reaping(process)
    finally:
        code = process.wait()
    if code != 0:
        raise RuntimeError(f"{module} ended with code {code}")
    return usage


def wait_for_start() -> None:
    """In the baseline's process: says that it is ready, and begins when it is told to."""
    print("ready", flush=True)
    sys.stdin.read()


def _wait_without_reaping(process: subprocess.Popen[bytes]) -> None:
    """Its CPU time can be read until it is reaped."""
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
