"""`PlacedTable`: a table of a simulated cluster, and which shard owns which of its rows, now and at earlier times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bson.binary import Binary
from bson.max_key import MaxKey
from bson.min_key import MinKey
from bson.objectid import ObjectId
from bson.timestamp import Timestamp

from changefeed.cluster_time import ClusterTime
from tests.simulation.source.row_keys import in_order
from tests.simulation.source.tables import Row, Table

NO_TIME = Timestamp(0, 0)


@dataclass
class Chunk:
    """Its rows have keys in [low, high); None: no bound."""

    id: ObjectId
    low: int | None
    high: int | None
    shard: str
    lastmod: Timestamp
    history: list[tuple[ClusterTime, str]] = field(default_factory=list)
    """Since when which shard has had it, the newest first."""

    def has(self, key: Any) -> bool:
        return _is_within(key, self.low, self.high)

    def document(self, uuid: bytes, key: str) -> dict[str, Any]:
        return {
            "_id": self.id,
            "uuid": Binary(uuid, 4),
            "min": {key: MinKey() if self.low is None else self.low},
            "max": {key: MaxKey() if self.high is None else self.high},
            "shard": self.shard,
            "lastmod": self.lastmod,
            "history": [{"validAfter": ts.to_bson(), "shard": shard} for ts, shard in self.history],
        }


def _is_within(key: Any, low: int | None, high: int | None) -> bool:
    place = in_order(key)
    return (low is None or place >= in_order(low)) and (high is None or place < in_order(high))


@dataclass(frozen=True)
class _Owners:
    """`shard` has everything, if there are no chunks."""

    since_ts: ClusterTime
    key: str
    shard: str
    chunks: tuple[tuple[int | None, int | None, str], ...] = ()

    def of(self, row: Mapping[str, Any]) -> str:
        for low, high, shard in self.chunks:
            if _is_within(row[self.key], low, high):
                return shard
        return self.shard


@dataclass
class PlacedTable(Table):
    """`id` is its first UUID. `key`: the field of its shard key, empty if it is not sharded."""

    uuid_now: bytes = b""
    key: str = ""
    chunks: list[Chunk] = field(default_factory=list)
    epoch: ObjectId = field(default_factory=ObjectId)
    timestamp: Timestamp = NO_TIME
    primary: str = ""
    past: list[_Owners] = field(default_factory=list)
    blocked: bool = False
    """No row is written: a command is in its critical section."""
    closed: set[str] = field(default_factory=set)
    """The shards at which it has ended already."""
    undecided: int = 0
    """How many transactions across shards concern it and are not over."""
    locked: set[tuple[str, Any]] = field(default_factory=set)
    """The rows of these, each with its shard."""

    @property
    def uuid(self) -> bytes:
        return self.uuid_now

    @property
    def owners(self) -> tuple[str, ...]:
        return tuple(sorted({chunk.shard for chunk in self.chunks})) if self.key else (self.primary,)

    def owner(self, row: Mapping[str, Any]) -> str:
        if not self.key:
            return self.primary
        [chunk] = [chunk for chunk in self.chunks if chunk.has(row[self.key])]
        return chunk.shard

    def document_key(self, row: Mapping[str, Any]) -> Row:
        return {**({self.key: row[self.key]} if self.key else {}), "_id": row["_id"]}

    def placed_since(self, ts: ClusterTime) -> None:
        """Its present owners own it from this time on."""
        chunks = tuple((chunk.low, chunk.high, chunk.shard) for chunk in self.chunks)
        self.past.append(_Owners(ts, self.key, self.primary, chunks))

    def owned_at(self, ts: ClusterTime, shard: str) -> dict[Any, Row]:
        then = [each for each in self.past if each.since_ts <= ts]
        return {key: row for key, row in self.rows_at(ts).items() if then and then[-1].of(row) == shard}

    def owned(self, shard: str) -> dict[Any, Row]:
        return {key: row for key, row in self.rows.items() if self.owner(row) == shard}

    def collection_document(self) -> dict[str, Any]:
        return {
            "_id": str(self.name),
            "lastmodEpoch": self.epoch,
            "timestamp": self.timestamp,
            "uuid": Binary(self.uuid_now, 4),
            "key": {self.key: 1},
            "unique": False,
            "noBalance": False,
        }
