"""`Metrics`: all metrics of a node, with their help texts.

Only the owner exports the state in etcd, and reads it at each scrape, so that a sum over nodes counts nothing twice. Each node counts
what its own pipelines did.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from admin.cluster_reader import ClusterReader, ClusterView
from admin.services.messages import lifecycle_now
from admin.services.table_troubles import troubles
from changefeed.errors import SluiceError
from changefeed.lifecycle import ErrorReport, State
from changefeed.records import ChangefeedId, DdlState, Role
from changefeed.row_tally import RowTally
from owner.etcd_view import OwnerView

_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_BYTES = (1 << 10, 1 << 14, 1 << 17, 1 << 20, 1 << 23, 1 << 26, 1 << 29)
_FEED = ("changefeed",)


class Metrics:
    """Uses a registry of its own, without the metrics of other libraries in the process."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        self._events = Counter("sluice_events", "Row events applied downstream", (*_FEED, "type"), registry=registry)
        self._bytes = Counter("sluice_bytes", "Bytes of change events read", _FEED, registry=registry)
        self._window_seconds = Histogram(
            "sluice_window_seconds", "How long a window's job ran", _FEED, buckets=_SECONDS, registry=registry
        )
        self._window_bytes = Histogram(
            "sluice_window_bytes", "Bytes of change events in a window", _FEED, buckets=_BYTES, registry=registry
        )
        self._windows_failed = Counter(
            "sluice_windows_failed", "Windows that ended with an error", _FEED, registry=registry
        )
        self._retries = Counter("sluice_sink_retries", "Commands sent downstream again", _FEED, registry=registry)
        self._divergences = Counter(
            "sluice_divergences", "Events that did not fit the document downstream", _FEED, registry=registry
        )
        self._skipped = Counter(
            "sluice_skipped_changes", "Replayed changes that did not fit a newer row", _FEED, registry=registry
        )
        self._rejected = Counter("sluice_rejected_rows", "Rows that the target refused", _FEED, registry=registry)
        self._leads = Gauge("sluice_owner", "1 on the node that is the owner", registry=registry)
        self._elected = Counter("sluice_owner_elections", "Times that this node became the owner", registry=registry)
        self._writable = Gauge("sluice_etcd_writable", "1 while etcd accepts this node's writes", registry=registry)
        self._sessions = Counter("sluice_sessions", "Sessions that this node has had", registry=registry)

    def window_done(self, changefeed: ChangefeedId, tally: RowTally, took: timedelta, *, failed: bool) -> None:
        for type, count in tally.applied.items():
            self._events.labels(changefeed, type.value).inc(count)
        self._bytes.labels(changefeed).inc(tally.bytes)
        self._window_seconds.labels(changefeed).observe(took.total_seconds())
        self._window_bytes.labels(changefeed).observe(tally.bytes)
        self._windows_failed.labels(changefeed).inc(failed)
        self._retries.labels(changefeed).inc(tally.retries)
        self._divergences.labels(changefeed).inc(tally.repaired)
        self._skipped.labels(changefeed).inc(tally.skipped)
        self._rejected.labels(changefeed).inc(tally.rejected)

    def session_opened(self) -> None:
        self._sessions.inc()

    def owner_elected(self) -> None:
        self._elected.inc()

    def leads(self, leads: bool) -> None:
        self._leads.set(leads)

    def describe_cluster(
        self,
        reader: ClusterReader,
        oplog_left: Callable[[], Mapping[ChangefeedId, timedelta]],
    ) -> None:
        """`oplog_left` returns the last result of the owner's oplog-window guard."""
        self._writable.set_function(lambda: float(reader.serving.unwritable() is None))
        self.registry.register(_ClusterCollector(reader, oplog_left))


class _ClusterCollector(Collector):
    def __init__(
        self,
        reader: ClusterReader,
        oplog_left: Callable[[], Mapping[ChangefeedId, timedelta]],
    ) -> None:
        self._reader = reader
        self._oplog_left = oplog_left

    def describe(self) -> Iterable[Metric]:
        """Empty, because the cluster cannot be read yet at registration."""
        return ()

    def collect(self) -> Iterator[Metric]:
        try:
            with self._reader.read() as view:
                if view.owner is None or view.owner.node != self._reader.serving.node():
                    return
                nodes, found = view.nodes.values(), view.changefeeds()
                unready = sum(Role.PROCESSOR in node.record.roles and not node.record.ready for node in nodes)
                tables = {id: _tables(view, id) for id in found}
        except SluiceError:
            return  # sluice_owner and /readyz show it
        yield GaugeMetricFamily("sluice_nodes", "Live nodes", len(nodes))
        yield GaugeMetricFamily("sluice_unready_nodes", "Live nodes whose Spark runs no jobs", unready)
        now = datetime.now(UTC)
        yield from _states(found, self._reader.serving.unwritable())
        yield from _gauges(found, now)
        yield _by_changefeed("sluice_tables", "Tables that are assigned to a node", tables)
        left = {id: span.total_seconds() for id, span in self._oplog_left().items()}
        yield _by_changefeed(
            "sluice_oplog_left_seconds",
            "How long it may stand still before the source's oplog loses its next changes",
            left,
        )
        yield _ddl_seconds(found)


