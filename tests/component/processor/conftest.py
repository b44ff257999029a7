"""A cluster of real owners and real processors over real etcd, a source and a target."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from devstack.mongodb import Client
from tests.component.owner.conftest import Cluster

_PROCESS = Path(__file__).with_name("processor_process.py")


class ReplicatingCluster(Cluster):
    """Processors are processes of their own, so that they can be killed and frozen."""

    def __init__(self, endpoint: str, source_uri: str, target_uri: str, source: Client, target: Client) -> None:
        super().__init__(endpoint, source_uri, target_uri, source, target)
        self.processors: dict[str, subprocess.Popen[bytes]] = {}

    def start_processor(self, name: str, *, ttl: float = 5.0) -> subprocess.Popen[bytes]:
        command = [sys.executable, str(_PROCESS), name, self.endpoint, self.layout.cluster, str(ttl)]
        self.processors[name] = subprocess.Popen(command)
        return self.processors[name]

    def close(self) -> None:
        for process in self.processors.values():
            process.kill()
            process.wait()
        super().close()


@pytest.fixture
def cluster(
    etcd_endpoint: str, source_uri: str, target_uri: str, source_client: Client, target_client: Client
) -> Iterator[ReplicatingCluster]:
    made = ReplicatingCluster(etcd_endpoint, source_uri, target_uri, source_client, target_client)
    yield made
    made.close()
