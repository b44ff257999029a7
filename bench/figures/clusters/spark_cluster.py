"""`spark_cluster`: what Spark costs on a standalone cluster: the start of a node's first job, a job, and catching up with one executor and with two.

Master, workers and executors run on the same machine as everything else, so two executors are twice the tasks on the same cores.
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import tempfile
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.product import Product, target_of
from bench.result import Figure
from bench.workload import Workload
from changefeed.position import Window
from devstack.spark.cluster import SparkCluster
from devstack.stack import DevStack
from processor.spark.runner import Group, SparkRunner
from processor.spark.settings import SparkSettings
from source.connection import Client, connect

_EVENTS, _TABLES = 400_000, 4
_WARM_JOBS, _JOBS = 20, 60
_ROOT = Path(__file__).parents[2]
_LOCAL = "local[2]"


@dataclass(frozen=True, slots=True)
class _Jobs:
    first_seconds: float
    """From nothing to the answer of the first job."""
    median_ms: float


def spark_cluster(stack: DevStack) -> list[Figure]:
    path = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH"))))
    with (
        tempfile.TemporaryDirectory() as folder,
        SparkCluster(Path(folder), environment={"PYTHONPATH": path}) as cluster,
        connect(stack.source_uri) as source,
    ):
        local, elsewhere = _jobs(_LOCAL, {}), _jobs(cluster.url, _executors(2))
        workload = Workload(events=_EVENTS, tables=_TABLES, database=f"bench_{uuid.uuid4().hex[:8]}")
        workload.prepare(source)
        window = workload.insert(source)
        inside = _rate(stack, source, workload, window, _LOCAL, {})
        one, two = (_rate(stack, source, workload, window, cluster.url, _executors(count)) for count in (1, 2))
    return [
        Figure.less_is_better(
            "cluster_first_job",
            elsewhere.first_seconds,
            "s",
            baseline=local.first_seconds,
            note="the baseline is local[2]",
        ),
        Figure.less_is_better(
            "cluster_job",
            elsewhere.median_ms,
            "ms",
            baseline=local.median_ms,
            note="the median; the baseline is local[2]",
        ),
        Figure.more_is_better(
            "cluster_catch_up",
            two,
            "events/s",
            baseline=one,
            note=f"two executors; the baseline is one; local[2] {inside:,.0f}",
        ),
    ]


def _executors(count: int) -> Mapping[str, str]:
    """Of two cores each. Four tasks at once are the least for which a window is divided."""
    return {"spark.executor.cores": "2", "spark.executor.memory": "512m", "spark.cores.max": str(2 * count)}


def _jobs(master: str, options: Mapping[str, str]) -> _Jobs:
    """In a process of its own, which starts a JVM of its own."""
    with multiprocessing.get_context("spawn").Pool(1) as processes:
        return processes.apply(_measured_jobs, (master, options))


def _measured_jobs(master: str, options: Mapping[str, str]) -> _Jobs:
    group = Group("bench", "job")
    begun_at = time.perf_counter()
    with SparkRunner(SparkSettings(master=master, options=options)) as spark:
        spark.run_one(group, int)
        first = time.perf_counter() - begun_at
        seconds = []
        for _ in range(_WARM_JOBS + _JOBS):
            begun_at = time.perf_counter()
            spark.run_one(group, int)
            seconds.append(time.perf_counter() - begun_at)
    return _Jobs(first, statistics.median(seconds[_WARM_JOBS:]) * 1e3)


def _rate(
    stack: DevStack, source: Client, workload: Workload, window: Window, master: str, options: Mapping[str, str]
) -> float:
    """Each run begins with an empty target."""
    with Product(stack, spark_master=master, spark_conf=options) as product:
        product.warm_up(source)
        id = product.create(workload.database, start=str(window.start.ts))
        product.until_begun(id)
        begun_at = time.perf_counter()
        product.until_at(id, window.end)
        seconds = time.perf_counter() - begun_at
        product.remove(id)
    with connect(stack.target_uri) as target:
        target.drop_database(target_of(workload.database))
    return workload.events / seconds
