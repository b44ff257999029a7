"""Owners in processes of their own, on a real etcd: killed, frozen past their lease, resigning."""

from __future__ import annotations

import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from changefeed.records.node import NodeId
from coordination.election import Candidate
from coordination.etcd.client import EtcdClient
from coordination.layout import Layout
from tests.until import PATIENCE_SECONDS, until

TTL = 3.0
_SCRIPT = Path(__file__).with_name("standing_node.py")
_ROOT = Path(__file__).parents[3]


class Node:
    def __init__(self, endpoint: str, cluster: str, name: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(_SCRIPT), endpoint, cluster, name, str(TTL)],
            stdout=subprocess.PIPE,
            text=True,
            env={"PYTHONPATH": str(_ROOT)},
        )
        self._said: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()

    def says(self, start: str, seconds: float = 15.0) -> str:
        """Waits for the next line that begins with `start`, and returns the rest of it."""
        deadline = time.monotonic() + seconds
        while True:
            line = self._said.get(timeout=max(deadline - time.monotonic(), 0.001))
            if line.startswith(start):
                return line.removeprefix(start).strip()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._said.put(line.strip())


@pytest.fixture
def cluster(etcd_prefix: str) -> str:
    return etcd_prefix.strip("/")


@pytest.fixture
def node(etcd_endpoint: str, cluster: str) -> Iterator[Callable[[str], Node]]:
    nodes: list[Node] = []

    def start(name: str) -> Node:
        nodes.append(Node(etcd_endpoint, cluster, name))
        return nodes[-1]

    yield start
    for each in nodes:
        each.process.kill()
        each.process.wait()


@pytest.fixture
def waiting(
    node: Callable[[str], Node],
    connect: Callable[[str], EtcdClient],
    etcd_endpoint: str,
    cluster: str,
) -> tuple[Node, int, Node]:
    """An owner, its epoch, and the next candidate."""
    first = node("first")
    epoch = int(first.says("leading"))
    second = node("second")
    client = connect(etcd_endpoint)
    until(lambda: len(client.range(Layout(cluster).owners).items) == 2)
    return first, epoch, second


def test_the_next_in_line_takes_over_from_a_killed_owner(
    waiting: tuple[Node, int, Node],
) -> None:
    first, epoch, second = waiting
    first.process.kill()
    assert int(second.says("leading")) > epoch


def test_an_owner_frozen_past_its_lease_knows_it_and_writes_nothing_more(
    waiting: tuple[Node, int, Node], connect: Callable[[str], EtcdClient], etcd_endpoint: str, cluster: str
) -> None:
    first, _, second = waiting
    first.process.send_signal(signal.SIGSTOP)
    second.says("leading")
    second.process.kill()
    second.process.wait()
    client, key = connect(etcd_endpoint), f"{Layout(cluster).root}beat"
    before = client.get(key)
    first.process.send_signal(signal.SIGCONT)
    first.says("lost")
    first.says("fenced")
    assert before is not None
    assert client.get(key) == before


def test_the_next_in_line_leads_at_once_when_the_owner_resigns(
    connect: Callable[[str], EtcdClient], etcd_endpoint: str, cluster: str
) -> None:
    client, layout = connect(etcd_endpoint), Layout(cluster)
    one, two = (
        Candidate(client, layout, lease=client.grant(timedelta(seconds=10)).id, node=NodeId(name))
        for name in ("one", "two")
    )
    assert one.campaign(timedelta(0)) is not None
    campaign_over = threading.Event()
    led_after: list[float] = []

    def wait_in_line() -> None:
        assert two.campaign(timedelta(seconds=10)) is not None
        led_after.append(time.monotonic())
        campaign_over.set()

    threading.Thread(target=wait_in_line).start()
    while len(client.range(layout.owners).items) < 2:
        pass
    resigned_at = time.monotonic()
    one.resign()
    assert campaign_over.wait(PATIENCE_SECONDS)
    assert led_after[0] - resigned_at < 1
