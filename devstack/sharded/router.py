"""`ClusterRouter`: sends rows to the shards that own them, as a `mongos` does.

It keeps a routing table per collection, sends the table's version with each command, and reads the table anew when a shard says that it
is stale. So the servers check it as they check a `mongos`.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any, Self, TypeVar

from bson.binary import Binary
from bson.int64 import Int64
from bson.objectid import ObjectId
from bson.timestamp import Timestamp

from changefeed.documents.bson_order import compare
from devstack.sharded.hashed_key import hashed
from devstack.sharded.wire import MAJORITY, CommandFailed, Wire

STALE = frozenset({13388, 249, 63, 150})
"""StaleConfig, StaleDbVersion, StaleShardVersion, StaleEpoch."""
_PATIENCE_SECONDS = 60
_PAUSE_SECONDS = 0.02
_NO_EPOCH = ObjectId("0" * 24)
_NO_TIME = Timestamp(0, 0)

Row = Mapping[str, Any]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RowRoute:
    """`collection` is None if it is not sharded: then the database's primary shard has it."""

    database: Mapping[str, Any]
    collection: Mapping[str, Any] | None
    chunks: list[dict[str, Any]]

    def owner(self, row: Row) -> str:
        return str(self.chunk(row)["shard"] if self.collection else self.database["primary"])

    def chunk(self, row: Row) -> Mapping[str, Any]:
        """`row`: all fields of the shard key."""
        if self.collection is None:
            raise LookupError("a collection that is not sharded has no chunks")
        return self.chunk_at({path: _at(row, path) for path in self.collection["key"]})

    def chunk_at(self, values: Row) -> Mapping[str, Any]:
        """`values`: by the paths of the shard key."""
        pattern = self.collection["key"] if self.collection else {}
        key = {path: hashed(values[path]) if way == "hashed" else values[path] for path, way in pattern.items()}
        return self.chunk_from(key)

    def chunk_from(self, key: Row) -> Mapping[str, Any]:
        """`key` as chunks have it."""
        for chunk in self.chunks:
            if compare(chunk["min"], key) <= 0 and compare(key, chunk["max"]) < 0:
                return chunk
        raise LookupError(f"no chunk has {key}")

    @property
    def owners(self) -> set[str]:
        return {str(chunk["shard"]) for chunk in self.chunks} if self.collection else {str(self.database["primary"])}


