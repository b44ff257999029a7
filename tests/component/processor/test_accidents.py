"""Processors are killed, frozen and drained, servers restart. Afterwards both sides are equal and no false error is reported."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from functools import partial

import pytest

from changefeed.lifecycle import State
from changefeed.records.requests import ChangefeedId
from devstack.mongodb.server import Client, MongoDB
from tests.component.processor.conftest import ReplicatingCluster
from tests.component.processor.workload import Beside, write
from tests.until import PATIENCE_SECONDS

_TABLES = ["a", "b", "c"]


def _begun(cluster: ReplicatingCluster, database: str) -> ChangefeedId:
    """Creates the tables after the changefeed's start: a start at now requires that the target already has earlier tables."""
    cluster.start_owner("o1")
    feed = cluster.create("f", database)
    cluster.until(lambda: cluster.began(feed), "the beginning")
    for table in _TABLES:
        cluster.source[database].create_collection(table)
    cluster.source[database]["b"].create_index("u", unique=True, sparse=True)
    return feed


def _replicating(cluster: ReplicatingCluster, database: str) -> None:
    """Waits until Spark has started and rows arrive."""
    cluster.source[database]["a"].insert_one({"_id": "first"})
    cluster.until(lambda: _arrived(cluster, database), "the first row")


def _arrived(cluster: ReplicatingCluster, database: str) -> int:
    return sum(cluster.target[f"{database}_to"][table].count_documents({}) for table in _TABLES)


def _healthy(cluster: ReplicatingCluster, feed: ChangefeedId) -> None:
    status = cluster.status(feed)
    assert status is not None
    assert status.lifecycle.state is State.NORMAL, status.lifecycle.error


@pytest.mark.parametrize("operations", [6_000, 50_000])
@pytest.mark.soak
def test_a_processor_killed_during_a_burst_is_followed_by_another_to_equality(
    cluster: ReplicatingCluster, database: str, operations: int
) -> None:
    feed = _begun(cluster, database)
    first = cluster.start_processor("p1", ttl=5)
    _replicating(cluster, database)
    killed = threading.Event()

    def burst() -> None:
        """Writes its second half after the kill, however slow the processor is."""
        write(cluster.source, database, _TABLES, operations // 2, seed=1)
        assert killed.wait(PATIENCE_SECONDS)
        write(cluster.source, database, _TABLES, operations // 2, seed=2)

    with Beside(burst):
        cluster.until(lambda: _arrived(cluster, database) > 100, "some rows")
        first.kill()
        first.wait()
        killed.set()
        cluster.start_processor("p2", ttl=5)
    cluster.equal(database, within=150 + operations / 100)
    _healthy(cluster, feed)


def test_a_processor_frozen_past_its_lease_writes_nothing_more_and_another_takes_over(
    cluster: ReplicatingCluster, database: str
) -> None:
    """Only its Python process is frozen; the JVM and the workers continue until their permits end."""
    feed = _begun(cluster, database)
    first = cluster.start_processor("p1", ttl=3)
    _replicating(cluster, database)
    with Beside(partial(write, cluster.source, database, _TABLES, 6_000)):
        cluster.until(lambda: _arrived(cluster, database) > 100, "some rows")
        first.send_signal(signal.SIGSTOP)
        cluster.start_processor("p2", ttl=5)
        cluster.until(lambda: not cluster.nodes("p1"), "the end of the lease")
    cluster.equal(database)
    first.send_signal(signal.SIGCONT)
    cluster.source[database]["a"].insert_one({"_id": "afterwards"})
    cluster.equal(database)
    _healthy(cluster, feed)


@pytest.mark.soak
def test_a_drained_processor_hands_all_its_tables_over(cluster: ReplicatingCluster, database: str) -> None:
    feed = _begun(cluster, database)
    cluster.start_processor("p1")
    _replicating(cluster, database)
    with Beside(partial(write, cluster.source, database, _TABLES, 6_000)):
        cluster.until(lambda: _arrived(cluster, database) > 100, "some rows")
        cluster.start_processor("p2")
        heir = cluster.node("p2")
        cluster.drain("p1")
        cluster.until(lambda: set(cluster.assigned(feed).values()) == {heir}, "the hand-over")
    cluster.equal(database)
    _healthy(cluster, feed)


def test_source_and_target_may_restart(
    cluster: ReplicatingCluster, database: str, own_mongodb: Callable[..., MongoDB]
) -> None:
    servers = [own_mongodb("source"), own_mongodb("target")]
    with Client(servers[0].uri) as source, Client(servers[1].uri) as target:
        cluster.source, cluster.target = source, target
        source[database].create_collection("a")
        cluster.start_owner("o1")
        cluster.start_processor("p1")
        feed = cluster.create("f", database, source=servers[0].uri, sink=servers[1].uri)
        cluster.until(lambda: cluster.began(feed), "the beginning")
        for number, server in enumerate(reversed(servers)):
            source[database]["a"].insert_one({"_id": f"before {number}"})
            cluster.equal(database)
            server.kill()
            server.start()
            cluster.until(lambda: source[database]["a"].insert_one({}), "the source")
            cluster.equal(database)
        cluster.until(lambda: _normal(cluster, feed), "normal again")


def _normal(cluster: ReplicatingCluster, feed: ChangefeedId) -> bool:
    status = cluster.status(feed)
    return status is not None and status.lifecycle.state is State.NORMAL
