"""`ClusterWatch`: the DDL of a sharded cluster in order, and up to which time its history is complete, as one stream.

    config   ─┐
    sa       ─┼─ units by effective time ── below resolved ── LiveTables ── DDL of the cluster
    sb       ─┘

A start needs a bare time only: the catalogs of now are rewound to it (`rewind.py`), and so are the shards.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

import structlog

from changefeed.cluster_time import ClusterTime
from changefeed.errors import HistoryLost, RetryableError
from changefeed.position import Position
from changefeed.sharded_history import ShardedHistory, ShardHistory
from changefeed.table import TableId, TableName
from source.sharded.catalog_reading import (
    OplogsBefore,
    read_chunks,
    read_collections,
    read_config,
    read_indexes,
    read_views,
)
from source.sharded.cluster_clients import CONFIG, ClusterClients
from source.sharded.effective_order import Operation, Unit, held_by, nudges, place_of, resolved
from source.sharded.owned.cluster_catalog import refuse_orphans
from source.sharded.row_reader import RowRange
from source.sharded.stream import ClusterStream, caught_up, in_order, operations_of, wait_for_start
from source.sharded.tables.cluster_state import (
    DATABASES,
    GONE,
    SHARDS,
    ClusterChange,
    NewUuid,
    changed_field,
    document_id,
)
from source.sharded.tables.live_tables import LiveTables
from source.sharded.tables.orphan_guard import OrphanGuard
from source.sharded.tables.owned_ddl import IndexName, OwnedDdl, rewound_indexes
from source.sharded.tables.rewind import rewound, rewound_shard
from source.tables.row_read import one_term

_SHORTEST_WAIT, _LONGEST_WAIT = 0.05, 0.2
_THREADS = 16

T = TypeVar("T")

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterStep:
    """The changes below `resolved` that no earlier step had."""

    changes: tuple[ClusterChange, ...]
    resolved: ClusterTime
    """Exclusive: every unit of an effective time below it is known. It never goes back."""
    ranges: Mapping[str, RowRange]
    """By shard: where the rows are that no earlier step had."""
    history: ShardedHistory
    end_ts: ClusterTime
    """Everything that users had written when the streams answered is below it."""
    held_by: tuple[str, ...]
    """The streams that are least far."""
    trouble: Mapping[str, RetryableError] = field(default_factory=dict)
    """Streams that did not answer. They hold `resolved`."""


class ClusterWatch:
    """For one thread. `start_ts` was resolved once, or is any time; `ids` are the tables of UUIDs that superseded their first one."""

    def __init__(
        self, clients: ClusterClients, start_ts: ClusterTime, ids: Mapping[TableId, TableId] | None = None
    ) -> None:
        self._clients = clients
        self._resolved = start_ts
        self._streams: dict[str, ClusterStream] = {}
        self._pending: list[Unit] = []
        self._added: dict[str, _AddedShard] = {}
        """Shards of which the config servers' oplog tells, and which are not read yet."""
        self._arriving: dict[str, _ArrivingShard] = {}
        self._threads = ThreadPoolExecutor(_THREADS, "shards")
        self._since: dict[str, ClusterTime] = {}
        self._former: dict[str, ShardHistory] = {}
        self._longest_seconds = 0
        """Between a commit timestamp and the commit's entry, of any shard so far, also of one that has left: it is still read."""
        """Shards that were removed."""
        self._removed: dict[str, ClusterTime] = {}
        """When, as the config servers' oplog tells. Not all of them are read up to there."""
        self._gone: set[str] = set()
        """Those of them that nobody can read any more."""
        self._wait = 0.0
        self._guard = OrphanGuard()
        try:
            self.tables, self.owned = self._opened(start_ts, ids or {})
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """May be called again. The connections stay open."""
        self._threads.shutdown(cancel_futures=True)
        for stream in self._streams.values():
            stream.close()

    @property
    def shards(self) -> tuple[str, ...]:
        return tuple(sorted(name for name in self._streams if name != CONFIG))

    def poll(self) -> ClusterStep:
        time.sleep(self._wait)
        trouble = self._read(self._readable)
        trouble |= self._admit()
        self._give_up(trouble)
        trouble |= {name: each.stalled for name, each in self._streams.items() if each.stalled is not None}
        before = self._resolved
        self._advance()
        trouble |= self._nudge(trouble)
        self._advance()
        self._wait = _SHORTEST_WAIT if self._resolved > before else min(2 * self._wait, _LONGEST_WAIT) or _SHORTEST_WAIT
        ranges = {
            name: RowRange(
                start_ts=max(before, stream.start_ts),
                end_ts=self._resolved,
                until_ts=stream.prepares.until(self._resolved),
            )
            for name, stream in self._streams.items()
            if name != CONFIG and stream.start_ts < self._resolved
        }
        seconds = (stream.prepares.longest_seconds for stream in self._streams.values())
        self._longest_seconds = max(self._longest_seconds, *seconds)
        end_ts, changes = self._end(), tuple(self._released())
        history = self._history()
        for stream in self._streams.values():
            stream.prepares.forget(self._resolved)
        return ClusterStep(
            history=history,
            end_ts=end_ts,
            changes=changes,
            resolved=self._resolved,
            ranges=ranges,
            held_by=held_by({name: stream.point for name, stream in self._streams.items()}),
            trouble=trouble,
        )

    @property
    def _readable(self) -> list[ClusterStream]:
        return [stream for name, stream in self._streams.items() if name not in self._gone]

    def _history(self) -> ShardedHistory:
        shards = {
            name: ShardHistory(
                host=self._clients.host(name),
                since_ts=self._since.get(name),
                until_ts=self._removed[name] if name in self._gone else None,
                gone=name in self._gone,
                quiet_ts=stream.quiet_ts,
                late_ts=late_ts if (late_ts := stream.prepares.until(self._resolved)) > self._resolved else None,
            )
            for name, stream in self._streams.items()
            if name != CONFIG
        }
        return ShardedHistory(
            resolved_ts=self._resolved, seconds=self._longest_seconds, shards={**self._former, **shards}
        )

    def _end(self) -> ClusterTime:
        """Beyond `resolved` only if a row or a DDL waits, or a stream may have one: a periodic no-op of one shard makes no lag."""
        points = [each.point for each in self._streams.values()]
        waits = bool(self._pending) or any(point.waiting_ts is not None for point in points)
        return max(point.read_ts for point in points) if waits else self._resolved

    def _advance(self) -> None:
        reached = resolved({name: each.point for name, each in self._streams.items()})
        reached = min([reached, *(shard.ts for shard in self._added.values())])
        self._resolved = max(self._resolved, reached)

    def _read(self, streams: Iterable[ClusterStream]) -> dict[str, RetryableError]:
        trouble: dict[str, RetryableError] = {}
        for units in self._at_once({each.name: each.poll for each in streams}, trouble).values():
            self._take(units)
        return trouble

    def _take(self, units: Iterable[Unit]) -> None:
        for unit in units:
            self._pending.append(unit)
            for operation in unit.operations:
                if operation["ns"] == str(SHARDS) and operation["op"] == "i":
                    self._added[operation["o"]["_id"]] = _AddedShard(operation["o"]["host"], unit.ts)
                if operation["ns"] == str(SHARDS) and operation["op"] == "d":
                    self._removed[str(document_id(operation))] = unit.ts

    def _give_up(self, trouble: dict[str, RetryableError]) -> None:
        """A shard that was removed and does not answer holds `resolved` until it is gone. What it told last stands before it is left out."""
        for shard, removed_ts in self._removed.items():
            stream = self._streams.get(shard)
            if stream is None or shard not in trouble or shard in self._gone or stream.point.complete_ts > removed_ts:
                continue
            try:
                silence = self._clients.silence(shard, self._clients.host(shard))
            except RetryableError:
                continue
            why = f"shard {shard} was removed at {removed_ts}, but its history from {stream.point.complete_ts} on is needed"
            if silence is not None and not silence.over:
                trouble[shard] = silence.told(why)
            elif silence is not None:
                pending = [each for unit in in_order(self._pending) for each in unit.operations]
                _refuse_primary(shard, why, self.tables.primaries, pending)
                last_ts = max(stream.point.read_ts, self._resolved)
                left_out = {"op": GONE, "ns": str(SHARDS), "o": {"_id": shard}}
                self._pending.append(Unit(ts=last_ts, stream="", entry_ts=last_ts, operations=(left_out,)))
                stream.give_up(removed_ts)
                self._gone.add(shard)
                del trouble[shard]
                log.warning("shard_gone", shard=shard, removed=str(removed_ts), reason=str(silence.error))

    def _nudge(self, away: Container[str]) -> dict[str, RetryableError]:
        """Has streams that are not `away` reach what waits for them."""
        points = {name: each.point for name, each in self._streams.items()}
        if all(point.read_ts == self._resolved for point in points.values()):
            return {}
        trouble: dict[str, RetryableError] = {}
        looks = {
            each.name: partial(each.look_for_rows, self._resolved) for each in self._readable if each.name not in away
        }
        self._at_once(looks, trouble)
        points = {name: each.point for name, each in self._streams.items()}
        asked = {name: ts for name, ts in nudges(points).items() if name not in away and name not in self._gone}
        if not asked:
            return trouble
        furthest = max(points.keys() - self._gone, key=lambda name: points[name].read_ts)
        proof = self._streams[furthest].cluster_time
        self._at_once({name: partial(self._streams[name].nudge, ts, proof) for name, ts in asked.items()}, trouble)
        return trouble | self._read([self._streams[name] for name in asked if name not in trouble])

    def _at_once(self, calls: Mapping[str, Callable[[], T]], trouble: dict[str, RetryableError]) -> dict[str, T]:
        running = {name: self._threads.submit(call) for name, call in calls.items()}
        done: dict[str, T] = {}
        for name, each in running.items():
            try:
                done[name] = each.result()
            except RetryableError as error:
                trouble[name] = error
        return done

    def _released(self) -> Iterable[ClusterChange]:
        ready = in_order([unit for unit in self._pending if unit.ts < self._resolved])
        self._pending = [unit for unit in self._pending if unit.ts >= self._resolved]
        for unit in ready:
            for index, operation in enumerate(unit.operations):
                at, timed = place_of(unit.ts, unit.stream, index), {**operation, "wall": unit.wall}
                self._guard.take(unit.stream, operation, at)
                self.owned.coordinated = not self._guard.on
                yield from self.owned.take(unit.stream, timed, at)
                for change in self.tables.take(unit.stream, timed, at):
                    yield change
                    if isinstance(change, NewUuid):
                        yield from self.owned.superseded(change)
                if operation["ns"] == str(SHARDS):
                    self._shard_changed(operation, at)

    def _shard_changed(self, operation: Operation, at: Position) -> None:
        shard = str(document_id(operation))
        if operation["op"] == "i" and shard in self._arriving:
            arriving = self._arriving.pop(shard)
            self.tables.shard_added(shard, arriving.collections, arriving.views)
            self.owned.shard_added(shard, arriving.indexes)
        elif operation["op"] == "d":
            if shard in self._streams:
                self._streams.pop(shard).close()
            self._former[shard] = ShardHistory(
                host=self._clients.host(shard),
                since_ts=self._since.pop(shard, None),
                until_ts=at.ts,
                gone=shard in self._gone,
            )

    def _admit(self) -> dict[str, RetryableError]:
        """Begins to read shards from the time at which they were added. Until then `resolved` stays below it."""
        trouble: dict[str, RetryableError] = {}
        for shard, added in list(self._added.items()):
            try:
                views = read_views(self._clients.of(shard, added.host), shard)
                opened = self._open(shard, added.host, added.ts, None)
            except RetryableError as error:
                trouble[shard] = error
                continue
            del self._added[shard]
            self._since[shard] = added.ts
            operations = operations_of(opened.units)
            by_shard = {uuid: {shard: found} for uuid, found in opened.indexes.items()}
            indexes = rewound_indexes(by_shard, {shard: operations})
            self._arriving[shard] = _ArrivingShard(
                rewound_shard(opened.collections, operations),
                {uuid: each[shard] for uuid, each in indexes.items()},
                views,
            )
            self._pending += opened.units
        return trouble

    def _open(self, shard: str, host: str, start_ts: ClusterTime, wanted: frozenset[TableId] | None) -> _OpenedShard:
        """`wanted`: UUIDs of which the indexes matter. None: all."""
        client = self._clients.of(shard, host)
        stream = ClusterStream(shard, client, start_ts)
        stream.reach_start(self._streams[CONFIG].cluster_time)
        wait_for_start(stream)
        with one_term(client, f"reading the collections of shard {shard}"):
            collections = read_collections(client, shard)
            asked = {
                uuid: name
                for uuid, name in collections.items()
                if (not name.system if wanted is None else uuid in wanted)
            }
            indexes = read_indexes(client, shard, asked)
        units = caught_up(stream)
        self._streams[shard] = stream
        return _OpenedShard(collections, indexes, units)

    def _former_host(self, shard: str, removed_ts: ClusterTime, start_ts: ClusterTime) -> str:
        """Of a shard that was removed after the start. It has history that is needed, and has to run until that was read, unless it is gone."""
        host = self._clients.read_former_host(shard)
        why = f"shard {shard} was removed at {removed_ts}, but its history from {start_ts} on is needed"
        if host is None:
            raise HistoryLost(
                f"{why}, and config.changelog no longer says where it is; remove the changefeed and create it again with a new initial copy"
            )
        silence = self._clients.silence(shard, host)
        if silence is not None and not silence.over:
            raise silence.told(why)
        if silence is not None:
            self._gone.add(shard)
            self._former[shard] = ShardHistory(host=host, until_ts=removed_ts, gone=True)
            log.warning("shard_gone", shard=shard, removed=str(removed_ts), reason=str(silence.error))
        return host

    def _opened(self, start_ts: ClusterTime, ids: Mapping[TableId, TableId]) -> tuple[LiveTables, OwnedDdl]:
        self._clients.refuse_others()
        client = self._clients.config
        stream = ClusterStream(CONFIG, client, start_ts, config=True)
        wait_for_start(stream)
        with one_term(client, "reading the catalog of the config servers"):
            config, hosts = read_config(client), dict(self._clients.read_shards())
            chunks = read_chunks(client, start_ts)
            features = self._clients.read_features()
        config_units = caught_up(stream)
        self._streams[CONFIG] = stream
        for unit in config_units:
            for operation in unit.operations:
                if operation["ns"] == str(SHARDS) and operation["op"] == "d":
                    removed = str(document_id(operation))
                    hosts[removed] = self._former_host(removed, unit.ts, start_ts)
                if operation["ns"] == str(SHARDS) and operation["op"] == "i":
                    hosts.pop(operation["o"]["_id"], None)
        config_operations = operations_of(config_units)
        self._guard = OrphanGuard.of(features, config_operations)
        hosts = {name: host for name, host in hosts.items() if name not in self._gone}
        wanted = config.filling.union(config.sharded.values())
        opening = {name: self._threads.submit(self._open, name, host, start_ts, wanted) for name, host in hosts.items()}
        opened = {name: each.result() for name, each in opening.items()}
        for name, host in hosts.items() if self._guard.on else ():
            refuse_orphans(self._clients.of(name, host), name)
        operations = {name: operations_of(each.units) for name, each in opened.items()}
        state = rewound(
            config,
            config_operations,
            {name: each.collections for name, each in opened.items()},
            operations,
            OplogsBefore(self._clients, start_ts),
        )
        for shard in self._gone:
            why = f"shard {shard} was removed at {self._former[shard].until_ts}, but its history from {start_ts} on is needed"
            _refuse_primary(shard, why, state.primaries, config_operations)
        self._take(config_units)
        for shard in self._gone:
            self._added.pop(shard, None)
        indexes: dict[TableId, dict[str, Mapping[IndexName, Mapping[str, Any]]]] = {}
        for name, each in opened.items():
            self._pending += each.units
            for uuid, found in each.indexes.items():
                indexes.setdefault(uuid, {})[name] = found
        tables = LiveTables.of(state, ids)
        return tables, OwnedDdl.of(tables, chunks, rewound_indexes(indexes, operations), operations, self._gone)