class ClusterRouter:
    """For one thread. `connect`: to the primary of a shard, or of the config servers."""

    def __init__(self, connect: Callable[[str], Wire], config: str, version: tuple[int, ...]) -> None:
        self.version = version
        self._connect, self._config = connect, config
        self._wires: dict[str, Wire] = {}
        self._routes: dict[str, RowRoute] = {}
        self._transactions = count(1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        for wire in self._wires.values():
            wire.close()

    def wire(self, shard: str) -> Wire:
        if shard not in self._wires:
            self._wires[shard] = self._connect(shard)
        return self._wires[shard]

    def forget(self, shard: str) -> None:
        """Connects anew, as after an election."""
        if shard in self._wires:
            self._wires.pop(shard).close()

    def config(self, command: Mapping[str, Any]) -> dict[str, Any]:
        return self.wire(self._config).command("admin", command)

    def known_by_config(self, coll: str, filter: Row, **more: Any) -> list[dict[str, Any]]:
        majority = {"readConcern": {"level": "majority"}}
        return self.wire(self._config).find("config", coll, filter, **majority, **more)

    def route(self, ns: str) -> RowRoute:
        if ns not in self._routes:
            [database] = self.known_by_config("databases", {"_id": ns.partition(".")[0]})
            found = self.known_by_config("collections", {"_id": ns})
            collection = found[0] if found else None
            chunks = self.known_by_config("chunks", {"uuid": collection["uuid"]}, sort={"min": 1}) if collection else []
            self._routes[ns] = RowRoute(database, collection, chunks)
        return self._routes[ns]

    def reconnect(self) -> None:
        """Connects anew to all, and forgets all routes: a server died, or is no primary any more."""
        for shard in list(self._wires):
            self.forget(shard)
        self.refresh()

    def refresh(self, ns: str = "") -> None:
        """Forgets the routes of a collection, or all."""
        if ns:
            self._routes.pop(ns, None)
        else:
            self._routes.clear()

    def versions(self, ns: str, shard: str) -> dict[str, Any]:
        """What a command for this collection has to carry, to this shard."""
        route = self.route(ns)
        if route.collection is None:
            unsharded = self._version(_NO_EPOCH, _NO_TIME, _NO_TIME)
            return {"shardVersion": unsharded, "databaseVersion": route.database["version"]}
        newest = max((chunk["lastmod"] for chunk in route.chunks if chunk["shard"] == shard), default=_NO_TIME)
        collection = route.collection
        return {"shardVersion": self._version(collection["lastmodEpoch"], collection["timestamp"], newest)}

    def insert(self, ns: str, row: Row, **more: Any) -> str:
        return self._routed(ns, row, {"insert": _coll(ns), "documents": [row], **more})

    def update(self, ns: str, key: Row, change: Row, *, upsert: bool = False, **more: Any) -> str:
        """`key` has the shard key. Returns the shard, as each write does."""
        return self._routed(
            ns, key, {"update": _coll(ns), "updates": [{"q": key, "u": change, "upsert": upsert}], **more}
        )

    def delete(self, ns: str, key: Row, **more: Any) -> str:
        return self._routed(ns, key, {"delete": _coll(ns), "deletes": [{"q": key, "limit": 1}], **more})

    def rows(self, ns: str) -> list[dict[str, Any]]:
        """What the cluster's content is: of each shard, only what it owns."""
        return [
            row
            for reply in self.to_owners(ns, lambda shard, versions: self._rows(ns, shard, versions))
            for row in reply
        ]

    def to_owners(self, ns: str, ask: Callable[[str, dict[str, Any]], T]) -> list[T]:
        """Asks each shard that owns a part. If one finds the versions stale, all are asked again: the owners may be others now."""

        def once() -> list[T]:
            return [ask(shard, self.versions(ns, shard)) for shard in sorted(self.route(ns).owners)]

        return self.patient(ns, once)

    def transaction(self) -> CrossShardTransaction:
        return CrossShardTransaction(self, next(self._transactions))

    def _routed(self, ns: str, key: Row, command: Mapping[str, Any]) -> str:
        def once() -> str:
            shard = self.route(ns).owner(key)
            self.wire(shard).command(ns.partition(".")[0], {**command, **self.versions(ns, shard)})
            return shard

        return self.patient(ns, once)

    def _rows(self, ns: str, shard: str, versions: Mapping[str, Any]) -> list[dict[str, Any]]:
        db, _, coll = ns.partition(".")
        return self.wire(shard).find(db, coll, readConcern={"level": "majority"}, **versions)

    def patient(self, ns: str, once: Callable[[], T]) -> T:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                return once()
            except CommandFailed as error:
                if error.code not in STALE or time.monotonic() > deadline:
                    raise
            except LookupError:
                # config.collections and config.chunks were read around a change of both
                if time.monotonic() > deadline:
                    raise
            self.refresh(ns)
            time.sleep(_PAUSE_SECONDS)

    def _version(self, epoch: ObjectId, timestamp: Timestamp, newest: Timestamp) -> Any:
        return {"e": epoch, "t": timestamp, "v": newest} if self.version >= (6, 0) else [newest, epoch, timestamp]


class CrossShardTransaction:
    """The shard of its first write coordinates the commit. An error leaves it open; `abort` ends it."""

    def __init__(self, router: ClusterRouter, number: int) -> None:
        self._router = router
        self._session = {"id": Binary(uuid.uuid4().bytes, 4)}
        self._number = Int64(number)
        self.shards: list[str] = []
        self._asked_to_commit = False

    def insert(self, ns: str, row: Row) -> int:
        """How many documents it concerned, as each write returns."""
        return int(self._write(ns, row, {"insert": _coll(ns), "documents": [row]})["n"])

    def update(self, ns: str, key: Row, change: Row) -> int:
        return int(self._write(ns, key, {"update": _coll(ns), "updates": [{"q": key, "u": change}]})["n"])

    def delete(self, ns: str, key: Row) -> int:
        return int(self._write(ns, key, {"delete": _coll(ns), "deletes": [{"q": key, "limit": 1}]})["n"])

    def take_out(self, ns: str, key: Row) -> Row | None:
        """Deletes a document and returns it."""
        found: Row | None = self._write(ns, key, {"findAndModify": _coll(ns), "query": key, "remove": True})["value"]
        return found

    def commit(self, *, within_ms: int | None = None) -> None:
        """With a limit, the coordinator may still decide after the error."""
        self._asked_to_commit = len(self.shards) > 1
        first = self.shards[0]
        if len(self.shards) == 1:
            command: dict[str, Any] = {"commitTransaction": 1}
        else:
            participants = [{"shardId": shard} for shard in self.shards]
            command = {"coordinateCommitTransaction": 1, "participants": participants}
        limit = {} if within_ms is None else {"maxTimeMS": within_ms}
        self._router.wire(first).command("admin", {**command, **self._fields, "writeConcern": MAJORITY, **limit})

    def abort(self) -> Iterator[CommandFailed]:
        """The refusals: a shard at which nothing was written has nothing to abort.

        Once its coordinator was asked to commit, nobody else may end it: a participant that has prepared would abort what another one commits. So it
        is asked again, as routers do.
        """
        if self._asked_to_commit:
            try:
                self.commit()
            except CommandFailed as error:
                yield error
            return
        for shard in self.shards:
            try:
                self._router.wire(shard).command("admin", {"abortTransaction": 1, **self._fields})
            except CommandFailed as error:
                yield error

    @property
    def _fields(self) -> dict[str, Any]:
        return {"lsid": self._session, "txnNumber": self._number, "autocommit": False}

    def _write(self, ns: str, key: Row, command: Mapping[str, Any]) -> dict[str, Any]:
        shard = self._router.route(ns).owner(key)
        begins: dict[str, Any] = {}
        if shard not in self.shards:
            begins = {"startTransaction": True, "readConcern": {"level": "snapshot"}}
            begins |= {} if self.shards else {"coordinator": True}
            self.shards.append(shard)
        versions = self._router.versions(ns, shard)
        return self._router.wire(shard).command(ns.partition(".")[0], {**command, **versions, **self._fields, **begins})


def _coll(ns: str) -> str:
    return ns.partition(".")[2]


def _at(row: Row, path: str) -> Any:
    value: Any = row
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value
