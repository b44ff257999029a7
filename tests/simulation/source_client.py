"""`SourceClient`: the driver's client as far as the product asks a source, over the network of the simulation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count
from typing import Any, Self

import bson
from bson.binary import Binary
from bson.int64 import Int64
from bson.raw_bson import RawBSONDocument
from bson.timestamp import Timestamp
from pymongo.errors import OperationFailure

from changefeed.cluster_time import ClusterTime
from changefeed.table import TableName
from tests.simulation.network import Network
from tests.simulation.source_server import Entry, SourceServer, Table

_cursors = count(1)
_MANY = 1_000_000


class Session:
    def __init__(self) -> None:
        self.operation_time: Timestamp | None = None
        self.cluster_time: Mapping[str, Any] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def end_session(self) -> None: ...


class SourceClient:
    is_mongos = False

    def __init__(self, server: SourceServer, network: Network) -> None:
        self.server = server
        self.network = network
        self.streams: dict[int, _Stream] = {}
        self.finds: dict[int, list[dict[str, Any]]] = {}
        self.admin = _Database(self, "admin")

    def __getitem__(self, db: str) -> _Database:
        return _Database(self, db)

    def get_database(self, db: str, **_: object) -> _Database:
        return _Database(self, db)

    def start_session(self, **_: object) -> Session:
        return Session()

    def server_info(self) -> dict[str, Any]:
        self.travel()
        return {"versionArray": [7, 0, 5, 0]}

    def list_database_names(self) -> list[str]:
        self.travel()
        return sorted({name.db for name in self.server.tables})

    def watch(
        self,
        pipeline: list[dict[str, Any]],
        *,
        start_at_operation_time: Timestamp,
        max_await_time_ms: int,
        session: Session,
        **_: object,
    ) -> _Watch:
        self.travel()
        stream = _Stream(
            self, ClusterTime.from_bson(start_at_operation_time), _matcher(self.server, pipeline[0]["$match"])
        )
        return _Watch(stream, session, max_await_time_ms / 1000)

    def close(self) -> None: ...

    def travel(self) -> None:
        self.network.travel(self.network.source_down, "the source")


class _Stream:
    """A place in the oplog. Broken by a change of the leader."""

    def __init__(
        self, client: SourceClient, start_ts: ClusterTime, shows: Callable[[Entry], bool], *, images: bool = False
    ) -> None:
        self.client = client
        self._server = client.server
        self._shows = shows
        self._images = images
        self._start_ts = start_ts
        self._index = next((i for i, entry in enumerate(self._server.oplog) if entry.ts >= start_ts), None)
        self._election = self._server.election
        self.token = _mark(start_ts)

    @property
    def at_end(self) -> bool:
        return self._index is None or self._index >= self._server.visible

    def read(self, most: int, entries: int) -> list[bytes]:
        """Looks at so many entries, and may come back with nothing though the end is not there yet."""
        server = self._server
        if self._election != server.election:
            raise OperationFailure("the server stepped down", 11602, {"errmsg": "stepped down", "code": 11602})
        if self._index is None:
            self._index = next((i for i, entry in enumerate(server.oplog) if entry.ts >= self._start_ts), None)
        found: list[bytes] = []
        if self._index is None:
            newest = server.committed
            self.token = max(self.token, _mark(newest.next() if self._start_ts <= newest.next() else newest))
            return found
        end = min(server.visible, self._index + entries)
        while self._index < end and len(found) < most:
            entry = server.oplog[self._index]
            self._index += 1
            if entry.raw is not None and self._shows(entry):
                found.append(entry.with_images() if self._images else entry.raw)
                self.token = entry.position.token
            else:
                self.token = max(self.token, _mark(entry.ts))
        return found


class _Watch:
    """The driver's change stream, of DDL."""

    alive = True

    def __init__(self, stream: _Stream, session: Session, wait: float) -> None:
        self._stream = stream
        self._session = session
        self._wait = wait

    @property
    def resume_token(self) -> dict[str, str]:
        return {"_data": self._stream.token}

    def try_next(self) -> dict[str, Any] | None:
        server = self._stream.client.server
        machine = server.machine
        self._stream.client.travel()
        found = self._stream.read(1, _MANY)
        if not found:
            server.changed.wait(machine.now + self._wait * 4)
            found = self._stream.read(1, _MANY)
        self._session.operation_time = server.committed.to_bson()
        return bson.decode(found[0]) if found else None

    def close(self) -> None: ...


