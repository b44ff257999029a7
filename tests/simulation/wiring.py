"""`wired`: the product, connected to the services of a simulated cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from datetime import timedelta
from itertools import count
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import changefeed.config.sync_options
import coordination.decoded
import coordination.failpoint
import coordination.large_values
import owner.changefeed_owner
import owner.chores
import owner.ddl.barrier
import owner.decision.recording
import owner.etcd_writes
import owner.owner
import owner.tables.node_standings
import owner.tables.wishes
import processor.changefeed_processor
import processor.copy.copy_task
import processor.job_runs
import processor.lanes.windows
import processor.processor
import processor.spark.fitness
import processor.task.changefeed_resources
import processor.task.permit
import processor.task.rows.applier
import processor.task.wide_window
import processor.task.window_task
import processor.task.worker_resources
import sink.messages.files.data_files
import sink.messages.files.file_sink
import sink.messages.kafka.feed_topic
import sink.messages.kafka.kafka_clients
import sink.messages.kafka.topic_reader
import sink.mongodb.mongo_sink
import sink.mongodb.rows.write_run
import source.opening
import source.oplog.row_reader
import source.sharded.cluster_clients
import source.sharded.gone_shards
import source.tables.chunks
from changefeed.config.sinks.file_options import StorePlace
from coordination.large_values import LARGE_BYTES, PIECE_BYTES
from processor.copy.steps import CopyAnswer, CopyStep
from processor.rate import TokenBucket
from processor.task.changefeed_resources import ChangefeedResources
from tests.simulation.clockwork import substitutes
from tests.simulation.clockwork.network import ARRIVES_WITHIN
from tests.simulation.cluster import BUDGET, LOOK_EVERY, Cluster
from tests.simulation.judgement.step_checks import CheckedLanes, checked_barrier
from tests.simulation.messages.broker_clients import BrokerClients, ClientsByProcess
from tests.simulation.messages.store import StoreLine
from tests.simulation.source.client import SourceClient
from tests.simulation.source.sharded.client import ShardClient
from tests.simulation.source.sharded.cluster import ClusterSource
from tests.simulation.source.sharded.config_servers import CONFIG
from tests.simulation.target.client import TargetClient

_BESIDE = 0.4
"""The part of the seeds in which definitions of this many bytes stand beside their records in etcd, in pieces of so many."""
_LARGE_BYTES, _PIECE_BYTES = 20, 40


@contextmanager
def wired(cluster: Cluster, *, batch_changes: int) -> Iterator[None]:
    """Connects the product to the simulated services. Intervals are shortened, so that much happens within a minute.

    This is done by patches, since the product connects deep inside, by the addresses in a changefeed's configuration.
    """

    def source_client(uri: str, **__: object) -> SourceClient:
        server = cluster.source
        if isinstance(server, ClusterSource):
            return ShardClient(server, uri.partition("replicaSet=")[2] or CONFIG, cluster.network)
        return SourceClient(server, cluster.network, secondary=server.from_secondaries)

    def target(_: str) -> TargetClient:
        return TargetClient(cluster.target, cluster.network)

    def copying(bench: ChangefeedResources, work: CopyStep) -> CopyAnswer:
        thread = cluster.machine.current
        assert thread is not None
        thread.copies = work.schema.id
        try:
            return copy(bench, work)
        finally:
            thread.copies = None

    def store(place: StorePlace, files: object = None) -> StoreLine:
        return StoreLine(cluster.store, cluster.network)

    names, brokers = count(), BrokerClients(cluster.broker, cluster.network)
    copy = processor.copy.copy_task._done
    resources_by_process = _ResourcesByProcess(cluster)
    decoder = cluster.decoder
    waiting_ddls = Random(f"waiting DDLs of {cluster.machine.seed}").choice((0, 1, 1000))
    beside = Random(f"large definitions {cluster.machine.seed}").random() < _BESIDE
    large_bytes, piece_bytes = (_LARGE_BYTES, _PIECE_BYTES) if beside else (LARGE_BYTES, PIECE_BYTES)
    cluster.machine.count("sees ordinary definitions as large", int(beside))
    attributes: list[tuple[Any, str, Any]] = [
        (source.opening, "connect", source_client),
        (source.sharded.cluster_clients, "connect", source_client),
        (owner.owner, "_TICK", timedelta(seconds=0.5)),
        (owner.owner, "_LEAST_PAUSE", timedelta(seconds=0.1)),
        (owner.etcd_writes, "_HISTORY", 2),
        (changefeed.config.sync_options, "LEAST_EVERY", timedelta(seconds=1)),
        (owner.tables.wishes, "_MOST_WAITING", waiting_ddls),
        (owner.changefeed_owner, "LARGE_BYTES", large_bytes),
        (owner.decision.recording, "LARGE_BYTES", large_bytes),
        (owner.etcd_writes, "LARGE_BYTES", large_bytes),
        (coordination.large_values, "LARGE_BYTES", large_bytes),
        (coordination.large_values, "PIECE_BYTES", piece_bytes),
        (owner.ddl.barrier, "decide", checked_barrier(owner.ddl.barrier.decide)),
        (source.sharded.cluster_clients, "GONE_AFTER", timedelta(seconds=12)),
        (source.sharded.gone_shards, "_EVERY_SECONDS", 1.0),
        (owner.chores, "_SWEEP_SECONDS", 5.0),
        (sink.messages.files.file_sink, "open_store", store),
        (sink.messages.files.data_files, "secrets", SimpleNamespace(token_hex=lambda _: f"{next(names):06}")),
        (sink.messages.kafka.kafka_clients, "Producer", brokers.producer),
        (sink.messages.kafka.kafka_clients, "AdminClient", brokers.admin),
        (sink.messages.kafka.kafka_clients, "_clients", ClientsByProcess(lambda: cluster.process)),
        (sink.messages.kafka.feed_topic, "Consumer", brokers.consumer),
        (sink.messages.kafka.topic_reader, "Consumer", BrokerClients(cluster.broker).consumer),
        (owner.tables.node_standings, "PATIENCE", timedelta(seconds=3)),
        (owner.tables.node_standings, "SERVES_FOR", timedelta(seconds=2)),
        (owner.tables.node_standings, "INHERITS", timedelta(seconds=6)),
        (owner.tables.node_standings, "HOLD", timedelta(seconds=4)),
        (owner.tables.node_standings, "LONGEST_HOLD", timedelta(seconds=16)),
        (processor.spark.fitness, "DOUBT", timedelta(seconds=3)),
        (processor.spark.fitness, "TRIAL", timedelta(seconds=1)),
        (processor.spark.fitness, "LONGEST_TRIAL", timedelta(seconds=8)),
        (processor.spark.fitness, "TRIAL_PAUSE", timedelta(seconds=0.5)),
        (processor.spark.fitness, "LONGEST_PAUSE", timedelta(seconds=4)),
        (processor.processor, "_TICK", timedelta(seconds=0.5)),
        (processor.processor, "_LEAST_PAUSE", timedelta(seconds=0.05)),
        (source.oplog.row_reader, "_LOOKED_AT", 10),
        (coordination.failpoint, "reach", lambda point, *_: cluster.reached(point)),
        (coordination.decoded, "decode", decoder),
        (processor.task.permit, "decode", decoder),
        (processor.lanes.windows, "_OPLOG_SLICE_BYTES", 1),
        (processor.lanes.windows, "_SLICE_BYTES", 1),
        (processor.task.rows.applier, "BATCH_CHANGES", batch_changes),
        (processor.task.rows.applier, "FIRST_CHANGES", batch_changes),
        (processor.task.rows.applier, "_LEAST_CHANGES", 1),
        (processor.task.rows.applier, "LONGEST_SECONDS", 0.02),
        (processor.task.rows.applier, "LONGEST_SETTLED_SECONDS", 0.1),
        (processor.task.rows.applier, "HELD_UP_SECONDS", 0.01),
        (sink.mongodb.rows.write_run, "FIRST", 1),
        (sink.mongodb.mongo_sink, "connect", target),
        (processor.task.worker_resources, "EtcdClient", lambda _: cluster.line()),
        (processor.task.worker_resources, "_make_lasting", lambda **_: None),
        (processor.task.worker_resources, "StallWatch", lambda: SimpleNamespace(task=lambda _: nullcontext())),
        (processor.task.changefeed_resources, "SharedBucket", SimulatedBucket),
        (processor.task.window_task, "worker_resources", resources_by_process),
        (processor.copy.copy_task, "worker_resources", resources_by_process),
        (processor.task.wide_window, "worker_resources", resources_by_process),
        (processor.task.window_task, "dial", cluster.exchange.dial),
        (processor.copy.copy_task, "_done", copying),
    ]
    defaults: list[tuple[Any, dict[str, Any]]] = [
        (owner.owner.Owner.__init__, {"margin": BUDGET + ARRIVES_WITHIN}),
        (processor.job_runs.Attempts.__init__, {"margin": BUDGET + ARRIVES_WITHIN}),
        (processor.task.permit.TaskPermit.__init__, {"budget": BUDGET, "look_every": LOOK_EVERY}),
    ]
    if isinstance(cluster.source, ClusterSource):
        attributes.append((source.tables.chunks, "_SMALLEST_FRACTION", 1))
    with ExitStack() as stack:
        for module, name, value in attributes:
            stack.enter_context(patch.object(module, name, value))
        for function, values in defaults:
            stack.enter_context(patch.dict(function.__kwdefaults__, values))
        changefeed_processor = processor.changefeed_processor.ChangefeedProcessor
        stack.enter_context(patch.object(changefeed_processor, "_following", CheckedLanes(), create=True))
        yield


class _ResourcesByProcess:
    """Each worker process has resources of its own."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster.worker_resources, name)


class SimulatedBucket:
    """As the workers of one executor share it; here each process is an executor."""

    def __init__(self, name: str) -> None:
        self._bucket = TokenBucket()

    def take(self, cost_seconds: float, share: float, told_at: float) -> float:
        now = substitutes.monotonic()
        self._bucket, wait = self._bucket.told(share, told_at, now).take(cost_seconds, now)
        return wait

    def close(self) -> None:
        """It has no file."""