@dataclass(frozen=True, slots=True)
class _OpenedShard:
    collections: Mapping[TableId, TableName]
    indexes: Mapping[TableId, Mapping[IndexName, Mapping[str, Any]]]
    units: list[Unit]


@dataclass(frozen=True, slots=True)
class _ArrivingShard:
    """What it had when it was added."""

    collections: Mapping[TableId, TableName]
    indexes: Mapping[TableId, Mapping[IndexName, Mapping[str, Any]]]
    views: tuple[TableName, ...]


@dataclass(frozen=True, slots=True)
class _AddedShard:
    host: str
    ts: ClusterTime


def _refuse_primary(shard: str, why: str, primaries: Mapping[str, str], operations: Iterable[Operation]) -> None:
    """Of a shard that is gone. It alone logs the DDL of unsharded tables and of views."""
    primary_of = {db for db, primary in primaries.items() if primary == shard}
    for operation in operations:
        if (
            operation["ns"] == str(DATABASES)
            and operation["op"] != "d"
            and changed_field(operation, "primary") == shard
        ):
            primary_of.add(document_id(operation))
    if primary_of:
        raise HistoryLost(
            f"{why}. It is gone, and it was the primary shard of {', '.join(sorted(primary_of))}, whose schema changes no other shard has; "
            "remove the changefeed and create it again with a new initial copy"
        )
