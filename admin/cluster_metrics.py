"""`ClusterCollector`: the state of the cluster in etcd, as metrics. Only the owner exports it, and reads it at each scrape."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from admin.cluster_reader import Changefeeds, ClusterReader
from admin.services.changefeed_messages import copy_of, lifecycle_now, running_copies, slowest_tables
from admin.services.node_service import lags_of_nodes
from admin.services.troubles import troubles
from admin.stubs.sluice.admin.v1 import admin_pb2 as pb
from changefeed.errors import SluiceError
from changefeed.lifecycle import ErrorReport, State
from changefeed.records.ddl import DdlState
from changefeed.records.node import Role
from changefeed.records.requests import ChangefeedId
from changefeed.records.sync_point import Verified
from owner.etcd_view import OwnerView
from owner.source_watch import OplogLeft

_FEED = ("changefeed",)
_UNREADABLE = "unreadable"
"""Instead of a state, which stands in a record."""
_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_COPIED = {
    "chunks_done": "Copied chunks of the tables in copy",
    "chunks": "Chunks of the tables in copy",
    "documents": "Documents that initial copies have copied, also those of tables whose copy has ended",
    "bytes": "Their bytes",
    "documents_left": "About how many documents are still to be copied",
    "bytes_left": "Their bytes",
    "documents_rate": "Copied documents a second, over the last minute in which chunks ended",
    "bytes_rate": "Copied bytes a second",
    "tables_done": "Tables whose initial copy has ended",
    "tables": "Tables that begin with a copy",
    "share": "Share of the initial copy that is done, from 0 to 1",
}


class ClusterCollector(Collector):
    def __init__(
        self,
        reader: ClusterReader,
        oplog_left: Callable[[], Mapping[ChangefeedId, OplogLeft]],
        keep: Callable[[Container[ChangefeedId]], None],
    ) -> None:
        """`keep` is told which changefeeds there are, on each node."""
        self._reader = reader
        self._oplog_left = oplog_left
        self._keep = keep

    def collect(self) -> Iterator[Metric]:
        try:
            with self._reader.read(reports=False) as view:
                self._keep(set(view.ids))
                if view.owner is None or view.owner.node != self._reader.serving.node():
                    return
            with self._reader.read() as view:
                nodes, changefeeds = view.nodes.values(), view.changefeeds()
                unready = sum(Role.PROCESSOR in node.record.roles and not node.record.ready for node in nodes)
        except SluiceError:
            return  # sluice_owner and /readyz show it
        yield GaugeMetricFamily("sluice_nodes", "Live nodes", len(nodes))
        yield GaugeMetricFamily("sluice_unready_nodes", "Live nodes whose Spark runs no jobs", unready)
        now, found = datetime.now(UTC), changefeeds.readable
        tables = {id: _tables(known) for id, known in found.items()}
        yield from _states(changefeeds, self._reader.serving.unwritable())
        yield _info(found)
        yield from _gauges(found, now)
        yield from _lags(found, now)
        yield from _copies(found)
        yield _by_changefeed("sluice_tables", "Tables that are assigned to a node", tables)
        oplogs = self._oplog_left()
        left = {id: of_feed.left.total_seconds() for id, of_feed in oplogs.items()}
        yield _by_changefeed(
            "sluice_oplog_left_seconds",
            "How long it may stand still before the source's oplog loses its next changes",
            left,
        )
        yield from _shards(oplogs)
        yield _ddl_seconds(found)


def _shards(oplogs: Mapping[ChangefeedId, OplogLeft]) -> Iterator[Metric]:
    """Of sources that are read at their shards."""
    labels = (*_FEED, "shard")
    left = GaugeMetricFamily(
        "sluice_shard_oplog_left_seconds",
        "The same by the oplog of each shard, and of the config servers",
        labels=labels,
    )
    answers = GaugeMetricFamily("sluice_shard_answers", "1 if the shard answered the owner lately", labels=labels)
    for id, of_feed in sorted(oplogs.items()):
        for shard, span in sorted(of_feed.shards.items()):
            answers.add_metric((id, shard), float(span is not None))
            if span is not None:
                left.add_metric((id, shard), span.total_seconds())
    yield left
    yield answers


def _tables(known: OwnerView) -> int:
    return sum(len(assigned.record.tables) for assigned in known.assignments.values())


def _info(found: Mapping[ChangefeedId, OwnerView]) -> Metric:
    labels = (*_FEED, "sink", "capture")
    family = GaugeMetricFamily("sluice_changefeed_info", "1, with its kinds in its labels", labels=labels)
    for id, known in sorted(found.items()):
        family.add_metric((id, known.info.configuration.sink.scheme, known.info.capture), 1)
    return family


def _gauges(found: Mapping[ChangefeedId, OwnerView], now: datetime) -> Iterator[Metric]:
    begun = {id: known.status for id, known in found.items() if known.status and known.status.checkpoint}
    checkpoints = {id: status.checkpoint.ts.seconds for id, status in begun.items() if status.checkpoint}
    resolved = {id: status.resolved.ts.seconds for id, status in begun.items() if status.resolved}
    barriers = {id: known.barrier.position.ts.seconds for id, known in found.items() if known.barrier}
    lags = {id: lag.total_seconds() for id, status in begun.items() if (lag := status.lag(now)) is not None}
    delays = {
        id: delay.span.total_seconds() for id, known in found.items() if (delay := known.info.configuration.delay)
    }
    ages = {
        id: max(now.timestamp() - at - delays.get(id, 0), 0) if lags.get(id, 1) else 0.0 for id, at in barriers.items()
    }
    yield _by_changefeed("sluice_checkpoint_timestamp_seconds", "Unix time of the checkpoint", checkpoints)
    yield _by_changefeed("sluice_resolved_timestamp_seconds", "Unix time up to which all DDL is known", resolved)
    yield _by_changefeed("sluice_barrier_age_seconds", "Age of the barrier; 0 while nothing is left to replicate", ages)
    held = {id: len(known.barrier.held) for id, known in found.items() if known.barrier}
    yield _by_changefeed("sluice_held_tables", "Tables that a DDL holds", held)
    waiting = {id: troubles(known.stragglers, known.records.values()).values() for id, known in found.items()}
    stopped = {id: sum(trouble.waits_for_user for trouble in each) for id, each in waiting.items()}
    yield _by_changefeed("sluice_stopped_tables", "Tables that wait for a user", stopped)
    open_ddls = {id: sum(record.open for record in known.records.values()) for id, known in found.items()}
    yield _by_changefeed("sluice_open_ddls", "DDLs that are not done", open_ddls)
    yield from _sync_points(found, now)
    letters = {id: known.status.letters for id, known in found.items() if known.status}
    counts = {id: totals.count for id, totals in letters.items()}
    yield _by_changefeed("sluice_dead_letters", "Rows that the target rejects at present", counts)
    sizes = {id: totals.bytes for id, totals in letters.items()}
    yield _by_changefeed("sluice_dead_letter_bytes", "Size of their dead letters", sizes)


def _sync_points(found: Mapping[ChangefeedId, OwnerView], now: datetime) -> Iterator[Metric]:
    """Of the changefeeds that make some."""
    every = {
        id: o.every.span.total_seconds() for id, known in found.items() if (o := known.info.configuration.sync_points)
    }
    points = {id: found[id].sync for id in every}
    ages = {
        id: max(now - each.newest.made_at, timedelta(0)).total_seconds() for id, each in points.items() if each.newest
    }
    yield _by_changefeed("sluice_sync_point_age_seconds", "Age of the newest sync point", ages)
    yield _by_changefeed("sluice_sync_point_every_seconds", "How often there should be one", every)
    made = {id: each.made for id, each in points.items()}
    yield _by_changefeed("sluice_sync_points_made", "Sync points since the changefeed began", made)
    whole = {id: each.whole for id, each in points.items()}
    yield _by_changefeed("sluice_sync_points_whole", "Of these, those that except no table", whole)
    missed = {id: each.missed for id, each in points.items()}
    yield _by_changefeed("sluice_sync_points_missed", "Sync points that were given up", missed)
    held = {id: each.held_seconds for id, each in points.items()}
    yield _by_changefeed("sluice_sync_held_seconds", "How long it was held for sync points in all", held)
    yield from _verified(
        {id: known.verified for id, known in found.items() if known.info.configuration.verify.continuous}
    )


def _verified(found: Mapping[ChangefeedId, Verified]) -> Iterator[Metric]:
    """Of the changefeeds that are verified all the time."""
    passes = {id: each.present for id, each in found.items() if each.present is not None}
    different = {id: found[id].different for id in passes}
    yield _by_changefeed("sluice_verify_different", "Differences of the newest whole pass, or of this one", different)
    reordered = {id: each.done.reordered for id, each in passes.items()}
    yield _by_changefeed("sluice_verify_reordered", "Documents with another order of fields, in this pass", reordered)
    read = {id: each.done.bytes for id, each in passes.items()}
    yield _by_changefeed("sluice_verify_pass_bytes", "What this pass has read of both sides", read)
    due = {id: each.due_bytes for id, each in passes.items()}
    yield _by_changefeed("sluice_verify_pass_due_bytes", "What this pass is to read of both sides", due)
    numbers = {id: each.number for id, each in passes.items()}
    yield _by_changefeed("sluice_verify_pass", "The number of this pass", numbers)


def _lags(found: Mapping[ChangefeedId, OwnerView], now: datetime) -> Iterator[Metric]:
    """By table only for a few, since there may be a hundred thousand: those that lag more than the others."""
    begun = {id: known.status.lag(now) for id, known in found.items() if known.status}
    lags = {id: lag.total_seconds() for id, lag in begun.items() if lag is not None}
    yield _by_changefeed("sluice_lag_seconds", "How long the oldest row that is not downstream has been waiting", lags)
    nodes = GaugeMetricFamily("sluice_node_lag_seconds", "Lag of the node's slowest table", labels=("node",))
    for node, lag in sorted(lags_of_nodes(found.values(), now).items()):
        nodes.add_metric((node,), lag.total_seconds())
    yield nodes
    tables = GaugeMetricFamily(
        "sluice_table_lag_seconds", "Lag of the slowest tables that are behind the others", labels=(*_FEED, "table")
    )
    for id, known in found.items():
        for behind in slowest_tables(known, now):
            tables.add_metric((id, behind.name), behind.lag.ToTimedelta().total_seconds())
    yield tables


def _copies(found: Mapping[ChangefeedId, OwnerView]) -> Iterator[Metric]:
    copies = {id: copy for id, known in found.items() if (copy := copy_of(known)) is not None}
    by = {name: {id: getattr(copy, name) for id, copy in copies.items()} for name in _COPIED}
    for name, help in _COPIED.items():
        yield _by_changefeed(f"sluice_copy_{name}", help, by[name])
    left = {id: copy.left.ToTimedelta().total_seconds() for id, copy in copies.items() if copy.HasField("left")}
    yield _by_changefeed("sluice_copy_left_seconds", "About how long the rest of the initial copy takes", left)
    yield from _tables_in_copy({id: running_copies(found[id]) for id in copies})


def _tables_in_copy(found: Mapping[ChangefeedId, Sequence[pb.TableCopy]]) -> Iterator[Metric]:
    """Only those that have most to do, since there may be a hundred thousand."""
    for name in ("share", "bytes_left", "bytes_rate"):
        family = GaugeMetricFamily(
            f"sluice_table_copy_{name}",
            f"{_COPIED[name]}, of the tables that have most to do",
            labels=(*_FEED, "table"),
        )
        for id, tables in found.items():
            for each in tables:
                family.add_metric((id, each.name), getattr(each.copy, name))
        yield family


def _states(changefeeds: Changefeeds, unwritable: ErrorReport | None) -> Iterator[Metric]:
    family = GaugeMetricFamily("sluice_changefeed_state", "1 for the changefeed's state", labels=(*_FEED, "state"))
    states: dict[ChangefeedId, str] = {
        id: lifecycle_now(known, unwritable).state for id, known in changefeeds.readable.items()
    }
    states |= dict.fromkeys(changefeeds.unreadable, _UNREADABLE)
    for id, present in sorted(states.items()):
        for state in (*State, _UNREADABLE):
            family.add_metric((id, state), float(state == present))
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
