"""`OwnedOptions`: the collMods of a cluster's tables, which each shard logs by itself. Pure.

A collMod is shown at the last owner's entry; at the first if it ends the uniqueness of an index, and before 6.0: no coordinator's end tells
there of a shard's entry before the start. It is shown at its coordinator's end if that began before the start. If the owners are unknown,
those of a UUID that ended since a start which the config servers no longer remember, a collMod's are the shards that have logged it: all
entries up to its end were read before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from changefeed.documents.document import Document
from changefeed.event import DdlEvent
from changefeed.position import Position
from changefeed.table import TableId
from source.ddl_description import shown, uuid_of
from source.sharded.effective_order import Operation
from source.sharded.tables.cluster_state import document_id
from source.sharded.tables.live_tables import LiveTables
from source.sharded.tables.owners import Owners


@dataclass(slots=True)
class _Modification:
    name: str
    shards: set[str] = field(default_factory=set)
    shown: bool = False


class OwnedOptions:
    """`operations`: those of each shard since the start, as far as they were read."""

    def __init__(self, tables: LiveTables, owners: Owners, operations: Mapping[str, Iterable[Operation]]) -> None:
        self._tables = tables
        self._owners = owners
        self.coordinated = True
        """Whether a collMod has a coordinator: from 6.0 on."""
        self._begun: set[Document] = set()
        """Coordinators that began after the start."""
        self._modified: dict[tuple[TableId, Document], _Modification] = {}
        self._last_modified: dict[TableId, tuple[Document, set[str]]] = {}
        """Without coordinators: the last collMod of a table, and the shards that have logged it."""
        self._logged = {key: shards for key, shards in _loggers(operations).items() if not owners.known(key[0])}
        """Of UUIDs without known owners: the shards that log a collMod."""

    def modified(self, shard: str, uuid: TableId, operation: Operation, at: Position) -> Iterator[DdlEvent]:
        """A shard has logged a collMod of a live UUID."""
        key = uuid, shown(operation["o"])
        owners = self._owners.of(uuid) or frozenset(self._logged.get(key, ()))
        if owners and shard not in owners:
            return
        if not self.coordinated:
            last, shards = self._last_modified.get(uuid, (None, set()))
            repeated = last == key[1] and shard not in shards
            self._last_modified[uuid] = key[1], {*shards, shard} if repeated else {shard}
            if not repeated:
                yield from self._tables.live[uuid].events(operation, at)
            return
        modification = self._modified.setdefault(key, _Modification(str(self._tables.live[uuid].name)))
        modification.shards.add(shard)
        whole = bool(owners) and owners <= modification.shards
        if not modification.shown and (whole or _ends_uniqueness(operation)):
            modification.shown = True
            yield from self._tables.live[uuid].events(operation, at)
        if whole:
            del self._modified[key]

    def coordinator(self, operation: Operation, at: Position) -> Iterator[DdlEvent]:
        """`operation`: in the collection of coordinators of a shard."""
        id = document_id(operation)
        if operation["op"] == "i":
            self._begun.add(shown(id))
        elif operation["op"] == "d":
            began = shown(id) in self._begun
            self._begun.discard(shown(id))
            ended = [key for key, each in self._modified.items() if each.name == id.get("namespace")]
            for uuid, o in ended:
                modification = self._modified.pop((uuid, o))
                if uuid not in self._tables.live or modification.shown:
                    continue
                if not began or not self._owners.of(uuid):
                    yield from self._shown_now(uuid, o, modification.name.partition(".")[0], at)

    def without(self, shard: str, at: Position) -> Iterator[DdlEvent]:
        """A shard is gone. A collMod that waited for it is whole."""
        for uuid in self._owners.owned_by(shard):
            if uuid not in self._tables.live:
                continue
            for (of, o), modification in list(self._modified.items()):
                if of == uuid and self._owners.of(uuid) <= modification.shards:
                    del self._modified[of, o]
                    if not modification.shown:
                        yield from self._shown_now(uuid, o, self._tables.live[uuid].name.db, at)

    def _shown_now(self, uuid: TableId, o: Document, db: str, at: Position) -> Iterator[DdlEvent]:
        """At an entry of another kind."""
        yield from self._tables.live[uuid].events({"op": "c", "ns": f"{db}.$cmd", "o": o.decode()}, at)


def _loggers(operations: Mapping[str, Iterable[Operation]]) -> dict[tuple[TableId, Document], set[str]]:
    """By collMod."""
    loggers: dict[tuple[TableId, Document], set[str]] = defaultdict(set)
    for shard, of_shard in operations.items():
        for operation in of_shard:
            uuid, o = uuid_of(operation.get("ui")), operation["o"]
            if operation["op"] == "c" and "collMod" in o and uuid is not None:
                loggers[uuid, shown(o)].add(shard)
    return loggers


def _ends_uniqueness(operation: Operation) -> bool:
    index = operation["o"].get("index", {})
    return isinstance(index, Mapping) and (
        index.get("forceNonUnique") is True or index.get("prepareUnique") is False or index.get("unique") is False
    )
