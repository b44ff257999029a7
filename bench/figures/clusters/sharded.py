"""`sharded`: a backlog of inserts on one, two and three shards, and the lag of rows of one shard while the others are idle.

The baseline is the same load on one replica set, replicated by Sluice too.
"""

from __future__ import annotations

import statistics
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import bson
from bson.raw_bson import RawBSONDocument

from bench.figures.lag import lags
from bench.product import Product, target_of
from bench.result import Figure
from bench.run import OURS, Run
from bench.workload import newest
from changefeed.capture import Capture
from changefeed.position import Position, Window
from changefeed.records import ChangefeedId
from devstack.sharded.cluster import ShardedCluster
from devstack.sharded.ddl import ClusterDdl
from devstack.sharded.router import ClusterRouter
from devstack.sharded.wire import MAJORITY, Wire
from devstack.stack import DevStack
from source.connection import connect
from source.sharded.clock import reach_newest
from source.sharded.cluster_clients import ClusterClients

_EVENTS = 300_000
_SHARDS = ("sa", "sb", "sc")
_BATCH = 1_000
_TEXT = 160
_ROWS, _RATE = 60, 5
_TABLE = "rows"


def sharded(stack: DevStack) -> list[Figure]:
    with Product(stack) as product:
        with connect(stack.source_uri) as source:
            product.warm_up(source)
        backlog, one_lag = _on_a_replica_set(stack, product)
        return [figure for count in (1, 2, 3) for figure in _on_shards(stack, product, count, backlog, one_lag)]


def _on_a_replica_set(stack: DevStack, product: Product) -> tuple[Run, list[float]]:
    database = _database()
    with connect(stack.source_uri) as source, connect(stack.target_uri) as target, Wire(_port(stack)) as wire:
        source[database].create_collection(_TABLE)
        start = newest(source)
        for documents in _batches():
            wire.command(database, {"insert": _TABLE, "documents": documents, "writeConcern": MAJORITY})
        window = Window(start, newest(source))
        run, id = _caught_up(product, database, window, stack.source_uri, Capture.OPLOG, {})

        def write(number: int) -> None:
            wire.command(database, {"insert": _TABLE, "documents": [{"_id": number}], "writeConcern": MAJORITY})

        lag = _lags(write, stack, database)
        product.remove(id)
        target.drop_database(target_of(database))
    return run, lag


def _on_shards(
    stack: DevStack, product: Product, count: int, one_set: Run, lag_of_one: list[float]
) -> Iterator[Figure]:
    database = _database()
    ns = f"{database}.{_TABLE}"
    with (
        tempfile.TemporaryDirectory(prefix="sluice-bench-") as directory,
        ShardedCluster(Path(directory) / "data", Path(directory) / "log", shards=_SHARDS[:count]) as cluster,
        cluster.router() as router,
        ClusterClients(cluster.config.uri) as clients,
    ):
        _spread(router, database, ns, cluster)
        start = Position(reach_newest(clients).next())
        for number, documents in enumerate(_batches(count)):
            shard = _SHARDS[number % count]
            command = {"insert": _TABLE, "documents": documents, "writeConcern": MAJORITY}
            router.wire(shard).command(database, {**command, **router.versions(ns, shard)})
        window = Window(start, Position(reach_newest(clients).next()))
        servers = {name: each.members[0].pid for name, each in cluster.shards.items()} | {
            "config": cluster.config.members[0].pid
        }
        run, id = _caught_up(product, database, window, cluster.config.uri, Capture.SHARD_OPLOGS, servers)
        lag = _lags(lambda number: router.insert(ns, {"_id": number, "k": 0}), stack, database)
        product.remove(id)
    ours, shards = run.micros(*OURS), run.micros(*servers)
    note = f"itself + shards + target: {ours:.1f} + {shards:.1f} + {run.micros('target'):.1f}; one replica set {one_set.shares}"
    note += f"; {_parts(run)}; {_parts(one_set)}"
    total = ours + shards + run.micros("target")
    whole = one_set.micros(*OURS) + one_set.micros("source", "target")
    yield Figure.more_is_better(f"sharded_{count}_catch_up", run.rate, "events/s", baseline=one_set.rate)
    yield Figure.less_is_better(f"sharded_{count}_cpu", total, "us/event", baseline=whole, note=note)
    medians = statistics.median(lag), statistics.median(lag_of_one)
    worst = f"the longest: {max(lag):.0f}, on the replica set {max(lag_of_one):.0f}"
    yield Figure.less_is_better(f"sharded_{count}_lag_median", medians[0], "ms", baseline=medians[1], note=worst)


def _spread(router: ClusterRouter, database: str, ns: str, cluster: ShardedCluster) -> None:
    """A chunk on each shard. Each batch has rows of one."""
    ddl = ClusterDdl(router)
    ddl.create_database(database, primary=_SHARDS[0])
    ddl.shard(ns, {"k": 1})
    for number, shard in list(enumerate(cluster.shards))[1:]:
        ddl.split(ns, {"k": number})
        ddl.move(ns, {"k": number}, shard)
    router.refresh()


def _caught_up(
    product: Product, database: str, window: Window, source: str, capture: Capture, servers: dict[str, int]
) -> tuple[Run, ChangefeedId]:
    """The changefeed goes on."""
    id = product.create(database, source=source, start=str(window.start.ts), capture=capture)
    product.until_begun(id)
    with product.usage(servers) as usage:
        product.until_at(id, window.end)
    return Run(usage, _EVENTS), id


def _lags(write: Callable[[int], object], stack: DevStack, database: str) -> list[float]:
    """A few rows a second, so that the other shards have nothing to tell. The first ones are replicated while a long-running task starts."""
    with connect(stack.target_uri) as target:
        rows = target[target_of(database)].get_collection(_TABLE)
        first = range(_EVENTS, _EVENTS + _ROWS // 3)
        lags(write, rows, first, rate=_RATE)
        return lags(write, rows, range(first.stop, first.stop + _ROWS), rate=_RATE)


def _batches(shards: int = 1) -> Iterator[list[RawBSONDocument]]:
    """The rows of a batch are of one shard."""
    for first in range(0, _EVENTS, _BATCH):
        key = first // _BATCH % shards
        numbers = range(first, first + _BATCH)
        yield [RawBSONDocument(bson.encode({"_id": each, "k": key, "s": "x" * _TEXT})) for each in numbers]


def _parts(run: Run) -> str:
    return " ".join(f"{part} {run.micros(part):.1f}" for part in OURS)


def _database() -> str:
    return f"bench_{uuid.uuid4().hex[:8]}"


def _port(stack: DevStack) -> int:
    with connect(stack.source_uri) as source:
        source.admin.command("ping")
        _, port = next(iter(source.nodes))
        return int(port or 0)
