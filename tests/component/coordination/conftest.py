"""etcd clients for a test, and operations on etcd that the product never does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest
from etcd3 import etcdrpc as rpc

from coordination.etcd.client import EtcdClient
from coordination.etcd.protocol import EtcdConfig
from devstack.etcd.server import EtcdServer
from tests.until import PATIENCE_SECONDS, until

Connect = Callable[[str], EtcdClient]


@pytest.fixture
def connect() -> Iterator[Connect]:
    clients: list[EtcdClient] = []

    def to(*endpoints: str) -> EtcdClient:
        clients.append(EtcdClient(EtcdConfig(endpoints=endpoints)))
        return clients[-1]

    yield to
    for client in clients:
        client.close()


@pytest.fixture
def compact() -> Callable[[str, int], None]:
    def at(endpoint: str, revision: int) -> None:
        with grpc.insecure_channel(endpoint) as channel:
            rpc.KVStub(channel).Compact(rpc.CompactionRequest(revision=revision), timeout=PATIENCE_SECONDS)

    return at


@pytest.fixture
def freeze() -> Iterator[Callable[[EtcdServer], None]]:
    """Stops every thread of an etcd, and waits for it (`pause` only sends the signal). The end of the test resumes the etcd."""
    frozen: list[EtcdServer] = []

    def now(etcd: EtcdServer) -> None:
        frozen.append(etcd)
        etcd.pause()
        tasks = Path(f"/proc/{etcd.pid}/task")
        until(lambda: all(_stopped(task) for task in tasks.iterdir()))

    yield now
    for etcd in frozen:
        etcd.resume()


def _stopped(task: Path) -> bool:
    return (task / "stat").read_text().rpartition(")")[2].split()[0] == "T"