class _Database:
    codec_options: object = None

    def __init__(self, client: SourceClient, db: str) -> None:
        self._client = client
        self._db = db

    def __getitem__(self, coll: str) -> _Collection:
        return _Collection(self._client, TableName(self._db, coll) if self._db != "local" else None)

    def _collections(self) -> list[dict[str, Any]]:
        return [
            {
                "name": table.name.coll,
                "type": "collection",
                "options": dict(table.options),
                "info": {"uuid": Binary(bytes.fromhex(table.id), 4)},
            }
            for table in self._client.server.tables.values()
            if table.name.db == self._db
        ]

    def cursor_command(self, command: str | Mapping[str, Any], **_: object) -> Iterator[dict[str, Any]]:
        self._client.travel()
        if isinstance(command, str):
            assert command == "listCollections", f"the simulated source does not know {command}"
            return iter(self._collections())
        table = self._client.server.tables.get(TableName(self._db, command["listIndexes"]))
        if table is None:
            raise OperationFailure("ns not found", 26, {"errmsg": "ns not found", "code": 26})
        return iter([dict(spec) for spec in table.indexes.values()])

    def command(  # noqa: C901  # one case for each command
        self, command: str | Mapping[str, Any], value: Any = 1, *, session: Session | None = None, **options: Any
    ) -> Any:
        body: dict[str, Any] = {command: value} if isinstance(command, str) else dict(command)
        verb = next(iter(body))
        client, server = self._client, self._client.server
        client.travel()
        reply: Any
        match verb:
            case "isMaster" | "hello":
                reply = {"setName": "rs", "electionId": server.election, "ok": 1}
                reply["lastWrite"] = {"majorityOpTime": {"ts": server.committed.to_bson()}}
            case "ping":
                reply = {"ok": 1}
            case "appendOplogNote":
                server.note()
                reply = {"ok": 1}
            case "aggregate":
                reply = self._open_stream(body)
            case "getMore":
                reply = self._get_more(body)
            case "find":
                reply = self._find(body)
            case "collStats":
                count_ = (
                    len(server.tables[name].rows) if (name := TableName(self._db, body[verb])) in server.tables else 0
                )
                reply = {"count": count_, "size": count_ * (40 << 20)}
            case "splitVector":
                reply = _split(server, TableName.parse(body[verb]))
            case "killCursors":
                reply = {"ok": 1}
            case _:
                raise AssertionError(f"the simulated source does not know {verb}")
        if session is not None:
            newest = server.newest if verb in ("ping", "appendOplogNote") else server.committed
            session.operation_time = newest.to_bson()
        return reply

    def _open_stream(self, body: Mapping[str, Any]) -> RawBSONDocument:
        stages = body["pipeline"]
        start = ClusterTime.from_bson(stages[0]["$changeStream"]["startAtOperationTime"])
        match: Any = next((stage["$match"] for stage in stages[1:] if "$match" in stage), {})
        cursor = next(_cursors)
        images = "fullDocumentBeforeChange" in stages[0]["$changeStream"]
        shows = _matcher(self._client.server, match)
        self._client.streams[cursor] = _Stream(self._client, start, shows, images=images)
        return self._batch(cursor, [], _mark(start), "firstBatch")

    def _get_more(self, body: Mapping[str, Any]) -> RawBSONDocument:
        client, machine = self._client, self._client.server.machine
        cursor = int(body["getMore"])
        if cursor in client.finds:
            return self._found(cursor, None, "nextBatch")
        stream = client.streams[cursor]
        most, entries = machine.random.choice((1, 3, 100)), machine.random.choice((1, 4, _MANY))
        found = stream.read(most, entries)
        if not found and stream.at_end:
            client.server.changed.wait(machine.now + body["maxTimeMS"] / 1000)
            found = stream.read(most, entries)
        return self._batch(cursor, found, stream.token, "nextBatch")

    def _batch(self, cursor: int, events: Iterable[bytes], token: str, kind: str) -> RawBSONDocument:
        reply = {
            "cursor": {
                kind: [RawBSONDocument(event) for event in events],
                "id": Int64(cursor),
                "ns": "admin.$cmd.aggregate",
                "postBatchResumeToken": {"_data": token},
            },
            "operationTime": self._client.server.committed.to_bson(),
            "ok": 1.0,
        }
        return RawBSONDocument(bson.encode(reply))

    def _find(self, body: Mapping[str, Any]) -> RawBSONDocument:
        server = self._client.server
        concern = body["readConcern"]
        at = ClusterTime.from_bson(concern["atClusterTime"]) if "atClusterTime" in concern else server.committed
        name = TableName(self._db, body["find"])
        table = server.tables.get(name)
        if any(ddl.position.ts > at and name in ddl.names for ddl in server.ddls):
            raise OperationFailure("a DDL in between", 246, {"errmsg": "snapshot unavailable", "code": 246})
        rows = table.rows_at(at) if table else {}
        low, high = _id(body.get("min")), _id(body.get("max"))
        keys = sorted(key for key in rows if (low is None or key >= low) and (high is None or key < high))
        if "filter" in body:
            keys = [key for key in keys if key == _id(body["filter"])]
        cursor = next(_cursors)
        self._client.finds[cursor] = [rows[key] for key in keys]
        return self._found(cursor, at, "firstBatch")

    def _found(self, cursor: int, at: ClusterTime | None, kind: str) -> RawBSONDocument:
        rows = self._client.finds[cursor]
        most = self._client.server.machine.random.choice((1, 2, 100))
        part, rest = rows[:most], rows[most:]
        self._client.finds[cursor] = rest
        found: dict[str, Any] = {kind: part, "id": Int64(cursor if rest else 0), "ns": "x"}
        if at is not None:
            found["atClusterTime"] = at.to_bson()
        return RawBSONDocument(bson.encode({"cursor": found, "ok": 1.0}))


