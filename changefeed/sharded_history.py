"""`ShardedHistory`: where the history of a sharded source stands: in the oplogs of which shards, from where to where. Pure.

The owner has read all oplogs up to `resolved_ts`, and tells with each barrier what it saw. So any node can read any window below it.

A transaction across shards counts by its commit timestamp C, and each shard logs the commit at a time of its own. A reader of the window
[a, b) has to find the commits of C below b that stand at b or beyond:

    resolved_ts 110    seconds 2    late_ts of sb 113.4

    window ends at      sa is read up to      sb is read up to
    100                 103                   103             2 whole seconds later: no commit was ever logged later than that
    109                 110                   112
    110                 110                   113.4           all that sb may lack is below it
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from changefeed.cluster_time import ClusterTime
from changefeed.source_history import SourceHistory


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardHistory:
    """`host` is that of `config.shards`. It was a shard in [since_ts, until_ts); None: before all that is read, and still.

    `gone`: it was removed, and nobody can read it any more. Tables that it may have had are lost, and the others do not need it.
    """

    host: str
    since_ts: ClusterTime | None = None
    until_ts: ClusterTime | None = None
    gone: bool = False
    quiet_ts: ClusterTime | None = None
    """The shard logs no commit of a transaction of several shards from here to where it was read. None: unknown."""
    late_ts: ClusterTime | None = None
    """Just after its last commit that stands beyond `resolved_ts` and counts below it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardedHistory:
    """For windows that end at `resolved_ts` or before."""

    resolved_ts: ClusterTime
    seconds: int = 0
    """The most seconds between a commit timestamp and the entry of the commit."""
    shards: Mapping[str, ShardHistory]

    @property
    def whole_from(self) -> ClusterTime:
        removed = (shard.until_ts for shard in self.shards.values() if shard.until_ts is not None)
        return max(removed, default=ClusterTime(0, 0))

    def after(self, before: SourceHistory | None) -> ShardedHistory:
        """`before`: what an earlier watch saw, whose windows may not have been read yet."""
        before = opened(before)
        if before is None:
            return self
        shards = {**before.shards, **self.shards}
        for name in before.shards.keys() & self.shards.keys():
            then, now = before.shards[name], self.shards[name]
            if not then.gone:
                shards[name] = replace(now, since_ts=now.since_ts or then.since_ts)
            elif now.until_ts is not None and now.until_ts == then.until_ts:
                shards[name] = then
        return replace(self, seconds=max(self.seconds, before.seconds), shards=shards)

    def without(self, gone: Collection[str]) -> ShardedHistory:
        """These shards are gone for good."""
        if not gone:
            return self
        flagged = {name: replace(self.shards[name], gone=True) for name in gone}
        return replace(self, shards={**self.shards, **flagged})

    def until(self, shard: str, end_ts: ClusterTime) -> ClusterTime:
        """Where a reader of commit timestamps below `end_ts` has found every commit. The shard has reached it: a removed one goes no further."""
        known = self.shards[shard]
        end_ts = min(end_ts, known.until_ts or end_ts)
        last_ts = known.late_ts or known.until_ts or self.resolved_ts
        return max(end_ts, min(last_ts, ClusterTime(end_ts.seconds + self.seconds + 1, 0)))


def opened(history: SourceHistory | None) -> ShardedHistory | None:
    """Histories are given to the kind of source that showed them only."""
    assert history is None or isinstance(history, ShardedHistory), f"expected a ShardedHistory, observed {history!r}"
    return history
