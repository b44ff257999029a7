"""What cannot end by itself is ended by a cancel: Spark kills its Python worker, and the driver does not wait for it."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
import pytest

from changefeed.documents.row_key import KeyRange
from changefeed.errors import PipelineUnavailable
from coordination import failpoint
from devstack.mongodb.server import Client
from processor.copy.steps import CopyChunk, Prepare
from processor.spark.pipeline import SharedContext
from processor.spark.runner import Group, SparkRunner
from processor.spark.settings import SparkSettings
from tests.component.processor.spark.held_workers import HeldWorkers
from tests.component.processor.spark.staying_lane import StayingLane
from tests.component.processor.windowing import Windowing
from tests.until import PATIENCE_SECONDS, until


@pytest.fixture(scope="module")
def holds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("holds")
    for point in ("window_read", "chunk_loaded"):
        (directory / point).mkdir()
    return directory


@pytest.fixture(scope="module")
def spark(holds: Path) -> Iterator[SparkRunner]:
    points = f"window_read=hold:{holds} chunk_loaded=hold:{holds}"
    options = {f"spark.executorEnv.{failpoint.VARIABLE}": points}
    with SparkRunner(SparkSettings(master="local[2]", options=options)) as runner:
        runner.run_one(Group("test", "warm"), int)
        yield runner


@pytest.fixture
def lane(
    spark: SparkRunner,
    etcd_endpoint: str,
    source_uri: str,
    target_uri: str,
    source_client: Client,
    target_client: Client,
    database: str,
) -> Iterator[StayingLane]:
    for client, name in ((source_client, database), (target_client, f"{database}_to")):
        client[name].create_collection("orders")
    windowing = Windowing(etcd_endpoint, source_uri, target_uri, source_client, target_client, database)
    made = StayingLane(spark, windowing, follows=30.0, idle=20.0, longest=300.0)
    yield made
    made.close()
    target_client.drop_database(f"{database}_to")


@dataclass(frozen=True)
class Spinning:
    """Holds the interpreter for ever, as no code of ours may."""

    said: str

    def __call__(self) -> None:
        Path(self.said).write_text(f"{os.getpid()}\n", encoding="ascii")
        re.search("^(a+)+$", "a" * 44 + "b")


def _killed(begin: Callable[[], object], worker: Callable[[], int], cancel: Callable[[], None]) -> None:
    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(begin)
        held = psutil.Process(worker())
        cancel()
        with pytest.raises(PipelineUnavailable):
            running.result(PATIENCE_SECONDS)
        until(lambda: not held.is_running(), "the end of the worker")


def test_a_worker_that_holds_the_interpreter_is_killed_and_its_core_is_free(spark: SparkRunner, tmp_path: Path) -> None:
    group, said = Group("test", "spinning"), tmp_path / "said"

    def worker() -> int:
        until(lambda: said.exists() and said.read_text(encoding="ascii").endswith("\n"), "its process id")
        return int(said.read_text(encoding="ascii"))

    _killed(lambda: spark.run_one(group, Spinning(str(said))), worker, lambda: spark.cancel(group))
    assert spark.run_one(Group("test", "after"), int) == 0


def test_a_held_window_that_is_cancelled_loses_its_worker_and_is_replayed(lane: StayingLane, holds: Path) -> None:
    lane.step()
    lane.write(10)
    spec = lane.spec()
    with HeldWorkers(holds, "window_read", "windowing") as held:
        _killed(lambda: lane.begun(spec).result(), held.worker, lambda: lane.pipeline.cancel(lane.shared, spec.attempt))
    lane.attempt = f"{lane.windowing.attempt}/1"
    lane.succeed(lane.spec(again=spec.job.window.start))
    assert lane.windowing.differences() == []


def test_a_held_copy_that_is_cancelled_loses_its_worker_and_others_go_on(lane: StayingLane, holds: Path) -> None:
    lane.write(10)
    windowing = lane.windowing
    shared = SharedContext(windowing.shared.context)
    table = next(iter(windowing.shared.context.tables))
    schema = windowing.shared.context.schemas.at(table, windowing.start)
    assert schema is not None
    schema = replace(schema, valid_from=windowing.start)
    chunk = CopyChunk(
        schema=schema,
        range=KeyRange(),
        whole=True,
        not_before=windowing.now(),
        copied_from=windowing.start,
        divide_after=None,
    )
    attempt, other = f"{windowing.attempt}/7", f"{windowing.attempt}/8"
    done = threading.Event()

    def others_go_on() -> None:
        [answer] = lane.pipeline.copy(shared, [Prepare(schema=schema, ours=True)], other)
        done.set()
        assert answer is not None
        lane.pipeline.cancel(shared, attempt)

    with HeldWorkers(holds, "chunk_loaded", windowing.database) as held:
        _killed(lambda: lane.pipeline.copy(shared, [chunk], attempt), held.worker, others_go_on)
    assert done.is_set()
    [copied] = lane.pipeline.copy(shared, [chunk], f"{windowing.attempt}/9")
    assert copied is not None
    assert lane.arrived() == 10