def _tables(view: ClusterView, id: ChangefeedId) -> int:
    return sum(len(assigned.record.tables) for assigned in view.assignments(id).values())


def _gauges(found: Mapping[ChangefeedId, OwnerView], now: datetime) -> Iterator[Metric]:
    begun = {id: known.status for id, known in found.items() if known.status and known.status.checkpoint}
    checkpoints = {id: status.checkpoint.ts.seconds for id, status in begun.items() if status.checkpoint}
    resolved = {id: status.resolved.ts.seconds for id, status in begun.items() if status.resolved}
    barriers = {id: known.barrier.position.ts.seconds for id, known in found.items() if known.barrier}
    lags = {id: lag.total_seconds() for id, status in begun.items() if (lag := status.lag(now)) is not None}
    ages = {id: max(now.timestamp() - at, 0) for id, at in barriers.items()}
    yield _by_changefeed("sluice_lag_seconds", "Largest possible age of a write that is not downstream", lags)
    yield _by_changefeed("sluice_checkpoint_seconds", "Unix time of the checkpoint", checkpoints)
    yield _by_changefeed("sluice_resolved_seconds", "Unix time up to which all DDL is known", resolved)
    yield _by_changefeed("sluice_barrier_age_seconds", "Age of the barrier", ages)
    held = {id: len(known.barrier.held) for id, known in found.items() if known.barrier}
    yield _by_changefeed("sluice_held_tables", "Tables that a DDL holds", held)
    waiting = {id: troubles(known.stragglers, known.records.values()).values() for id, known in found.items()}
    stopped = {id: sum(trouble.waits_for_user for trouble in each) for id, each in waiting.items()}
    yield _by_changefeed("sluice_stopped_tables", "Tables that wait for a user", stopped)
    open_ddls = {id: sum(record.open for record in known.records.values()) for id, known in found.items()}
    yield _by_changefeed("sluice_open_ddls", "DDLs that are not done", open_ddls)
    copies = {id: [copy for r in known.reports.values() for copy in r.copies.values()] for id, known in found.items()}
    copied = {id: sum(copy.chunks_done for copy in each) for id, each in copies.items()}
    yield _by_changefeed("sluice_copy_chunks_done", "Copied chunks of the tables in copy", copied)
    chunks = {id: sum(copy.chunks for copy in each) for id, each in copies.items()}
    yield _by_changefeed("sluice_copy_chunks", "Chunks of the tables in copy", chunks)


def _states(found: Mapping[ChangefeedId, OwnerView], unwritable: ErrorReport | None) -> Iterator[Metric]:
    family = GaugeMetricFamily("sluice_changefeed_state", "1 for the changefeed's state", labels=(*_FEED, "state"))
    for id, known in found.items():
        present = lifecycle_now(known, unwritable).state
        for state in State:
            family.add_metric((id, state), float(state is present))
    yield family


def _ddl_seconds(found: Mapping[ChangefeedId, OwnerView]) -> Metric:
    """Over the DDL records in etcd: about the newest hundred of each changefeed."""
    family = HistogramMetricFamily(
        "sluice_ddl_held_seconds", "Time from seeing a DDL until it was done, over the newest DDLs", labels=_FEED
    )
    for id, known in found.items():
        took = [
            (record.done_at - record.seen_at).total_seconds()
            for record in known.records.values()
            if record.state is DdlState.DONE and record.done_at is not None
        ]
        buckets = [(str(float(bound)), float(sum(each <= bound for each in took))) for bound in _SECONDS]
        family.add_metric((id,), [*buckets, ("+Inf", float(len(took)))], sum(took))
    return family


def _by_changefeed(name: str, help: str, values: Mapping[ChangefeedId, float]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, help, labels=_FEED)
    for id, value in sorted(values.items()):
        family.add_metric((id,), value)
    return family
