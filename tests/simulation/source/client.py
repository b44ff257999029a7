"""`SourceClient`: the driver's client, as far as the product uses it for a source, over the simulated network."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Self

import bson
from bson.binary import Binary
from bson.codec_options import CodecOptions
from bson.int64 import Int64
from bson.raw_bson import RawBSONDocument
from bson.timestamp import Timestamp
from pymongo import ReadPreference
from pymongo.errors import AutoReconnect, NetworkTimeout, NotPrimaryError, OperationFailure

from changefeed.cluster_time import ClusterTime
from changefeed.position import Position
from changefeed.table import TableName
from source.resume_token import position_of
from tests.simulation.clockwork.network import Network
from tests.simulation.source.finds import EntryCursor
from tests.simulation.source.oplog import Shown, placed
from tests.simulation.source.replica_set import Member
from tests.simulation.source.row_keys import as_key, between, in_order, ordered
from tests.simulation.source.server import SourceServer
from tests.simulation.source.tables import Table

_REPLY = 100
"""The most events in a reply."""
_CLIENT_WAITS = 30.0
_ALL = 1 << 30


class Session:
    def __init__(self, client: SourceClient) -> None:
        self.session_id = {"id": client.next_number()}
        self.operation_time: Timestamp | None = None
        self.cluster_time: Mapping[str, Any] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def end_session(self) -> None: ...


class SourceClient:
    is_mongos = False
    options = SimpleNamespace(server_selector=None)
    codec_options: CodecOptions[dict[str, Any]] = CodecOptions(dict, tz_aware=True)

    def __init__(self, server: SourceServer, network: Network, *, secondary: bool = False) -> None:
        self.server = server
        self.network = network
        self._secondary = secondary
        self.read_preference = ReadPreference.SECONDARY if secondary else ReadPreference.PRIMARY
        self._member: Member | None = None
        self.streams: dict[int, _Stream] = {}
        self.finds: dict[int, _Find] = {}
        self.entries: dict[int, EntryCursor] = {}
        self.killed: set[int] = set()
        """The sessions whose operations were killed."""
        self.admin = Database(self, "admin")

    def __getitem__(self, db: str) -> Database:
        return Database(self, db)

    def get_database(self, db: str, **_: object) -> Database:
        return Database(self, db)

    def start_session(self, **_: object) -> Session:
        return Session(self)

    def server_info(self) -> dict[str, Any]:
        self.travel()
        return {"versionArray": [*self.server.version, 5, 0]}

    def close(self) -> None: ...

    def next_number(self) -> int:
        """Of a cursor or session."""
        return self.network.machine.new_number() + 1

    def travel(self) -> None:
        self.network.travel(self.network.source_down, "the source")

    @property
    def member(self) -> Member:
        """The member that answers: the primary, or one secondary as long as it stays a secondary."""
        if not self._secondary:
            return self.server.primary
        if self._member is None or self._member is self.server.primary:
            others = [member for member in self.server.members if member is not self.server.primary]
            self._member = self.server.machine.random.choice(others)
        return self._member

    @property
    def committed(self) -> ClusterTime:
        return self.server.committed(self.member)

    def wait_for(self, concern: Mapping[str, Any], body: Mapping[str, Any]) -> None:
        """Waits until the member knows that a majority has reached the time. A time that no member knows is refused."""
        if "afterClusterTime" not in concern:
            return
        server, election = self.server, self.server.election
        after = ClusterTime.from_bson(concern["afterClusterTime"])
        if after > server.clock:
            raise failure(72, "readConcern afterClusterTime value must not be greater than the current clusterTime")
        deadline = server.machine.now + (body["maxTimeMS"] / 1000 if "maxTimeMS" in body else _CLIENT_WAITS)
        while self.committed < after:
            if server.machine.now >= deadline:
                raise (
                    failure(50, "operation exceeded time limit") if "maxTimeMS" in body else NetworkTimeout("timed out")
                )
            server.changed.wait(deadline)
            self.same_primary(election)

    def same_primary(self, election: int) -> None:
        """Raises if the primary has changed: a cursor exists only on the primary where it was opened."""
        if election != self.server.election:
            gone = self.server.machine.random.choice(_GONE)
            raise gone()


def failure(code: int, message: str) -> OperationFailure:
    return OperationFailure(message, code, {"code": code, "errmsg": message})


_GONE: tuple[Callable[[], Exception], ...] = (
    lambda: NotPrimaryError("operation was interrupted", {"code": 11602, "errmsg": "operation was interrupted"}),
    lambda: failure(43, "cursor id not found"),
    lambda: AutoReconnect("connection closed"),
)
"""What a client may get that goes on after an election: an answer of the old primary, of the new one, or none."""


class _Stream:
    """A position in the oplog, as one member shows it. An election ends the stream."""

    def __init__(
        self,
        client: SourceClient,
        start: Position,
        shows: Callable[[Shown], bool],
        *,
        session: int,
        images: bool = False,
    ) -> None:
        """`start`: a time, inclusive, or the place of the last event that was shown."""
        self.client = client
        self._server = client.server
        self._shows = shows
        self._images = images
        self._start = placed(start)
        self._session = session
        self._index = self._server.index_of(start.ts)
        self._more: list[Shown] = []
        """The events that are left of the previous entry."""
        self._election = self._server.election
        self.token = start.token or _mark(start.ts)

    def read(self, most: int) -> list[bytes]:
        """Returns with `most` events, or at the end of the oplog, and not before. Skipped entries take time too."""
        server = self._server
        self.client.same_primary(self._election)
        if self._index < server.first:
            raise failure(136, "the position in the oplog was truncated")
        found: list[bytes] = []
        while (self._more or self._index < self.client.member.visible) and len(found) < most:
            if self._more:
                event = self._more.pop(0)
                found.append(event.with_images() if self._images else event.raw)
                self.token = event.token
                continue
            entry = server.oplog[self._index]
            self._index += 1
            if server.slow_scan:
                server.machine.sleep(server.slow_scan)
            if self._session in self.client.killed:
                raise failure(11601, "operation was interrupted")
            self._more = [event for event in entry.shown if event.position > self._start and self._shows(event)]
            if not self._more:
                self.token = max(self.token, _mark(entry.ts))
        return found


@dataclass
class _Find:
    """An open cursor on one table, as it was at one time. It exists on one primary only."""

    name: TableName
    table: Table
    at: ClusterTime
    election: int
    rows: list[dict[str, Any]]


class Database:
    codec_options: object = None

    def __init__(self, client: SourceClient, db: str) -> None:
        self._client = client
        self._db = db

    def __getitem__(self, coll: str) -> _Collection:
        return _Collection(self._client, TableName(self._db, coll) if self._db != "local" else None)

    def get_collection(self, coll: str, **_: object) -> _Collection:
        return self[coll]

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

    def cursor_command(self, command: str | Mapping[str, Any], value: Any = 1, **_: object) -> Iterator[dict[str, Any]]:
        self._client.travel()
        body: Mapping[str, Any] = {command: value} if isinstance(command, str) else command
        if "listCollections" in body:
            return iter(self._collections())
        table = self._client.server.tables.get(TableName(self._db, body["listIndexes"]))
        if table is None:
            raise failure(26, "ns not found")
        with_builds = body.get("includeBuildUUIDs")
        building = [
            {"buildUUID": Binary(build.uuid, 4), "spec": dict(build.spec)} if with_builds else dict(build.spec)
            for build in table.building.values()
        ]
        return iter([*(dict(spec) for spec in table.indexes.values()), *building])

    def command(  # noqa: C901, PLR0912  # one case per command
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
                reply["lastWrite"] = {
                    "opTime": {"ts": server.newest.to_bson(), "t": server.election},
                    "majorityOpTime": {"ts": client.committed.to_bson(), "t": server.election},
                }
            case "ping" | "buildInfo":
                reply = {"versionArray": [*server.version, 5, 0], "ok": 1}
            case "getParameter":
                major, minor = server.version
                reply = {"featureCompatibilityVersion": {"version": f"{major}.{minor}"}, "ok": 1}
            case "listDatabases":
                reply = {"databases": [{"name": db} for db in sorted({name.db for name in server.tables})], "ok": 1}
            case "listCollections":
                uuid = body["filter"]["info.uuid"]
                there = [each for each in self._collections() if each["info"]["uuid"] == uuid]
                reply = {"cursor": {"firstBatch": there, "id": 0}, "ok": 1}
            case "appendOplogNote":
                server.note()
                reply = {"ok": 1}
                if {**body, **options}.get("writeConcern", {"w": "majority"})["w"] == "majority":
                    server.wait_for_majority()
            case "aggregate" if "$currentOp" in body["pipeline"][0]:
                asked = body["pipeline"][1]["$match"]["lsid.id"]
                reply = {"cursor": {"firstBatch": [{"lsid": {"id": asked}}], "id": 0}, "ok": 1}
            case "aggregate":
                assert session is not None
                reply = self._open_stream(body, session.session_id["id"])
            case "killSessions":
                client.killed |= {killed["id"] for killed in body[verb]}
                reply = {"ok": 1}
            case "getMore":
                reply = self._get_more(body)
            case "find":
                reply = self._find(body)
            case "dataSize":
                count_ = len(server.tables[name].rows) if (name := TableName.parse(body[verb])) in server.tables else 0
                reply = {"numObjects": count_, "size": count_ * (40 << 20)}
            case "splitVector":
                reply = _split(server, TableName.parse(body[verb]))
            case "killCursors":
                reply = self._kill_cursors(body)
            case _:
                raise AssertionError(f"the simulated source does not know {verb}")
        if session is not None:
            newest = server.newest if verb in ("ping", "appendOplogNote") else client.committed
            session.operation_time = newest.to_bson()
        return reply

    def _kill_cursors(self, body: Mapping[str, Any]) -> dict[str, Any]:
        for cursor in body["cursors"]:
            self._client.entries.pop(int(cursor), None)
        return {"ok": 1}

    def _open_stream(self, body: Mapping[str, Any], session: int) -> RawBSONDocument:
        """Answers when the batch is full, or at the end of the oplog."""
        stages = body["pipeline"]
        asked = stages[0]["$changeStream"]
        if "resumeAfter" in asked:
            start = position_of(asked["resumeAfter"]["_data"])
        else:
            start = Position(ClusterTime.from_bson(asked["startAtOperationTime"]))
        server = self._client.server
        server.asked(start.ts)
        match: Any = next((stage["$match"] for stage in stages[1:] if "$match" in stage), {})
        if server.first and start.ts < server.oldest:
            raise failure(
                286, "Resume of change stream was not possible, as the resume point may no longer be in the oplog."
            )
        cursor = self._client.next_number()
        images = "fullDocumentBeforeChange" in asked
        stream = _Stream(self._client, start, _matcher(server, match), session=session, images=images)
        self._client.streams[cursor] = stream
        found = stream.read(self._most(body["cursor"]["batchSize"]))
        return self._batch(cursor, found, stream.token, "firstBatch")

    def _most(self, asked: int | None) -> int:
        """The number of events in a reply, which may be less than the requested one."""
        holds = self._client.server.machine.random.choice((2, 3, _REPLY))
        return holds if asked is None or asked > _REPLY else asked

    def _get_more(self, body: Mapping[str, Any]) -> RawBSONDocument:
        client, machine = self._client, self._client.server.machine
        cursor = int(body["getMore"])
        if cursor in client.entries:
            return self._entries(cursor, body, "nextBatch")
        if cursor in client.finds:
            client.server.take_time()
            return self._found(cursor, body, "nextBatch")
        stream = client.streams[cursor]
        most = self._most(body.get("batchSize"))
        found = stream.read(most)
        if not found:
            client.server.changed.wait(machine.now + body["maxTimeMS"] / 1000)
            found = stream.read(most)
        return self._batch(cursor, found, stream.token, "nextBatch")

    def _batch(self, cursor: int, events: Iterable[bytes], token: str, kind: str) -> RawBSONDocument:
        reply = {
            "cursor": {
                kind: [RawBSONDocument(event) for event in events],
                "id": Int64(cursor),
                "ns": "admin.$cmd.aggregate",
                "postBatchResumeToken": {"_data": token},
            },
            "operationTime": self._client.committed.to_bson(),
            "ok": 1.0,
        }
        return RawBSONDocument(bson.encode(reply))

    def _find(self, body: Mapping[str, Any]) -> RawBSONDocument:
        server = self._client.server
        concern = body.get("readConcern", {"level": "local"})
        if self._db == "local" and "ts" in body.get("filter", {}):
            server.asked(_start_of(body))
        self._client.wait_for(concern, body)
        if self._db == "local":
            return self._find_entries(body, majority=concern["level"] == "majority")
        at = ClusterTime.from_bson(concern["atClusterTime"]) if "atClusterTime" in concern else self._client.committed
        name = TableName(self._db, body["find"])
        table = server.tables.get(name)
        if table is None:  # a table is looked up by its present name, whatever the time
            empty = {"cursor": {"firstBatch": [], "id": Int64(0), "ns": "x"}, "operationTime": at.to_bson(), "ok": 1.0}
            return RawBSONDocument(bson.encode(empty))
        if table.named_at > at or (table.options.get("capped") and concern["level"] == "snapshot"):
            raise failure(246, "snapshot unavailable")
        rows = table.rows_at(at)
        low, high = (in_order(_id(body[bound])) if bound in body else None for bound in ("min", "max"))
        keys = list(rows) if "max" in table.options else between(rows, low, high)
        if "filter" in body:
            keys = [key for key in keys if key == _id(body["filter"])]
        cursor = self._client.next_number()
        self._client.finds[cursor] = _Find(name, table, at, server.election, [rows[key] for key in keys])
        return self._found(cursor, body, "firstBatch")

    def _find_entries(self, body: Mapping[str, Any], *, majority: bool) -> RawBSONDocument:
        assert body["find"] == "oplog.rs"
        client, cursor = self._client, self._client.next_number()
        query = bson.decode(bson.encode(body.get("filter", {})))
        backwards = dict(body.get("sort", {})).get("$natural") == -1
        left = body.get("limit") or _ALL
        election = client.server.election
        client.entries[cursor] = EntryCursor(
            client.server, client.member, query, election, majority=majority, backwards=backwards, left=left
        )
        return self._entries(cursor, body, "firstBatch")

    def _entries(self, cursor: int, body: Mapping[str, Any], kind: str) -> RawBSONDocument:
        """Replies are as large as requested, or smaller if entries are large."""
        client, machine = self._client, self._client.server.machine
        entries = client.entries[cursor]
        client.same_primary(entries.election)
        if client.server.slow_scan and machine.random.random() < 0.2:
            machine.sleep(10 * client.server.slow_scan)
        most = min(body.get("batchSize") or 101, machine.random.choice((2, 20, 1000)))
        found = entries.next(most)
        if entries.done or body.get("singleBatch"):
            del client.entries[cursor]
        left = Int64(cursor if cursor in client.entries else 0)
        reply = {
            "cursor": {kind: [RawBSONDocument(entry.raw) for entry in found], "id": left, "ns": "local.oplog.rs"},
            "operationTime": client.committed.to_bson(),
            "ok": 1.0,
        }
        return RawBSONDocument(bson.encode(reply))

    def _found(self, cursor: int, body: Mapping[str, Any], kind: str) -> RawBSONDocument:
        find, server = self._client.finds[cursor], self._client.server
        self._client.same_primary(find.election)
        there = server.tables.get(find.name)
        if there is None:
            raise failure(175, "collection renamed or dropped")
        if there is not find.table:
            raise failure(246, "snapshot unavailable")
        most = min(body.get("batchSize", 101), server.machine.random.choice((1, 2, 100)))
        part, find.rows = find.rows[:most], find.rows[most:]
        found = {kind: part, "id": Int64(cursor if find.rows else 0), "ns": "x", "atClusterTime": find.at.to_bson()}
        return RawBSONDocument(bson.encode({"cursor": found, "operationTime": find.at.to_bson(), "ok": 1.0}))


class _Collection:
    def __init__(self, client: SourceClient, name: TableName | None) -> None:
        self._client = client
        self._name = name

    def with_options(self, *_: object, **__: object) -> _Collection:
        return self

    def replace_one(self, query: Any, document: Any, *, upsert: bool, session: Session) -> None:
        """The product writes only heartbeats here. Streams do not show them, so nothing may depend on them."""
        self._client.travel()
        self._client.server.note()
        session.operation_time = self._client.server.newest.to_bson()

    def delete_one(self, query: Any) -> None:
        self._client.travel()
        self._client.server.note()

    def find_one(self, query: Any, *_: object, sort: Any = None) -> Any:
        self._client.travel()
        server = self._client.server
        if self._name is None:
            return (server.oplog[server.first] if sort[0][1] == 1 else server.oplog[-1]).document
        table: Table | None = server.tables.get(self._name)
        row = table.rows.get(_id(query)) if table else None
        return RawBSONDocument(bson.encode(row)) if row else None


def _mark(ts: ClusterTime) -> str:
    return f"82{ts.to_int():016X}2B0429296E1404"


def _start_of(body: Mapping[str, Any]) -> ClusterTime:
    """The start of the range that a find on the oplog requests."""
    condition = body["filter"]["ts"]
    return ClusterTime.from_bson(condition["$gte"] if isinstance(condition, Mapping) else condition)


def _id(document: Any) -> Any:
    return as_key(bson.decode(bson.encode(document))["_id"])


def _split(server: SourceServer, name: TableName) -> RawBSONDocument:
    keys = ordered(server.tables[name].rows) if name in server.tables else []
    each = server.machine.random.choice((2, 4, 100))
    return RawBSONDocument(bson.encode({"splitKeys": [{"_id": key} for key in keys[each::each]], "ok": 1.0}))


def _matcher(server: SourceServer, raw: Any) -> Callable[[Shown], bool]:
    """Streams with the same query are opened many times, so the result for each event is cached."""
    encoded = bson.encode(raw or {})
    query = bson.decode(encoded)
    known = server.shown.setdefault(encoded, {})

    def shows(event: Shown) -> bool:
        found = known.get(event.position)
        if found is None:
            found = known[event.position] = _matches(query, event.header)
        return found

    return shows


def _matches(query: Mapping[str, Any], header: Mapping[str, Any]) -> bool:
    """Equality and `$in` on fields that a server reads cheaply, also in an `$or`. The product may use nothing else."""
    if "$or" in query:
        return any(_matches(one, header) for one in query["$or"])
    return all(_holds(header.get(path), condition) for path, condition in query.items())


def _holds(value: str | None, condition: Any) -> bool:
    if isinstance(condition, str):
        return value == condition
    [(operator, names)] = condition.items()
    if operator != "$in":
        raise AssertionError(f"the simulated source does not know {operator}")
    return value in names
