"""`Owners`: the shards whose entries about a table count. Pure.

Of a sharded table, these are the shards that own chunks of it: another holder, even the database's primary shard, need not have any of its
indexes. A table that is not sharded has one owner, its database's primary shard.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from changefeed.table import TableId
from source.ddl_description import uuid_of
from source.sharded.effective_order import Operation
from source.sharded.tables.cluster_state import document_id
from source.sharded.tables.live_tables import LiveTables

ChunkReading: TypeAlias = Mapping[Any, tuple[TableId, str]]
"""By the chunk's `_id`: the UUID and the owner."""


class Owners:
    """`gone`: shards that were removed and cannot be read. What they have is not known, and does not count."""

    def __init__(self, tables: LiveTables, chunks: ChunkReading, gone: Iterable[str]) -> None:
        self._tables = tables
        self._chunks: dict[Any, tuple[TableId, str]] = {}
        self._counts: dict[TableId, Counter[str]] = {}
        """By UUID: how many chunks each shard owns."""
        self.gone = set(gone)
        for id, (uuid, shard) in chunks.items():
            self._own(id, uuid, shard)

    def of(self, uuid: TableId) -> frozenset[str]:
        """The owners of a live UUID that can be read."""
        primary = self._tables.owner_by_name(self._tables.live[uuid].name)
        if primary is not None:
            return frozenset({primary})
        return self.by_chunks(uuid) - self.gone

    def all(self, uuid: TableId) -> frozenset[str]:
        """The owners of a live UUID, also those that are gone."""
        return self.by_chunks(uuid) if self.sharded(uuid) else self.of(uuid)

    def by_chunks(self, uuid: TableId) -> frozenset[str]:
        return frozenset(shard for shard, chunks in self._counts.get(uuid, Counter()).items() if chunks)

    def known(self, uuid: TableId) -> bool:
        """Whether chunks of it are known."""
        return uuid in self._counts

    def sharded(self, uuid: TableId) -> bool:
        return self._tables.owner_by_name(self._tables.live[uuid].name) is None

    def only_gone(self, uuid: TableId) -> bool:
        """Whether all shards that own chunks of it are gone."""
        owning = self.by_chunks(uuid)
        return bool(owning) and owning <= self.gone

    def owned_by(self, shard: str) -> list[TableId]:
        return [uuid for uuid, counts in self._counts.items() if counts[shard]]

    def chunk(self, id: Any) -> tuple[TableId, str] | None:
        return self._chunks.get(id)

    def take(self, operation: Operation) -> None:
        """`operation`: in config.chunks."""
        id, o = document_id(operation), operation["o"]
        if operation["op"] == "d":
            self._disown(id)
        elif "_id" in o and (uuid := uuid_of(o.get("uuid"))) is not None:
            self._disown(id)
            self._own(id, uuid, str(o["shard"]))

    def _own(self, id: Any, uuid: TableId, shard: str) -> None:
        self._chunks[id] = uuid, shard
        self._counts.setdefault(uuid, Counter())[shard] += 1

    def _disown(self, id: Any) -> None:
        if id in self._chunks:
            uuid, shard = self._chunks.pop(id)
            self._counts[uuid][shard] -= 1
            if not any(self._counts[uuid].values()):
                del self._counts[uuid]
