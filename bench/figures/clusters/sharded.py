"""`sharded`: a backlog of inserts on one, two and three shards, and the lag of rows of one shard while the others are idle. Of two, into files too.

The baseline is the same load on one replica set, replicated by Sluice too, in turns.
"""

from __future__ import annotations

import statistics
import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import bson
from bson.raw_bson import RawBSONDocument

from bench.figures.lag import arriving_in, lags
from bench.product import Product, target_of
from bench.result import Figure
from bench.run import OURS, Run
from bench.workload import newest
from changefeed.capture import Capture
from changefeed.position import Position, Window
from changefeed.records.requests import ChangefeedId
from devstack.sharded.cluster import ShardedCluster
from devstack.sharded.ddl import ClusterDdl
from devstack.sharded.router import ClusterRouter
from devstack.sharded.wire import MAJORITY, Wire
from devstack.stack import DevStack
from sink.messages.files.directory import Directory
from sluice_client.feed_directory import FeedDirectory
from sluice_client.feed_reader import StoredMessage
from sluice_client.file_reader import Reader
from source.connection import Client, connect
from source.sharded.cluster_clients import ClusterClients, reach_newest

_EVENTS = 300_000
_SHARDS = ("sa", "sb", "sc")
_BATCH = 1_000
_TEXT = 160
_ROWS, _RATE = 60, 5
_TURNS = 8
_FILED = 2
"""With so many shards, into files too."""
_CACHE_GB = 2.0
"""As the replica set has."""
_TABLE = "rows"


def sharded(stack: DevStack) -> list[Figure]:
    with Product(stack) as product, connect(stack.source_uri) as source, connect(stack.target_uri) as target:
        product.warm_up(source)
        bench = _Bench(stack, product, target)
        one_set, one_lag, filed_lag = bench.on_a_replica_set(source)
        return [figure for count in (1, 2, 3) for figure in bench.on_shards(count, one_set, one_lag, filed_lag)]


@dataclass(frozen=True, slots=True)
class _Backlog:
    """Rows that a source holds in its oplogs."""

    database: str
    window: Window
    source: str
    capture: Capture
    servers: dict[str, int] = field(default_factory=dict)
    """The process ids of the source's servers, but for the stack's own."""


@dataclass(frozen=True, slots=True)
class _CaughtUp:
    rate: float
    micros: dict[str, float]
    """CPU time per event, by part."""

    @property
    def cost(self) -> float:
        return sum(self.micros.values())

    @property
    def parts(self) -> str:
        return " ".join(f"{part} {micros:.1f}" for part, micros in self.micros.items())


def _mean(runs: Sequence[_CaughtUp]) -> _CaughtUp:
    micros = {part: statistics.mean(run.micros[part] for run in runs) for part in runs[0].micros}
    return _CaughtUp(statistics.mean(run.rate for run in runs), micros)


