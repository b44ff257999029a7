"""`ProcessesCollector`: the release, and what Spark has and takes on this node, as metrics."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import version

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from processor.spark.jvm import SparkHealth

_SPARK = {
    "executors": ("sluice_executors", "Spark's executors of this node; 0 where tasks run in the node"),
    "slots": ("sluice_task_slots", "Spark tasks that can run at once"),
    "heap_used": ("sluice_jvm_heap_used_bytes", "Used heap of Spark's driver"),
    "heap_most": ("sluice_jvm_heap_max_bytes", "Largest possible heap of Spark's driver"),
    "jvm_resident": ("sluice_jvm_resident_memory_bytes", "Memory of the process of Spark's driver"),
    "workers": ("sluice_python_workers", "Python processes of tasks on this machine"),
    "workers_resident": ("sluice_python_workers_resident_memory_bytes", "Their memory, shared pages counted each time"),
}


class ProcessesCollector(Collector):
    def __init__(self, release: str, health: Callable[[], SparkHealth | None] | None) -> None:
        self._health = health
        labels = {
            "version": release,
            "python": platform.python_version(),
            "spark": version("pyspark"),
            "pymongo": version("pymongo"),
        }
        self._build = GaugeMetricFamily("sluice_build_info", "1, with the release in its labels", labels=list(labels))
        self._build.add_metric(list(labels.values()), 1)

    def describe(self) -> Iterable[Metric]:
        """Empty: Spark is not asked at registration."""
        return ()

    def collect(self) -> Iterator[Metric]:
        yield self._build
        if self._health is None:
            return
        found = self._health()
        yield GaugeMetricFamily("sluice_spark_running", "1 while this node's Spark answers", float(found is not None))
        if found is not None:
            for field, (name, help) in _SPARK.items():
                yield GaugeMetricFamily(name, help, getattr(found, field))
