"""Windows in long-lived tasks of a real Spark between real servers, and how these tasks end."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from changefeed.errors import PipelineUnavailable
from coordination import failpoint
from coordination.etcd.client import EtcdClient
from coordination.etcd.protocol import Put
from devstack.mongodb.server import Client
from processor.spark.runner import Group, SparkRunner
from processor.spark.settings import SparkSettings
from processor.task.job import JobSpec
from tests.component.processor.spark.held_workers import HeldWorkers
from tests.component.processor.spark.staying_lane import StayingLane
from tests.component.processor.windowing import Windowing
from tests.until import PATIENCE_SECONDS, until


@pytest.fixture(scope="module")
def holds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory whose files hold the workers. A file's path is the name of a point and of a changefeed."""
    directory = tmp_path_factory.mktemp("holds")
    for point in ("window_read", "window_applied"):
        (directory / point).mkdir()
    return directory


@pytest.fixture(scope="module")
def spark(holds: Path) -> Iterator[SparkRunner]:
    points = f"window_read=hold:{holds} window_applied=hold:{holds}"
    options = {f"spark.executorEnv.{failpoint.VARIABLE}": points}
    with SparkRunner(SparkSettings(master="local[2]", options=options)) as runner:
        runner.run_one(Group("test", "warm"), int)
        yield runner


def test_what_a_worker_is_forked_with_is_no_garbage_to_be_looked_for(spark: SparkRunner) -> None:
    """PySpark collects after each task."""
    assert spark.run_one(Group("test", "garbage"), gc.get_freeze_count) > 50_000


@pytest.fixture
def windowing(
    etcd_endpoint: str, source_uri: str, target_uri: str, source_client: Client, target_client: Client, database: str
) -> Iterator[Windowing]:
    for client, name in ((source_client, database), (target_client, f"{database}_to")):
        client[name].create_collection("orders")
    yield Windowing(etcd_endpoint, source_uri, target_uri, source_client, target_client, database)
    target_client.drop_database(f"{database}_to")


@pytest.fixture
def lane(spark: SparkRunner, windowing: Windowing) -> Iterator[StayingLane]:
    made = StayingLane(spark, windowing, follows=30.0, idle=20.0, longest=300.0)
    yield made
    made.close()


@pytest.fixture
def patient(spark: SparkRunner, windowing: Windowing) -> Iterator[StayingLane]:
    """Its stay leaves its slot only when it is asked to."""
    made = StayingLane(spark, windowing, follows=30.0, idle=3600.0, longest=3600.0)
    yield made
    made.close()


def test_windows_through_a_task_that_stays_give_what_jobs_give(lane: StayingLane) -> None:
    table = lane.windowing.source[lane.windowing.database]["orders"]
    for number in range(40):
        lane.write()
        table.update_one({"_id": number}, {"$set": {"n": number}})
        table.delete_one({"_id": number - 5})
        lane.succeed(lane.spec())
    assert len(lane.jobs) == 1
    assert lane.windowing.differences() == []


@pytest.mark.parametrize("point", ["window_read", "window_applied"])
def test_a_worker_killed_in_a_window_loses_it_and_its_next_attempt_replays_it(
    lane: StayingLane, holds: Path, point: str
) -> None:
    for _ in range(3):
        lane.step()
    lane.write(10)
    with HeldWorkers(holds, point, "windowing") as held:
        spec = lane.spec()
        running = lane.begun(spec)
        os.kill(held.worker(), signal.SIGKILL)
        with pytest.raises(PipelineUnavailable):
            running.result(PATIENCE_SECONDS)
    lane.attempt = f"{lane.windowing.attempt}/1"
    lane.succeed(lane.spec(again=spec.job.window.start))
    lane.step()
    assert lane.windowing.differences() == []
    assert len(lane.jobs) == 2


def test_a_channel_cut_in_a_window_ends_what_its_task_writes(lane: StayingLane, holds: Path) -> None:
    """The driver does not wait for the task. The task resumes later and detects the cut before it writes."""
    spec = _lost(lane, holds, lambda spec: lane.stays._running[spec.attempt].hang_up())
    lane.attempt = f"{lane.windowing.attempt}/1"
    lane.succeed(lane.spec(again=spec.job.window.start))
    assert lane.windowing.differences() == []


def test_a_cancelled_window_is_lost_at_once_and_writes_nothing(lane: StayingLane, holds: Path) -> None:
    _lost(lane, holds, lambda spec: lane.pipeline.cancel(lane.shared, spec.attempt))


