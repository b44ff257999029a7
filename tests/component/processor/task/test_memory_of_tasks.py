"""A worker's memory is bounded by the bytes in flight, not by the size of a window."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.workload import Workload
from changefeed.position import Window
from devstack.mongodb.server import Client

_MOST_BYTES = 512 << 20
_LARGE = 16 * 1024 * 1024 - 4096


@pytest.fixture
def sides(etcd_endpoint: str, source_uri: str, target_uri: str, database: str, target_client: Client) -> list[str]:
    """The target database is dropped after the test."""
    return [etcd_endpoint, source_uri, target_uri, database]


def largest(way: str, sides: list[str], window: Window) -> tuple[int, int]:
    script = Path(__file__).with_name("task_memory.py")
    root = str(Path(__file__).parents[4])
    done = subprocess.run(
        [sys.executable, str(script), way, *sides, str(window.start), str(window.end)],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": root},
    )
    assert done.returncode == 0, done.stderr
    applied, size = map(int, done.stdout.split()[-2:])
    return applied, size


def test_a_window_of_many_events(sides: list[str], source_client: Client, database: str) -> None:
    """The window holds 40 MB, which would be 400 MB as objects."""
    workload = Workload(events=100_000, tables=20, database=database)
    workload.prepare(source_client)
    applied, size = largest("narrow", sides, workload.insert(source_client))
    assert applied == 100_000
    assert size < _MOST_BYTES


@pytest.mark.soak
def test_a_window_of_documents_of_16_mb(sides: list[str], source_client: Client, database: str) -> None:
    workload = Workload(events=24, database=database, document_bytes=_LARGE, batch=1)
    workload.prepare(source_client)
    window = workload.insert(source_client)
    for way in ("narrow", "wide"):
        applied, size = largest(way, sides, window)
        assert applied == 24
        assert size < _MOST_BYTES, way
