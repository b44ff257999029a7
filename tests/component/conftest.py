"""Fixtures for tests of readers that make a MongoDB from messages, and of sharded clusters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from devstack.mongodb.server import Client
from devstack.sharded.cluster import ShardedCluster
from devstack.sharded.ddl import ClusterDdl
from sink.messages import replica
from sink.messages.replica_place import COLLECTION
from tests.component.sink.killed_reader import MORTAL, Death


@pytest.fixture(scope="session")
def standing_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShardedCluster]:
    directory: Path = tmp_path_factory.mktemp("sharded")
    with ShardedCluster(directory / "data", directory / "log") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def cluster(standing_cluster: ShardedCluster) -> Iterator[ShardedCluster]:
    """Config servers and two shards, lent to one module after another; empty each time. A module that stops servers or adds shards has its own."""
    yield standing_cluster
    with standing_cluster.router() as router:
        for database in router.known_by_config("databases", {}):
            ClusterDdl(router).drop_database(database["_id"])


@pytest.fixture
def death(monkeypatch: pytest.MonkeyPatch) -> Death:
    death = Death()
    for kind, name in MORTAL:
        death.watches(monkeypatch, kind, name)
    monkeypatch.setattr(replica, "_ROWS", 3)
    return death


@pytest.fixture
def emptied(target_client: Client) -> Iterator[Callable[[], None]]:
    def empty() -> None:
        target_client.drop_database("shop")
        target_client[COLLECTION[0]][COLLECTION[1]].delete_many({})

    empty()
    yield empty
    empty()
