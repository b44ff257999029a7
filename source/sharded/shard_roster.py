"""`ShardRoster`: which shards a cluster has and had since the watch began, and how each comes and goes. Pure.

added       the config servers' oplog tells of it. `resolved` stays below its time until its oplog is read
arriving    its oplog is read from that time on. What it had already becomes known when `resolved` passes the time
a stream    its oplog is read
removed     the config servers' oplog tells when. It is read up to there
former      `resolved` has passed its removal: only readers of rows still need it
gone        it was removed, and nobody can read it any more: removed or former, and never read again
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from changefeed.cluster_time import ClusterTime
from changefeed.sharded_history import ShardHistory
from changefeed.table import TableId, TableName
from source.sharded.effective_order import Operation
from source.sharded.tables.cluster_state import SHARDS, document_id
from source.sharded.tables.owned_ddl import IndexName


@dataclass(frozen=True, slots=True)
class AddedShard:
    host: str
    ts: ClusterTime


@dataclass(frozen=True, slots=True)
class ArrivingShard:
    """What it had when it was added."""

    collections: Mapping[TableId, TableName]
    indexes: Mapping[TableId, Mapping[IndexName, Mapping[str, Any]]]
    views: tuple[TableName, ...]


@dataclass(slots=True)
class ShardRoster:
    added: dict[str, AddedShard] = field(default_factory=dict)
    removed: dict[str, ClusterTime] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    former: dict[str, ShardHistory] = field(default_factory=dict)
    _arriving: dict[str, ArrivingShard] = field(default_factory=dict)
    _since: dict[str, ClusterTime] = field(default_factory=dict)
    """When shards were added that are read."""

    def read(self, operation: Operation, ts: ClusterTime) -> None:
        """An operation of the config servers was read. It may be beyond `resolved`."""
        if operation["ns"] != str(SHARDS):
            return
        if operation["op"] == "i":
            self.added[operation["o"]["_id"]] = AddedShard(operation["o"]["host"], ts)
        elif operation["op"] == "d":
            self.removed[str(document_id(operation))] = ts

    def removed_before(self, shard: str) -> bool:
        """Of a shard that was added: whether there was one of its name."""
        return shard in self.removed and self.removed[shard] < self.added[shard].ts

    def arrives(self, shard: str, had: ArrivingShard) -> None:
        if self.removed_before(shard):
            del self.removed[shard]
            self.gone.discard(shard)
        self._since[shard] = self.added.pop(shard).ts
        self._arriving[shard] = had

    def arrived(self, shard: str) -> ArrivingShard | None:
        """`resolved` has passed the time at which it was added. None: it was there when the watch began."""
        return self._arriving.pop(shard, None)

    def left(self, shard: str, host: str, until_ts: ClusterTime) -> None:
        """`resolved` has passed the time at which it was removed."""
        self.former[shard] = ShardHistory(
            host=host, since_ts=self._since.pop(shard, None), until_ts=until_ts, gone=shard in self.gone
        )

    def gone_before(self, shard: str, host: str, until_ts: ClusterTime) -> None:
        """It was removed after the start of the watch, and cannot be read already when the watch is opened."""
        self.gone.add(shard)
        self.former[shard] = ShardHistory(host=host, until_ts=until_ts, gone=True)

    def present(
        self, shard: str, host: str, *, quiet_ts: ClusterTime | None, late_ts: ClusterTime | None
    ) -> ShardHistory:
        """The history of a shard that has a stream."""
        gone = shard in self.gone
        return ShardHistory(
            host=host,
            since_ts=self._since.get(shard),
            until_ts=self.removed[shard] if gone else None,
            gone=gone,
            quiet_ts=quiet_ts,
            late_ts=late_ts,
        )