class _Collection:
    def __init__(self, client: SourceClient, name: TableName | None) -> None:
        self._client = client
        self._name = name

    def with_options(self, *_: object, **__: object) -> _Collection:
        return self

    def find_one(self, query: Any, *_: object, sort: Any = None) -> Any:
        self._client.travel()
        server = self._client.server
        if self._name is None:
            return {"ts": (server.oplog[0] if sort[0][1] == 1 else server.oplog[-1]).ts.to_bson()}
        table: Table | None = server.tables.get(self._name)
        row = table.rows.get(_id(query)) if table else None
        return RawBSONDocument(bson.encode(row)) if row else None


def _mark(ts: ClusterTime) -> str:
    return f"82{ts.to_int():016X}2B0429296E1404"


def _id(document: Any) -> Any:
    return None if document is None else bson.decode(bson.encode(document))["_id"]


def _split(server: SourceServer, name: TableName) -> RawBSONDocument:
    keys = sorted(server.tables[name].rows) if name in server.tables else []
    return RawBSONDocument(bson.encode({"splitKeys": [{"_id": key} for key in keys[2::2]], "ok": 1.0}))


def _matcher(server: SourceServer, raw: Any) -> Callable[[Entry], bool]:
    """Streams of one query are opened again and again: what it says of an entry is found out once."""
    encoded = bson.encode(raw or {})
    query = bson.decode(encoded)
    known = server.shown.setdefault(encoded, {})

    def shows(entry: Entry) -> bool:
        found = known.get(entry.position)
        if found is None:
            found = known[entry.position] = _matches(query, entry.header)
        return found

    return shows


def _matches(query: Mapping[str, Any], header: Mapping[str, Any]) -> bool:
    """Equality and `$in` on what a server looks up cheaply; nothing else may be asked of one."""
    return all(_holds(header.get(path), condition) for path, condition in query.items())


def _holds(value: str | None, condition: Any) -> bool:
    if isinstance(condition, str):
        return value == condition
    [(operator, names)] = condition.items()
    if operator != "$in":
        raise AssertionError(f"the simulated source does not know {operator}")
    return value in names
