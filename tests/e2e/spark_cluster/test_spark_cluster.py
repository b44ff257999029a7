"""A changefeed runs on a real Spark cluster, and loses executors, a machine that stands still, its driver, and a worker.

Rows of all kinds and DDL are written all the time; after each accident the target is equal to the source.
"""

from __future__ import annotations

from collections.abc import Iterator

import psutil
import pytest

from devstack.mongodb.server import Client
from tests.e2e.spark_cluster.clustered_nodes import FEED, ClusteredNodes

pytestmark = pytest.mark.costly("starts a master and two workers of Spark, and a node with its driver")


@pytest.fixture(scope="module")
def running(
    etcd_endpoint: str,
    source_uri: str,
    target_uri: str,
    source_client: Client,
    target_client: Client,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[ClusteredNodes]:
    uris = (source_uri, target_uri)
    with ClusteredNodes(etcd_endpoint, source_client, target_client, uris, tmp_path_factory.mktemp("sc")) as nodes:
        nodes.create()
        yield nodes


def test_a_changefeed_is_copied_and_followed_through_executors_on_two_workers(running: ClusteredNodes) -> None:
    with running.load():
        running.until_replicated()
        for worker in running.spark.workers:
            [executor] = worker.executors
            running.until(executor.children, f"a task on {worker.name}")
    assert "identical" in running.sluice("verify", FEED)


@pytest.mark.soak
def test_an_executor_killed_in_a_window_costs_that_window_alone(running: ClusteredNodes) -> None:
    with running.load():
        running.until_replicated()
        with running.held("rows_due", "insert") as held:
            pid = held.worker()
            running.executor_of(pid).kill()
            running.until(lambda: not psutil.pid_exists(pid), "the end of a worker whose executor is gone")


@pytest.mark.soak
def test_a_worker_frozen_past_its_permit_and_woken_writes_nothing(running: ClusteredNodes) -> None:
    """It is about to insert a row that is deleted before it wakes up: its write would bring the row back."""
    with running.held("rows_due", "insert") as held:
        running.write("gone")
        pid = held.worker()
        worker = running.worker_of(pid)
        frozen = worker.freeze()
    running.until(lambda: running.arrived("gone"), "the row through another executor")
    running.delete("gone")
    running.until(lambda: not running.arrived("gone"), "its deletion")
    with running.held("task_fenced") as fenced:
        psutil.Process(pid).resume()
        running.until(lambda: pid in fenced.workers(), "the refusal of what the woken worker wants to write")
        worker.thaw(frozen)
    running.until(lambda: not psutil.pid_exists(pid), "the end of the woken worker")
    assert not running.arrived("gone")
    with running.load():
        running.until_replicated()


@pytest.mark.soak
def test_another_node_continues_when_the_driver_is_killed(running: ClusteredNodes) -> None:
    with running.load():
        running.nodes["n2"].start()
        running.until_replicated()
        running.nodes["n1"].kill()
        running.until(lambda: len(running.spark.master.applications()) == 1, "the end of its application")


@pytest.mark.soak
def test_a_worker_that_is_added_takes_the_place_of_all_others(running: ClusteredNodes) -> None:
    lost = list(running.spark.workers)
    with running.load():
        running.until_replicated()
        added = running.spark.add_worker()
        for worker in lost:
            worker.kill()
        running.until_replicated()
        assert any(executor.children() for executor in added.executors)
