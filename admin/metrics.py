"""`Metrics`: all metrics of a node, with their help texts.

Only the owner exports the state in etcd (`cluster_metrics.py`), so that a sum over nodes counts nothing twice. Each node counts what its
own pipelines did, and shows its release, and what Spark has and takes on its machine (`ProcessesCollector`).
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from importlib.metadata import version

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, disable_created_metrics
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from admin.cluster_metrics import ClusterCollector
from admin.cluster_reader import ClusterReader
from changefeed.event import RowTally
from changefeed.records.copy import CopiedChunk
from changefeed.records.requests import ChangefeedId
from owner.source_watch import OplogLeft
from processor.spark.jvm import SparkHealth

_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_BYTES = (1 << 10, 1 << 14, 1 << 17, 1 << 20, 1 << 23, 1 << 26, 1 << 29)
_FEED = ("changefeed",)


class Metrics:
    """Uses a registry of its own, without the metrics of other libraries in the process."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # they are a series more for each counter
        registry = self.registry = CollectorRegistry()
        counter = partial(Counter, labelnames=_FEED, registry=registry)
        histogram = partial(Histogram, labelnames=_FEED, buckets=_SECONDS, registry=registry)
        self._events = counter("sluice_events", "Row events applied downstream", labelnames=(*_FEED, "type"))
        self._bytes = counter("sluice_bytes", "Bytes of change events read")
        self._window_seconds = histogram("sluice_window_seconds", "How long a window's job ran")
        self._window_bytes = histogram("sluice_window_bytes", "Bytes of change events in a window", buckets=_BYTES)
        self._windows_failed = counter("sluice_windows_failed", "Windows that ended with an error")
        self._retries = counter("sluice_sink_retries", "Commands sent downstream again")
        self._messages = counter("sluice_sink_messages", "Messages that a sink of messages has durably")
        self._message_bytes = counter(
            "sluice_sink_bytes", "Their bytes: of files as they are stored, in topics of keys and values"
        )
        self._confirm_seconds = histogram(
            "sluice_sink_confirm_seconds",
            "How long tasks waited at the end of a window until the sink had their messages",
        )
        self._commit_seconds = histogram(
            "sluice_sink_commit_seconds", "How long it took to commit a window to a sink of messages"
        )
        self._divergences = counter("sluice_divergences", "Events that did not fit the document downstream")
        self._skipped = counter("sluice_skipped_changes", "Replayed changes that did not fit a newer row")
        self._rejected = counter("sluice_rejected_rows", "Rows that the target refused")
        self._copied_documents = counter("sluice_copied_documents", "Documents that initial copies have written")
        self._copied_bytes = counter("sluice_copied_bytes", "Their bytes")
        self._of_changefeeds = (
            *(self._events, self._bytes, self._window_seconds, self._window_bytes, self._windows_failed, self._retries),
            *(self._messages, self._message_bytes, self._confirm_seconds, self._commit_seconds),
            *(self._divergences, self._skipped, self._rejected, self._copied_documents, self._copied_bytes),
        )
        self._counted: set[ChangefeedId] = set()
        self.leads = Gauge("sluice_owner", "1 on the node that is the owner", registry=registry)
        self.elections = Counter("sluice_owner_elections", "Times that this node became the owner", registry=registry)
        self._writable = Gauge("sluice_etcd_writable", "1 while etcd accepts this node's writes", registry=registry)
        self.sessions = Counter("sluice_sessions", "Sessions that this node has had", registry=registry)

    def window_done(self, changefeed: ChangefeedId, tally: RowTally, took: timedelta, *, failed: bool) -> None:
        self._counted.add(changefeed)
        for type, count in tally.applied.items():
            self._events.labels(changefeed, type.value).inc(count)
        self._bytes.labels(changefeed).inc(tally.bytes)
        self._window_seconds.labels(changefeed).observe(took.total_seconds())
        self._window_bytes.labels(changefeed).observe(tally.bytes)
        self._windows_failed.labels(changefeed).inc(failed)
        self._retries.labels(changefeed).inc(tally.retries)
        if tally.messages:
            self._messages.labels(changefeed).inc(tally.messages)
            self._message_bytes.labels(changefeed).inc(tally.message_bytes)
            self._confirm_seconds.labels(changefeed).observe(tally.confirm_seconds)
        self._divergences.labels(changefeed).inc(tally.repaired)
        self._skipped.labels(changefeed).inc(tally.skipped)
        self._rejected.labels(changefeed).inc(tally.rejected)

    def window_committed(self, changefeed: ChangefeedId, took: timedelta) -> None:
        self._counted.add(changefeed)
        self._commit_seconds.labels(changefeed).observe(took.total_seconds())

    def chunks_copied(self, changefeed: ChangefeedId, chunks: Sequence[CopiedChunk]) -> None:
        self._counted.add(changefeed)
        self._copied_documents.labels(changefeed).inc(sum(chunk.documents for chunk in chunks))
        self._copied_bytes.labels(changefeed).inc(sum(chunk.bytes for chunk in chunks))

    def keep(self, present: Container[ChangefeedId]) -> None:
        """Forgets the counters of removed changefeeds."""
        for gone in [changefeed for changefeed in self._counted if changefeed not in present]:
            self._counted.discard(gone)
            for family in self._of_changefeeds:
                family.remove_by_labels({"changefeed": gone})

    def describe_cluster(
        self, reader: ClusterReader, oplog_left: Callable[[], Mapping[ChangefeedId, OplogLeft]]
    ) -> None:
        """`oplog_left` returns the last result of the owner's oplog-window guard."""
        self._writable.set_function(lambda: float(reader.serving.unwritable() is None))
        self.registry.register(ClusterCollector(reader, oplog_left, self.keep))

    def describe_process(self, version: str, health: Callable[[], SparkHealth | None] | None) -> None:
        """`health` returns None while Spark does not answer. A node without Spark has none."""
        ProcessCollector(registry=self.registry)
        self.registry.register(ProcessesCollector(version, health))


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

    def collect(self) -> Iterator[Metric]:
        yield self._build
        if self._health is None:
            return
        found = self._health()
        yield GaugeMetricFamily("sluice_spark_running", "1 while this node's Spark answers", float(found is not None))
        if found is not None:
            for field, (name, help) in _SPARK.items():
                yield GaugeMetricFamily(name, help, getattr(found, field))
