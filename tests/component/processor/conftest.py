"""A cluster of real owners and real processors over real etcd, a source and a target."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from changefeed.config.configuration import Configuration
from changefeed.records.node import NodeId, NodeRecord, PositionReport
from changefeed.records.requests import ChangefeedId, DesiredState
from coordination import failpoint
from coordination.etcd.protocol import Put
from coordination.layout import decode, encode
from devstack.mongodb.server import Client
from tests import zygote
from tests.component.owner.conftest import Cluster
from tests.component.processor.scripted_owner import ScriptedOwner
from tests.independent_compare import differences
from tests.joined import join_report
from tests.until import PATIENCE_SECONDS, until

_PROCESS = Path(__file__).with_name("processor_process.py")
_ROOT = str(Path(__file__).parents[3])


class ReplicatingCluster(Cluster):
    """Its processors run in processes of their own, so that tests can kill and freeze them."""

    def __init__(self, endpoint: str, source_uri: str, target_uri: str, source: Client, target: Client) -> None:
        super().__init__(endpoint, source_uri, target_uri, source, target)
        self._source_uri, self._target_uri = source_uri, target_uri
        self.processors: dict[str, zygote.Process] = {}
        self._created: list[ChangefeedId] = []

    def create(self, id: str, *databases: str, **options: Any) -> ChangefeedId:
        self._created.append(super().create(id, *databases, **options))
        return self._created[-1]

    def remove_all(self) -> None:
        """Does not wait."""
        for feed in self._created:
            self.change(feed, DesiredState.REMOVED)
        self._created.clear()

    def start_processor(self, name: str, *, ttl: float = 10.0, failpoints: str = "") -> zygote.Process:
        command = [str(_PROCESS), name, self.endpoint, self.layout.cluster, str(ttl)]
        self.processors[name] = zygote.start(
            command, {**os.environ, "PYTHONPATH": _ROOT, failpoint.VARIABLE: failpoints}
        )
        return self.processors[name]

    def jvm(self, name: str) -> psutil.Process:
        """The Spark driver of a processor."""
        [java] = [child for child in psutil.Process(self.processors[name].pid).children() if child.name() == "java"]
        return java

    def close(self) -> None:
        for process in self.processors.values():
            process.kill()
            process.wait()
        super().close()

    def scripted(self, id: str, database: str, **configuration: Any) -> ScriptedOwner:
        """A changefeed without an owner process, from a database to a database of the same name with `_to` appended."""
        fields = {
            "id": id,
            "source": self._source_uri,
            "sink": self._target_uri,
            "start": "now",
            "filter": {"tables": [f"{database}.*"]},
            "routes": [{"from": f"{database}.*", "to": f"{database}_to.*"}],
        }
        return ScriptedOwner(self.etcd, self.layout, Configuration.parse(fields | configuration), self.source)

    def nodes(self, name: str) -> list[NodeId]:
        """The live sessions of a processor."""
        records = [decode(NodeRecord, kv) for kv in self.etcd.range(self.layout.nodes).items]
        return [record.id for record in records if record.name == name]

    def node(self, name: str) -> NodeId:
        self.until(lambda: self.nodes(name), f"a session of {name}")
        [node] = self.nodes(name)
        return node

    def report(self, id: ChangefeedId, node: NodeId) -> PositionReport | None:
        main = self.etcd.get(self.layout.position(id, node))
        return join_report([main, *self.etcd.range(f"{self.layout.position(id, node)}/").items]) if main else None

    def drain(self, name: str) -> None:
        kv = self.etcd.get(self.layout.node(self.node(name)))
        assert kv is not None
        drained = replace(decode(NodeRecord, kv), draining=True)
        self.etcd.txn((), (Put(kv.key, encode(drained), kv.lease),))

    def differences(self, database: str) -> list[str]:
        return differences(self.source, database, self.target, f"{database}_to")

    def equal(self, database: str, *, within: float = PATIENCE_SECONDS) -> None:
        until(
            lambda: not self.differences(database),
            f"{database} is equal",
            lambda: "\n".join(self.differences(database)),
            within=within,
        )


@pytest.fixture
def cluster(
    etcd_endpoint: str, source_uri: str, target_uri: str, source_client: Client, target_client: Client
) -> Iterator[ReplicatingCluster]:
    made = ReplicatingCluster(etcd_endpoint, source_uri, target_uri, source_client, target_client)
    yield made
    made.close()


@pytest.fixture(scope="session")
def owner_and_processor(
    etcd_endpoint: str, source_uri: str, target_uri: str, source_client: Client, target_client: Client
) -> Iterator[ReplicatingCluster]:
    made = ReplicatingCluster(etcd_endpoint, source_uri, target_uri, source_client, target_client)
    made.start_owner("o1")
    made.start_processor("p1")
    yield made
    made.close()


@pytest.fixture
def standing(owner_and_processor: ReplicatingCluster) -> Iterator[ReplicatingCluster]:
    """One owner and one processor `p1` for all tests that do not stop them. The changefeeds of a test end with it: each has an id of its own."""
    yield owner_and_processor
    owner_and_processor.remove_all()
