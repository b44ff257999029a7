"""`ClusterWatch`: the DDL of a sharded cluster in order, and up to which time its history is complete, as one stream.

    config   ─┐
    sa       ─┼─ units by effective time ── below resolved ── LiveTables ── DDL of the cluster
    sb       ─┘

A start needs a bare time only: the catalogs of now are rewound to it (`cluster_opening.py`). Shards come and go (`shard_roster.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import structlog

from changefeed.cluster_time import ClusterTime
from changefeed.errors import RetryableError, SluiceError, SourceUnavailable
from changefeed.position import Position
from changefeed.sharded_history import ShardedHistory
from changefeed.table import TableId
from source.sharded.cluster_clients import CONFIG, ClusterClients
from source.sharded.cluster_opening import ClusterOpening, refuse_lost_primary
from source.sharded.effective_order import Operation, Unit, held_by, nudges, place_of, resolved
from source.sharded.shard_roster import ShardRoster
from source.sharded.stream import ClusterStream, in_order
from source.sharded.tables.cluster_state import (
    GONE,
    SHARDS,
    ClusterChange,
    NewUuid,
    database_not_followed,
    document_id,
)

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
        self._roster = ShardRoster()
        self._threads = ThreadPoolExecutor(_THREADS, "shards")
        self._opening = ClusterOpening(clients, self._threads, self._streams, self._roster)
        self._longest_seconds = 0
        """Between a commit timestamp and the commit's entry, of any shard so far, also of one that has left: it is still read."""
        self._wait = 0.0
        try:
            opened = self._opening.open(start_ts, ids or {})
        except BaseException:
            self.close()
            raise
        self.tables, self.owned, self._guard = opened.tables, opened.owned, opened.guard
        self._pending = opened.units

    def close(self) -> None:
        """May be called again. The connections stay open."""
        self._threads.shutdown(cancel_futures=True)
        for stream in self._streams.values():
            stream.close()

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
            held_by=held_by({name: stream.point for name, stream in self._streams.items()}),
            trouble=trouble,
        )

    @property
    def _readable(self) -> list[ClusterStream]:
        return [stream for name, stream in self._streams.items() if name not in self._roster.gone]

    def _history(self) -> ShardedHistory:
        shards = {
            name: self._roster.present(
                name,
                self._clients.host(name),
                quiet_ts=stream.quiet_ts,
                late_ts=late_ts if (late_ts := stream.prepares.until(self._resolved)) > self._resolved else None,
            )
            for name, stream in self._streams.items()
            if name != CONFIG
        }
        return ShardedHistory(
            resolved_ts=self._resolved, seconds=self._longest_seconds, shards={**self._roster.former, **shards}
        )

    def _end(self) -> ClusterTime:
        """Beyond `resolved` only if a row or a DDL waits, or a stream may have one: a periodic no-op of one shard makes no lag."""
        points = [each.point for each in self._streams.values()]
        waits = bool(self._pending) or any(point.waiting_ts is not None for point in points)
        return max(point.read_ts for point in points) if waits else self._resolved

    def _advance(self) -> None:
        reached = resolved({name: each.point for name, each in self._streams.items()})
        reached = min([reached, *(shard.ts for shard in self._roster.added.values())])
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
                self._roster.read(operation, unit.ts)

    def _give_up(self, trouble: dict[str, RetryableError]) -> None:
        """A shard that was removed and does not answer holds `resolved` until it is gone. What it told last stands before it is left out."""
        for shard, removed_ts in self._roster.removed.items():
            stream = self._streams.get(shard)
            if (
                stream is None
                or shard not in trouble
                or shard in self._roster.gone
                or stream.point.complete_ts > removed_ts
            ):
                continue
            try:
                silence = self._clients.silence(shard, self._clients.host(shard))
            except RetryableError:
                continue
            why = f"shard {shard} was removed at {removed_ts}, but its history from {stream.point.complete_ts} on is needed"
            if shard in self._roster.added and self._roster.removed_before(shard):
                trouble[shard] = SourceUnavailable(
                    f"{why}, and it does not answer: {trouble[shard]}; start it again beside the one that was added under its name, or remove the "
                    "changefeed and create it again with a new initial copy"
                )
            elif silence is not None and not silence.over:
                trouble[shard] = silence.told(why)
            elif silence is not None:
                pending = [each for unit in in_order(self._pending) for each in unit.operations]
                refuse_lost_primary(shard, why, self.tables.primaries, pending)
                last_ts = max(stream.point.read_ts, self._resolved)
                left_out = {"op": GONE, "ns": str(SHARDS), "o": {"_id": shard}}
                self._pending.append(Unit(ts=last_ts, stream="", entry_ts=last_ts, operations=(left_out,)))
                stream.give_up(removed_ts)
                self._roster.gone.add(shard)
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
        asked = {name: ts for name, ts in nudges(points).items() if name not in away and name not in self._roster.gone}
        if not asked:
            return trouble
        furthest = max(points.keys() - self._roster.gone, key=lambda name: points[name].read_ts)
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
                self.owned.options.coordinated = not self._guard.on
                try:
                    yield from self._changes(unit.stream, timed, at)
                except SluiceError:
                    raise
                except Exception:  # of an entry that nobody foresaw
                    event = database_not_followed(operation, at)
                    if event is None:
                        raise
                    log.exception("cluster_entry_not_followed", stream=unit.stream, at=str(at))
                    yield event
                if operation["ns"] == str(SHARDS):
                    self._shard_changed(operation, at)

    def _changes(self, stream: str, operation: Operation, at: Position) -> Iterator[ClusterChange]:
        yield from self.owned.take(stream, operation, at)
        for change in self.tables.take(stream, operation, at):
            yield change
            if isinstance(change, NewUuid):
                yield from self.owned.superseded(change)

    def _shard_changed(self, operation: Operation, at: Position) -> None:
        shard = str(document_id(operation))
        if operation["op"] == "i" and (had := self._roster.arrived(shard)) is not None:
            self.tables.shard_added(shard, had.collections, had.views)
            self.owned.shard_added(shard, had.indexes)
        elif operation["op"] == "d":
            if shard in self._streams:
                self._streams.pop(shard).close()
            self._roster.left(shard, self._clients.host(shard), at.ts)

    def _admit(self) -> dict[str, RetryableError]:
        """Begins to read shards from the time at which they were added. Until then `resolved` stays below it.

        A former one of its name is read up to its removal first.
        """
        trouble: dict[str, RetryableError] = {}
        for shard, added in list(self._roster.added.items()):
            if shard in self._streams and self._roster.removed_before(shard):
                continue
            try:
                self._pending += self._opening.admit(shard, added)
            except RetryableError as error:
                trouble[shard] = error
        return trouble
