"""`Unit`, `Prepares`: which entries of a stream take effect together, at which time, and which transactions are undecided. Pure.

The effective time of a transaction across shards is its commit timestamp C, the same on all of them: it is the greatest time of a prepare,
and the shards log the commit at times of their own:

    sa   prepare 302.40                            commitTransaction 302.42, C = 302.40      takes effect at 302.40
    sb   prepare 302.38   other rows 302.41, ...   commitTransaction 303.2,  C = 302.40      takes effect at 302.40

Between the two entries nothing else writes the documents of the transaction on that shard. Any other entry takes effect at its own time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from changefeed.cluster_time import ClusterTime

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

    def until(self, end_ts: ClusterTime) -> ClusterTime:
        """Where a reader of effective times below `end_ts` has found every commit. `end_ts` is or was resolved."""
        late = [entry_ts.next() for decided_ts, entry_ts in self._commits if decided_ts < end_ts <= entry_ts]
        return max(late, default=end_ts)

    def forget(self, before_ts: ClusterTime) -> None:
        """No end before this time will be asked for."""
        self._commits = [each for each in self._commits if each[1] >= before_ts]
