"""Spark on a real standalone cluster: what a node learns of executors that are few, missing, forgotten, or without its packages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import structlog

from changefeed.errors import PipelineUnavailable
from credentials import logging
from devstack.mongodb.server import Client
from devstack.spark.cluster import SparkCluster
from processor.spark.runner import Group, SparkRunner
from processor.spark.settings import SparkSettings
from tests.component.processor.spark.staying_lane import StayingLane
from tests.component.processor.windowing import Windowing
from tests.until import until

pytestmark = pytest.mark.soak  # make test has one changefeed through executors (`tests/e2e/spark_cluster`)

_ROOT = Path(__file__).parents[4]
_GROUP = Group("test", "job")
_PATIENCE = timedelta(minutes=1)
_SMALL = {"spark.executor.memory": "512m", f"spark.executorEnv.{logging.VARIABLE}": "json"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """Nothing of it is left at the end, though a part is frozen."""
    directory = tmp_path_factory.mktemp("spark")
    with SparkCluster(directory, workers=1, cores=1, environment={"PYTHONPATH": str(_ROOT)}) as started:
        yield started
        frozen = started.workers[0].freeze()
    assert [process for process in frozen if process.is_running()] == []


@pytest.fixture(scope="module")
def spark(cluster: SparkCluster) -> Iterator[SparkRunner]:
    with SparkRunner(SparkSettings(master=cluster.url, options=_SMALL), patience=_PATIENCE) as runner:
        runner.run_one(_GROUP, int)
        yield runner


def _say() -> None:
    structlog.get_logger().info("task_says", number=7)


def test_a_cluster_with_one_core_has_one_slot_and_its_workers_log_like_their_node(
    spark: SparkRunner, cluster: SparkCluster
) -> None:
    assert spark.slots() == 1
    assert not spark.divides()
    spark.run_one(_GROUP, _say)
    logs = cluster.workers[0].executor_logs
    until(lambda: "task_says" in logs(), "the task's line")
    [said] = [json.loads(line) for line in logs().splitlines() if "task_says" in line]
    assert (said["event"], said["number"]) == ("task_says", 7)


def test_executors_elsewhere_dial_their_driver(
    spark: SparkRunner,
    etcd_endpoint: str,
    source_uri: str,
    target_uri: str,
    source_client: Client,
    target_client: Client,
    database: str,
) -> None:
    """The executor knows its driver's host as Spark chose it: this machine's, not the loopback address, if it has another."""
    for client, name in ((source_client, database), (target_client, f"{database}_to")):
        client[name].create_collection("orders")
    windowing = Windowing(etcd_endpoint, source_uri, target_uri, source_client, target_client, database)
    lane = StayingLane(spark, windowing, follows=60.0, idle=60.0, longest=300.0)
    try:
        for _ in range(10):
            lane.step()
        assert len(lane.jobs) == 1
        assert lane.windowing.differences() == []
    finally:
        lane.close()
        target_client.drop_database(f"{database}_to")


def test_a_python_without_our_packages_is_named(spark: SparkRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        spark._context, "pythonExec", "/usr/bin/python3"
    )  # set from `spark.pyspark.python` at the start
    with pytest.raises(PipelineUnavailable, match=r"a task on \S+ executor 0 failed: ModuleNotFoundError: No module"):
        spark.run_one(_GROUP, int)


def test_an_application_that_its_cluster_has_ended_is_replaced(spark: SparkRunner) -> None:
    context = spark._context
    assert context is not None
    context._jsc.sc().stop()  # as Spark does when the master ends the application
    assert spark.run_one(_GROUP, int) == 0


def test_a_node_that_its_master_has_forgotten_gets_executors_again(spark: SparkRunner, cluster: SparkCluster) -> None:
    """A standalone master that is restarted without recovery knows no application, and ends their executors."""
    cluster.master.kill()
    cluster.master.start()
    until(lambda: spark.slots() == 0, "the end of the executor")
    with pytest.raises(
        PipelineUnavailable, match=r"gave this node no executor within 60 s; check that its workers run"
    ):
        spark.run_one(_GROUP, int)
    assert spark.run_one(_GROUP, int) == 0


def test_a_master_that_cannot_be_reached_is_named(spark: SparkRunner) -> None:
    """Spark gives up after a minute. It is the last test, since a process has one Spark at a time."""
    spark.stop()
    with (
        SparkRunner(SparkSettings(master="spark://127.0.0.1:1")) as nowhere,
        pytest.raises(PipelineUnavailable, match=r"spark://127\.0\.0\.1:1 cannot be reached, or "),
    ):
        nowhere.run_one(_GROUP, int)