class _Bench:
    def __init__(self, stack: DevStack, product: Product, target: Client) -> None:
        self._stack, self._product, self._target = stack, product, target

    def on_a_replica_set(self, source: Client) -> tuple[_Backlog, list[float], list[float]]:
        """The backlog, and the lag of rows after it, into files too."""
        database = _database()
        with Wire(_port(source)) as wire:
            source[database].create_collection(_TABLE)
            start = newest(source)
            for documents in _batches():
                wire.command(database, {"insert": _TABLE, "documents": documents, "writeConcern": MAJORITY})
            backlog = _Backlog(database, Window(start, newest(source)), self._stack.source_uri, Capture.OPLOG)

            def write(number: int) -> None:
                wire.command(database, {"insert": _TABLE, "documents": [{"_id": number}], "writeConcern": MAJORITY})

            return backlog, self._lags(write, backlog), self._lags(write, backlog, files=True)

    def on_shards(
        self, count: int, one_set: _Backlog, lag_of_one: list[float], filed_lag: list[float]
    ) -> Iterator[Figure]:
        database = _database()
        ns = f"{database}.{_TABLE}"
        with (
            tempfile.TemporaryDirectory(prefix="sluice-bench-") as directory,
            ShardedCluster(
                Path(directory) / "data", Path(directory) / "log", shards=_SHARDS[:count], cache_gb=_CACHE_GB
            ) as cluster,
            cluster.router() as router,
            closing(ClusterClients(cluster.config.uri)) as clients,
        ):
            _spread(router, database, ns, cluster)
            start = Position(reach_newest(clients).next())
            for number, documents in enumerate(_batches(count)):
                shard = _SHARDS[number % count]
                command = {"insert": _TABLE, "documents": documents, "writeConcern": MAJORITY}
                router.wire(shard).command(database, {**command, **router.versions(ns, shard)})
            window = Window(start, Position(reach_newest(clients).next()))
            servers = {name: each.members[0].pid for name, each in cluster.shards.items()}
            servers["config"] = cluster.config.members[0].pid
            shards = _Backlog(database, window, cluster.config.uri, Capture.SHARD_OPLOGS, servers)
            yield from self._figures(f"sharded_{count}", one_set, shards)

            def write(number: int) -> None:
                router.insert(ns, {"_id": number, "k": 0})

            if count == _FILED:
                yield from self._figures(f"sharded_{count}_files", one_set, shards, files=True)
                yield _lag(f"sharded_{count}_files", self._lags(write, shards, files=True), filed_lag)
            yield _lag(f"sharded_{count}", self._lags(write, shards), lag_of_one)

    def _figures(self, name: str, one_set: _Backlog, shards: _Backlog, *, files: bool = False) -> Iterator[Figure]:
        """The means of runs in turns, as the machine's pace changes within seconds."""
        turns = [(self._caught_up(one_set, files), self._caught_up(shards, files)) for _ in range(_TURNS)]
        base, ours = (_mean([turn[side] for turn in turns]) for side in (0, 1))
        yield Figure.more_is_better(f"{name}_catch_up", ours.rate, "events/s", baseline=base.rate)
        note = f"{ours.parts}; one replica set: {base.parts}; turns " + ", ".join(
            f"{run.cost:.1f}/{one.cost:.1f}" for one, run in turns
        )
        yield Figure.less_is_better(f"{name}_cpu", ours.cost, "us/event", baseline=base.cost, note=note)

    def _caught_up(self, backlog: _Backlog, files: bool) -> _CaughtUp:
        """Into an empty target."""
        sink = f"file://{self._stack.directory / uuid.uuid4().hex}?commit_interval=1s" if files else None
        id = self._create(backlog, str(backlog.window.start.ts), sink)
        self._product.until_begun(id)
        with self._product.usage(backlog.servers) as usage:
            self._product.until_at(id, backlog.window.end)
        self._remove(id, backlog)
        run = Run(usage, _EVENTS)
        micros = {part: run.micros(part) for part in (*OURS, "target")}
        return _CaughtUp(run.rate, {**micros, "source": run.micros(*(backlog.servers or ("source",)))})

    def _lags(self, write: Callable[[int], object], backlog: _Backlog, *, files: bool = False) -> list[float]:
        """A few rows a second, so that the other shards have nothing to tell. The first ones are replicated while a long-running task starts."""
        directory = self._stack.directory / uuid.uuid4().hex
        sink = f"file://{directory}?commit_interval=1s" if files else None
        id = self._create(backlog, str(backlog.window.end.ts), sink)
        self._product.until_begun(id)
        rows = self._target[target_of(backlog.database)].get_collection(_TABLE)
        arriving = _shown_in(directory) if files else arriving_in(rows)
        begin = _EVENTS + 2 * _ROWS * files
        first = range(begin, begin + _ROWS // 3)
        lags(write, arriving, first, rate=_RATE)
        measured = lags(write, arriving, range(first.stop, first.stop + _ROWS), rate=_RATE)
        self._remove(id, backlog)
        return measured

    def _create(self, backlog: _Backlog, start: str, sink: str | None = None) -> ChangefeedId:
        return self._product.create(
            backlog.database, source=backlog.source, sink=sink, start=start, capture=backlog.capture
        )

    def _remove(self, id: ChangefeedId, backlog: _Backlog) -> None:
        self._product.remove(id)
        self._product.until_gone(id)
        self._target.drop_database(target_of(backlog.database))


def _lag(name: str, ours: list[float], of_one: list[float]) -> Figure:
    worst = f"the longest: {max(ours):.0f}, on the replica set {max(of_one):.0f}"
    medians = statistics.median(ours), statistics.median(of_one)
    return Figure.less_is_better(f"{name}_lag_median", medians[0], "ms", baseline=medians[1], note=worst)


def _shown_in(directory: Path) -> Callable[[int], list[int]]:
    """What a reader that follows the files is shown."""
    reader = Reader(FeedDirectory(Directory(str(directory))))

    def shown(_: int) -> list[int]:
        round = reader.look()
        contents = [each.content for each in reader.read(round)] if round is not None else []
        messages = [each.fields for each in contents if isinstance(each, StoredMessage)]
        return [each["key"]["_id"] for each in messages if each["op"] == "i"]

    return shown


def _spread(router: ClusterRouter, database: str, ns: str, cluster: ShardedCluster) -> None:
    """A chunk on each shard. Each batch has rows of one."""
    ddl = ClusterDdl(router)
    ddl.create_database(database, primary=_SHARDS[0])
    ddl.shard(ns, {"k": 1})
    for number, shard in list(enumerate(cluster.shards))[1:]:
        ddl.split(ns, {"k": number})
        ddl.move(ns, {"k": number}, shard)
    router.refresh()


def _batches(shards: int = 1) -> Iterator[list[RawBSONDocument]]:
    """The rows of a batch are of one shard."""
    for first in range(0, _EVENTS, _BATCH):
        key = first // _BATCH % shards
        numbers = range(first, first + _BATCH)
        yield [RawBSONDocument(bson.encode({"_id": each, "k": key, "s": "x" * _TEXT})) for each in numbers]


def _database() -> str:
    return f"bench_{uuid.uuid4().hex[:8]}"


def _port(source: Client) -> int:
    source.admin.command("ping")
    _, port = next(iter(source.nodes))
    return int(port or 0)