def _lost(lane: StayingLane, holds: Path, lose: Callable[[JobSpec], None]) -> JobSpec:
    """Loses a window after its task has read it, and checks that the task writes nothing."""
    for _ in range(3):
        lane.step()
    arrived = lane.arrived()
    lane.write(10)
    with HeldWorkers(holds, "window_read", "windowing") as held:
        spec = lane.spec()
        running = lane.begun(spec)
        held.worker()
        lose(spec)
        with pytest.raises(PipelineUnavailable):
            running.result(PATIENCE_SECONDS)
    until(lambda: not lane.jobs_at_work, "the end of the task")
    assert lane.arrived() == arrived
    return spec


def test_a_revoked_attempt_writes_no_window_more_though_its_channel_holds(
    lane: StayingLane, windowing: Windowing
) -> None:
    """As after a driver that lost contact with the task and must hand over: the task checks its permit, not the channel."""
    for _ in range(3):
        lane.step()
    with EtcdClient(windowing.shared.context.fence.etcd) as etcd:
        etcd.txn((), (Put(lane.attempt, b"{}"),))
    time.sleep(2.1)  # after this time on the worker's monotonic clock it checks its permit again
    arrived = lane.arrived()
    lane.write()
    outcome = lane.pipeline.run(lane.shared, lane.spec())
    assert outcome.error is not None
    assert outcome.error.code == "fenced"
    assert lane.arrived() == arrived


def test_a_window_brings_another_context_to_the_task_that_stays(lane: StayingLane) -> None:
    for number in range(3):
        lane.step()
        lane.stand_in(number)
    lane.step()
    assert len(lane.jobs) == 1
    assert lane.windowing.differences() == []


def test_a_context_over_another_base_begins_another_stay(lane: StayingLane) -> None:
    for _ in range(3):
        lane.step()
    lane.stand_in(base_key="another")
    for _ in range(3):
        lane.step()
    assert len(lane.jobs) == 2
    assert lane.windowing.differences() == []
    until(lambda: len(lane.jobs_at_work) == 1, "the end of the first")


def test_who_waits_for_a_slot_gets_it_from_a_task_that_stays(patient: StayingLane, spark: SparkRunner) -> None:
    lane = patient
    for _ in range(3):
        lane.step()
    until(lambda: lane.jobs_at_work, "a stay")
    with lane.stays.beside(2), ThreadPoolExecutor(2) as threads:
        both = threading.Barrier(2)
        copies = [threads.submit(_together, spark, both, number) for number in range(2)]
        for copy in copies:
            copy.result(PATIENCE_SECONDS)
        lane.step()
        until(lambda: not lane.jobs_at_work, "the end of a window that is a job")
    lane.step()
    until(lambda: lane.jobs_at_work, "a stay once more")


def _together(spark: SparkRunner, both: threading.Barrier, number: int) -> None:
    both.wait()
    spark.run_one(Group("copies", str(number)), _short)


def _short() -> None:
    time.sleep(0.5)


def test_an_idle_stay_and_a_long_one_leave(spark: SparkRunner, windowing: Windowing) -> None:
    lane = StayingLane(spark, windowing, follows=30.0, idle=1.0, longest=4.0)
    try:
        for _ in range(3):
            lane.step()
        until(lambda: not lane.jobs_at_work, "the end of an idle stay")
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(lane.jobs) < 3:
            lane.step()
            assert time.monotonic() < deadline
        assert lane.windowing.differences() == []
    finally:
        lane.close()


def test_a_task_that_cannot_reach_its_driver_leaves_its_window_to_a_job(
    spark: SparkRunner, windowing: Windowing
) -> None:
    lane = StayingLane(spark, windowing, follows=30.0)
    try:
        lane.step()
        lane.step()
        lane.stays._switchboard.close()  # type: ignore[union-attr]
        lane.stand_in(base_key="another")
        for _ in range(3):
            lane.step()
        assert lane.windowing.differences() == []
        assert len(lane.jobs) == 2, "it is not tried again at each window"
    finally:
        lane.close()


def test_a_context_that_the_task_cannot_use_is_an_error_of_the_window(lane: StayingLane) -> None:
    for _ in range(3):
        lane.step()
    context = lane.windowing.shared.context
    lane.stand_in(fence=replace(context.fence, run=2))
    lane.write()
    outcome = lane.pipeline.run(lane.shared, lane.spec())
    assert outcome.error is not None
    assert outcome.error.code == "fenced"


@pytest.mark.soak
def test_the_memory_of_a_worker_stays_flat_over_thousands_of_windows(lane: StayingLane, holds: Path) -> None:
    """Caches and the allocator's pools grow for some hundred windows."""
    lane.step(5)
    lane.step(5)
    with HeldWorkers(holds, "window_applied", "windowing") as held:
        lane.write()
        running = lane.begun(lane.spec())
        worker = psutil.Process(held.worker())
    assert running.result(PATIENCE_SECONDS).error is None
    for _ in range(500):
        lane.step()
    before = worker.memory_info().rss
    for _ in range(2_500):
        lane.step()
    assert worker.memory_info().rss - before < 4 << 20
    assert len(lane.jobs) == 1
