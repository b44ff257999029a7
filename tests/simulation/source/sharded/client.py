"""`ShardClient`: the driver's client for one shard or the config servers of a simulated cluster, as far as the product uses it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import bson
from bson.binary import Binary
from bson.codec_options import CodecOptions
from bson.int64 import Int64
from bson.objectid import ObjectId
from bson.raw_bson import RawBSONDocument
from pymongo.errors import AutoReconnect, NetworkTimeout

from changefeed.cluster_time import ClusterTime
from changefeed.table import TableName
from tests.simulation.clockwork.network import Network
from tests.simulation.source.client import Database, Session, SourceClient, failure
from tests.simulation.source.finds import EntryCursor, matches
from tests.simulation.source.replica_set import FIRST_SECOND
from tests.simulation.source.row_keys import as_key, between, in_order, ordered
from tests.simulation.source.sharded.cluster import ClusterSource
from tests.simulation.source.sharded.config_servers import CONFIG
from tests.simulation.source.sharded.placement import NO_TIME, PlacedTable
from tests.simulation.source.sharded.shard import Local, Shard
from tests.simulation.source.tables import Row

_WAITS = 30.0
_REMEMBERED = 8.0
"""Seconds of which config servers know the past."""
_DECODED: CodecOptions[dict[str, Any]] = CodecOptions(dict, tz_aware=True)
_NOBODY = ObjectId("0" * 24)


class ShardSession(Session):
    """Carries the newest time that any reply told it, as its server signed it."""

    def advance_cluster_time(self, cluster_time: Mapping[str, Any]) -> None:
        if self.cluster_time is None or cluster_time["clusterTime"] > self.cluster_time["clusterTime"]:
            self.cluster_time = cluster_time


class ShardClient(SourceClient):
    def __init__(self, cluster: ClusterSource, name: str, network: Network) -> None:
        self.shard = {**cluster.streams, **cluster.retired}[name]
        super().__init__(self.shard, network)  # type: ignore[arg-type]  # a replica set without the tables that a whole source has
        self.cluster = cluster
        self.admin = ShardDatabase(self, "admin")

    def __getitem__(self, db: str) -> ShardDatabase:
        return ShardDatabase(self, db)

    def get_database(self, db: str, **_: object) -> ShardDatabase:
        return ShardDatabase(self, db)

    def start_session(self, **_: object) -> ShardSession:
        return ShardSession(self)

    def travel(self) -> None:
        super().travel()
        if self.shard.down.until > self.network.machine.now:
            self.network.machine.sleep(0.3)
            raise AutoReconnect(f"{self.shard.name} does not answer")

    def wait_for(self, concern: Mapping[str, Any], body: Mapping[str, Any]) -> None:
        """A shard that is behind the time writes a no-op, so that it gets there."""
        if "afterClusterTime" in concern:
            after_ts = ClusterTime.from_bson(concern["afterClusterTime"])
            if after_ts <= self.shard.clock:
                self.shard.nudged(after_ts)
        super().wait_for(concern, body)


class _Owned:
    """An open cursor on what a shard owns of a table."""

    def __init__(self, local: Local | None, rows: list[Row], at: ClusterTime, election: int) -> None:
        self.local, self.rows, self.at, self.election = local, rows, at, election
        self.name = local.name if local is not None else None


class ShardDatabase(Database):
    _client: ShardClient

    def command(
        self, command: str | Mapping[str, Any], value: Any = 1, *, session: Session | None = None, **options: Any
    ) -> Any:
        shard = self._client.shard
        body: dict[str, Any] = {command: value} if isinstance(command, str) else dict(command)
        with self._gossip(session):
            match next(iter(body)):
                case "isMaster" | "hello":
                    reply = super().command(body, session=session, **options)
                    return {**reply, **({"configsvr": 2} if shard.name == CONFIG else {})}
                case "listDatabases":
                    self._client.travel()
                    return {"databases": [{"name": db} for db in sorted({name.db for name in shard.collections})]}
                case "listCollections":
                    self._client.travel()
                    found = [each for each in self._listed() if matches(body.get("filter", {}), each)]
                    return {"cursor": {"firstBatch": found, "id": 0}}
                case "dataSize":
                    self._client.travel()
                    documents = self._documents(TableName.parse(body["dataSize"]))
                    return {"numObjects": documents, "size": documents * (40 << 20)}
                case _:
                    return super().command(body, session=session, **options)

    @contextmanager
    def _gossip(self, session: Session | None) -> Iterator[None]:
        """The server hears of the session's time; the reply tells the session the server's."""
        shard = self._client.shard
        if session is not None and session.cluster_time is not None:
            shard.learn(ClusterTime.from_bson(session.cluster_time["clusterTime"]))
        yield
        if isinstance(session, ShardSession):
            session.advance_cluster_time({"clusterTime": shard.clock.to_bson(), "signature": shard.name})

    def cursor_command(self, command: str | Mapping[str, Any], value: Any = 1, **_: object) -> Iterator[dict[str, Any]]:
        self._client.travel()
        body: Mapping[str, Any] = {command: value} if isinstance(command, str) else command
        match next(iter(body)):
            case "listCollections":
                return iter(self._listed())
            case "listIndexes":
                return iter(self._indexes(TableName(self._db, body["listIndexes"])))
            case "find" if self._db == "local":
                return self._all_entries(body)
            case "aggregate":
                return self._sample(body)
        reply: dict[str, Any] = bson.decode(bytes(self._find(body).raw), _DECODED)
        return iter(reply["cursor"]["firstBatch"])

    def _sample(self, body: Mapping[str, Any]) -> Iterator[Any]:
        """With the documents that the shard does not own."""
        local = self._client.shard.collections.get(TableName(self._db, body["aggregate"]))
        keys = ordered({*local.orphans, *self._owned_now(local)}) if local is not None else []
        size = min(body["pipeline"][0]["$sample"]["size"], len(keys))
        for key in self._client.network.machine.random.sample(keys, size):
            yield RawBSONDocument(bson.encode({"_id": key}))

    def _listed(self) -> list[dict[str, Any]]:
        return [
            {
                "name": local.name.coll,
                "type": "collection",
                "options": dict(local.options),
                "info": {"uuid": Binary(local.uuid, 4)},
            }
            for local in self._client.shard.collections.values()
            if local.name.db == self._db
        ]

    def _indexes(self, name: TableName) -> list[dict[str, Any]]:
        local = self._client.shard.collections.get(name)
        if local is None:
            raise failure(26, "ns not found")
        building = [{"buildUUID": Binary(b"\1" * 16, 4), "spec": dict(spec)} for spec in local.building.values()]
        return [*(dict(spec) for spec in local.indexes.values()), *building]

    def _documents(self, name: TableName) -> int:
        local = self._client.shard.collections.get(name)
        return len(local.orphans) + len(self._owned_now(local)) if local is not None else 0

    def _owned_now(self, local: Local) -> Mapping[Any, Row]:
        table = self._client.cluster.table_of(local.uuid)
        return table.owned(self._client.shard.name) if table is not None else {}

    def _all_entries(self, body: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        client, shard = self._client, self._client.shard
        query = bson.decode(bson.encode(body["filter"]))
        backwards = dict(body.get("sort", {})).get("$natural") == -1
        cursor = EntryCursor(
            shard, client.member, query, shard.election, majority=True, backwards=backwards, left=1 << 30
        )
        while not cursor.done:
            for entry in cursor.next(1):
                yield bson.decode(entry.raw, _DECODED)

    def _find(self, body: Mapping[str, Any]) -> RawBSONDocument:
        if self._db == "local":
            return super()._find(body)
        if self._db == CONFIG:
            return self._configured(body)
        return self._find_owned(body)

    def _configured(self, body: Mapping[str, Any]) -> RawBSONDocument:
        """As the majority has it."""
        client, shard = self._client, self._client.shard
        concern = body.get("readConcern", {})
        client.wait_for({"afterClusterTime": concern["atClusterTime"]} if "atClusterTime" in concern else concern, body)
        visible = client.member.visible
        if "atClusterTime" in concern:
            at = ClusterTime.from_bson(concern["atClusterTime"])
            if FIRST_SECOND + client.network.machine.now - at.seconds > _REMEMBERED:
                raise failure(239, "the read timestamp is older than the oldest available one")
            visible = min(visible, shard.index_of(at.next()))
        if body["find"] == "transactions":
            documents: Iterable[dict[str, Any]] = [
                {
                    "_id": each.session["lsid"],
                    "txnNum": each.session["txnNumber"],
                    "startOpTime": {"ts": each.first.ts.to_bson(), "t": each.first.term},
                    "lastWriteOpTime": {"ts": each.ts.to_bson(), "t": each.last.term},
                    "state": "prepared",
                }
                for each in shard.prepared(visible)
            ]
        elif body["find"] == "changelog":
            documents = client.cluster.changes()
        else:
            documents = client.cluster.config.documents(body["find"], visible)
        query = _as_read(body.get("filter") or {})
        found = [each for each in documents if matches(query, _as_read(each))]
        for field, order in reversed(dict(body.get("sort", {})).items()):
            if field == "$natural":
                found = found[::order]
                continue
            found.sort(key=lambda each, field=field: each[field], reverse=order < 0)  # type: ignore[misc]
        found = found[: body.get("limit") or None]
        reply = {"cursor": {"firstBatch": found, "id": Int64(0), "ns": f"config.{body['find']}"}, "ok": 1.0}
        return RawBSONDocument(bson.encode(reply))

    def _find_owned(self, body: Mapping[str, Any]) -> RawBSONDocument:
        client, shard, machine = self._client, self._client.shard, self._client.network.machine
        at = ClusterTime.from_bson(body["readConcern"]["atClusterTime"])
        name, election, deadline = TableName(self._db, body["find"]), shard.election, machine.now + _WAITS
        if at > shard.clock:
            raise failure(72, "readConcern atClusterTime value must not be greater than the current clusterTime")
        shard.nudged(at)
        while client.committed < at or shard.undecided_before(at):
            if machine.now >= deadline:
                raise NetworkTimeout("timed out")
            shard.changed.wait(min(deadline, machine.now + 0.1))
            client.same_primary(election)
        shard.take_time()
        table = client.cluster.tables.get(name)
        self._refuse_stale(name, table, body)
        local = shard.collections.get(name)
        rows: dict[Any, Row] = {}
        if local is not None and table is not None and local.uuid == table.uuid_now:
            if local.since_ts > at:
                raise failure(246, "snapshot unavailable")
            rows = table.owned_at(at, shard.name)
        low, high = (in_order(_id(body[bound])) if bound in body else None for bound in ("min", "max"))
        keys = between(rows, low, high)
        if "filter" in body:
            keys = [key for key in keys if key == _id(body["filter"])]
        cursor = self._client.next_number()
        client.finds[cursor] = _Owned(local, [rows[key] for key in keys], at, election)  # type: ignore[assignment]
        return self._found(cursor, body, "firstBatch")

    def _refuse_stale(self, name: TableName, table: PlacedTable | None, body: Mapping[str, Any]) -> None:
        """A shard knows which chunks it owns, and which databases; a router has to know it too."""
        cluster, shard = self._client.cluster, self._client.shard
        known = cluster.config.now
        if table is not None and (table.blocked or shard.name in table.closed):
            raise failure(13388, "the critical section is taken")
        entry = known["collections"].get(str(name))
        said = body["shardVersion"]
        if entry is None:
            if said["e"] != _NOBODY:
                raise failure(13388, "the collection is not sharded")
            database = known["databases"].get(name.db)
            if database is None or database["primary"] != shard.name or database["version"] != body["databaseVersion"]:
                raise failure(249, "the database has another primary shard")
            return
        mine = [each["lastmod"] for each in known["chunks"].values() if _is_of(each, entry, shard)]
        wanted = {"e": entry["lastmodEpoch"], "t": entry["timestamp"], "v": max(mine, default=NO_TIME)}
        if dict(said) != wanted:
            raise failure(13388, f"the version wanted is {wanted}")

    def _found(self, cursor: int, body: Mapping[str, Any], kind: str) -> RawBSONDocument:
        client, shard = self._client, self._client.shard
        find: Any = client.finds[cursor]
        client.same_primary(find.election)
        if find.local is not None and shard.collections.get(find.local.name) is not find.local:
            raise failure(175, "collection renamed or dropped")
        if find.local is not None and find.local.name != find.name:
            raise failure(175, "collection renamed or dropped")
        most = min(
            body.get("batchSize", 101), client.network.machine.random.choice((1, 2, 100)), body.get("limit") or 101
        )
        part, find.rows = find.rows[:most], [] if body.get("limit") else find.rows[most:]
        found = {kind: part, "id": Int64(cursor if find.rows else 0), "ns": "x", "atClusterTime": find.at.to_bson()}
        return RawBSONDocument(bson.encode({"cursor": found, "operationTime": find.at.to_bson(), "ok": 1.0}))


def _is_of(chunk: Mapping[str, Any], collection: Mapping[str, Any], shard: Shard) -> bool:
    return bool(chunk["uuid"] == collection["uuid"] and chunk["shard"] == shard.name)


def _as_read(document: Mapping[str, Any]) -> dict[str, Any]:
    return bson.decode(bson.encode(document), _DECODED)


def _id(document: Any) -> Any:
    return as_key(bson.decode(bson.encode(document))["_id"])
