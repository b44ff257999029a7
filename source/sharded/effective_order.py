"""In which order the entries of a cluster's streams take effect, and up to which time all of them are known. Pure.

**Units** (`Unit`, `Prepares`): which entries of a stream take effect together, at which time, and which transactions are undecided. The effective time of a transaction across shards is its commit timestamp C, the same on all of them: it is the greatest time of a prepare,
and the shards log the commit at times of their own:

    sa   prepare 302.40                            commitTransaction 302.42, C = 302.40      takes effect at 302.40
    sb   prepare 302.38   other rows 302.41, ...   commitTransaction 303.2,  C = 302.40      takes effect at 302.40

Between the two entries nothing else writes the documents of the transaction on that shard. Any other entry takes effect at its own time.

**Places** (`place_of`): entries of two shards may have one time: the clocks of shards agree on causes, they do not number the cluster's writes. So a place names
the shard too, and the number of the operation among those that take effect there at that time:

                                        turn  shard            number
    sa   drop at 458.151       458.151/ 00    3655EFD20DBE4F   00000000
    sb   drop at 458.151       458.151/ 00    AD25CB01883767   00000000
    sb   another DDL of it     458.151/ 00    AD25CB01883767   00000000.0001
    sb   insert at 458.151     458.151/ 03    AD25CB01883767   00000000

A DDL sorts before the rows of its time: a transaction may create the table that it fills. The turns of rows are told in `rows/row_places.py`. The shard is a digest
of its name, so that all places have one width, and a place stays what it is whichever shards come and go.

**Resolved** (`resolved`, `nudges`): up to which time a cluster's history is complete, and which streams are asked to move on.

    stream   majority point   oldest undecided prepare   complete below
    cfg      100.9            none                       100.10
    sa       105.2            103.1                      103.1
    sb       101.4            none                       101.5

Everything of an effective time below 100.10 is known: the streams have it, and no undecided transaction can still commit below it, as its
commit timestamp is not before any of its prepares. Here cfg holds the rest back. It is idle, and writes a no-op each second, a shard each
ten seconds. If a row or a DDL waits on sa, cfg and sb are nudged to 105.2: they write a no-op and answer once their majority has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from typing import Any, TypeAlias

from changefeed.cluster_time import ClusterTime
from changefeed.position import Position

Operation: TypeAlias = Mapping[str, Any]
TransactionKey: TypeAlias = tuple[object, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """Operations of one stream with one effective time, in their order."""

    ts: ClusterTime
    stream: str
    entry_ts: ClusterTime
    operations: tuple[Operation, ...]
    wall: Any = None


def transaction_key(session: Mapping[str, Any], number: int) -> TransactionKey:
    """`session`: the `lsid` of an entry, or the `_id` of a document in `config.transactions`."""
    return (
        *sorted((name, bytes(value) if isinstance(value, bytes) else value) for name, value in session.items()),
        number,
    )


def key_of_entry(entry: Operation) -> TransactionKey | None:
    """None if no transaction prepares, commits or aborts with this entry."""
    if entry["op"] != "c" or "lsid" not in entry or "txnNumber" not in entry:
        return None
    return transaction_key(entry["lsid"], entry["txnNumber"])


def commit_ts(entry: Operation) -> ClusterTime | None:
    """The commit timestamp, if this entry commits a prepared transaction."""
    o = entry["o"]
    if entry["op"] != "c" or "commitTransaction" not in o:
        return None
    return ClusterTime.from_bson(o.get("commitTimestamp") or entry["ts"])


def effective_ts(entry: Operation) -> ClusterTime:
    return commit_ts(entry) or ClusterTime.from_bson(entry["ts"])


@dataclass(slots=True)
class Prepares:
    """The prepared transactions of one stream that are not decided, each by a time that is not after its prepare."""

    _open: dict[TransactionKey, ClusterTime] = field(default_factory=dict)
    _commits: list[tuple[ClusterTime, ClusterTime]] = field(default_factory=list)
    """Commit timestamp and time of the entry."""
    last_commit_ts: ClusterTime | None = None
    """Of the entry."""
    longest_seconds: int = 0
    """Between the two, of all that were read."""

    def listed(self, key: TransactionKey, first_ts: ClusterTime) -> None:
        """Prepared before the first entry that was read."""
        self._open[key] = first_ts

    def take(self, entry: Operation) -> None:
        """Entries in the order of the stream."""
        key = key_of_entry(entry)
        if key is None:
            return
        entry_ts, o = ClusterTime.from_bson(entry["ts"]), entry["o"]
        if o.get("prepare"):
            self._open.setdefault(key, entry_ts)
        elif "commitTransaction" in o or "abortTransaction" in o:
            self._open.pop(key, None)
            decided_ts = commit_ts(entry)
            if decided_ts is not None:
                self._commits.append((decided_ts, entry_ts))
                self.last_commit_ts = entry_ts
                self.longest_seconds = max(self.longest_seconds, entry_ts.seconds - decided_ts.seconds)

    @property
    def oldest_ts(self) -> ClusterTime | None:
        return min(self._open.values(), default=None)

    @property
    def undecided(self) -> AbstractSet[TransactionKey]:
        return self._open.keys()

    def until(self, end_ts: ClusterTime) -> ClusterTime:
        """Where a reader of effective times below `end_ts` has found every commit. `end_ts` is or was resolved."""
        late = [entry_ts.next() for decided_ts, entry_ts in self._commits if decided_ts < end_ts <= entry_ts]
        return max(late, default=end_ts)

    def forget(self, before_ts: ClusterTime) -> None:
        """No end before this time will be asked for."""
        self._commits = [each for each in self._commits if each[1] >= before_ts]


def numbered(place: Position, number: int) -> Position:
    """The place of each of several DDLs that one operation means. The first one has that of the operation."""
    return Position(place.ts, f"{place.token}.{number:04X}") if number else place


_DDL = "00"
"""The turn of DDLs."""


@lru_cache
def digits_of(stream: str) -> str:
    """That two of a thousand shards have the same has a probability of 7e-12. What no stream shows comes first."""
    return blake2b(stream.encode(), digest_size=7).hexdigest().upper() if stream else "0" * 14


def place_of(ts: ClusterTime, stream: str, index: int) -> Position:
    """Of a DDL: sorts by the stream, then as the operations of one stream do."""
    return Position(ts, f"{_DDL}{digits_of(stream)}{index:08X}")


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPoint:
    """How far one stream was read."""

    read_ts: ClusterTime
    """Exclusive: everything before it was read, and a majority has it."""
    prepared_ts: ClusterTime | None = None
    """The oldest prepare that was read without its decision."""
    waiting_ts: ClusterTime | None = None
    """A row or DDL of a user that was read here, and may not be resolved yet."""

    @property
    def complete_ts(self) -> ClusterTime:
        return self.read_ts if self.prepared_ts is None else min(self.read_ts, self.prepared_ts)


def resolved(points: Mapping[str, StreamPoint]) -> ClusterTime:
    """Exclusive, over all streams of the cluster."""
    return min(point.complete_ts for point in points.values())


def held_by(points: Mapping[str, StreamPoint]) -> tuple[str, ...]:
    """The streams that keep the resolved time from going on."""
    lowest = resolved(points)
    return tuple(sorted(name for name, point in points.items() if point.complete_ts == lowest))


def nudges(points: Mapping[str, StreamPoint]) -> Mapping[str, ClusterTime]:
    """The streams that have to reach a time so that what waits is resolved. A no-op waits for nobody: each nudge writes one.

    A stream that an undecided prepare holds is not nudged: no time helps.
    """
    lowest = resolved(points)
    waiting = [point.waiting_ts for point in points.values() if point.waiting_ts is not None]
    wanted = max((ts for ts in waiting if ts >= lowest), default=None)
    if wanted is None:
        return {}
    return {name: wanted for name, point in points.items() if point.read_ts <= wanted}
