"""`SyncMarks`: the records of sync points in the target, and what only the target knows of one.

    sluice.sync_points    {_id: "<changefeed>/<seconds>", feed, source: {at: T}, tries}                  marked: proves nothing
                          {..., target: {at: C}, except: [...], made_at, done: true}                     the source at T and the target at C are equal

C is the time of the mark's own write. Everything that was acknowledged before it is at C, since later writes of a replica set have later times. A mark
never touches a record that is done, so one that an old owner sends late changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from datetime import datetime, timedelta
from typing import Any

import pymongo
from bson.codec_options import CodecOptions
from pymongo.errors import OperationFailure

from changefeed.cluster_time import ClusterTime
from changefeed.errors import FencedError, SinkRefused, SinkUnavailable
from changefeed.records.sync_point import ComparedPart, ExceptedTable, PartResult, SyncPoint
from changefeed.table import TableId, TableName
from sink.mongodb.connection import Client, Clients, present
from sink.mongodb.letters.dead_letter import beginning_with, ids_of
from sink.mongodb.rows.rows_ahead import ROWS_AHEAD
from sink.mongodb.target_errors import translated
from sink.sink import Marked, Permit

SYNC_POINTS = TableName("sluice", "sync_points")
_PATIENCE_SECONDS = 5.0
_MOST_FOUND = 100_000
_MAJORITY = {"w": "majority", "wtimeout": int(1000 * _PATIENCE_SECONDS)}
_READ: CodecOptions[dict[str, Any]] = CodecOptions(dict, tz_aware=True)


class SyncMarks:
    """For one changefeed. `letters`: where it keeps its dead letters. Its methods wait for the target."""

    def __init__(self, clients: Clients, changefeed: str, letters: TableName | None, permit: Permit) -> None:
        self._clients = clients
        self._changefeed = changefeed
        self._letters = letters
        self._permit = permit

    def mark(self, ts: ClusterTime) -> Marked:
        set_once = {"feed": self._changefeed, "source": {"at": ts.to_bson()}}
        update = {"$set": set_once, "$inc": {"tries": 1}}
        statement = {"q": {"_id": self._id(ts), "done": {"$ne": True}}, "u": update, "upsert": True}
        target_ts = self._write({"update": SYNC_POINTS.coll, "updates": [statement]})
        newer = self._found(ROWS_AHEAD, {**self._own, "until": {"$gt": ts.to_bson()}}, target_ts)
        refused: set[TableId] = set()
        if self._letters is not None:
            refused = self._found(self._letters, {"_id": beginning_with(ids_of(self._changefeed))}, target_ts)
        return Marked(target_ts=target_ts, newer=frozenset(newer), refused=frozenset(refused))

    def record(self, point: SyncPoint, keep: timedelta) -> None:
        done = {
            "target": {"at": point.target.to_bson()},
            "except": [_shown(table) for table in point.excepted],
            "made_at": point.made_at,
            "done": True,
        }
        # not upserted: what was removed because of its age does not come back
        self._write(
            {"update": SYNC_POINTS.coll, "updates": [{"q": {"_id": self._id(point.source)}, "u": {"$set": done}}]}
        )
        old = {**self._own, "source.at": {"$lt": point.source.earlier_by(keep).to_bson()}}
        self._write({"delete": SYNC_POINTS.coll, "deletes": [{"q": old, "limit": 0}]})
        passed = {**self._own, "until": {"$lte": point.source.to_bson()}}
        self._write({"delete": ROWS_AHEAD.coll, "deletes": [{"q": passed, "limit": 0}]})

    def compared(self, point: SyncPoint, compared: PartResult) -> None:
        differences = [
            {"table": str(each.table), "kind": each.kind, "key": each.key, "source": each.source, "target": each.target}
            for each in compared.differences
        ]
        verified = {
            **asdict(compared.part),
            "differences": differences,
            "not_compared": [{"table": str(name), "why": why} for name, why in compared.left_out.items()],
        }
        change = {"q": {"_id": self._id(point.source), "done": True}, "u": {"$set": {"verified": verified}}}
        self._write({"update": SYNC_POINTS.coll, "updates": [change]})

    def close(self) -> None:
        self._clients.close()

    @property
    def _client(self) -> Client:
        return present(self._clients)

    @property
    def _own(self) -> dict[str, Any]:
        return {"_id": beginning_with(f"{self._changefeed}/")}

    def _id(self, ts: ClusterTime) -> str:
        return f"{self._changefeed}/{ts.seconds:010}"

    def _write(self, command: dict[str, Any]) -> ClusterTime:
        """Returns its time: at or after that of the write."""
        doing = "writing the record of a sync point"
        with translated(doing, SinkRefused), pymongo.timeout(self._seconds(doing)):
            reply = self._client[SYNC_POINTS.db].command({**command, "writeConcern": _MAJORITY})
        if late := reply.get("writeConcernError"):
            raise SinkUnavailable(f"{doing}: not durable yet: {late.get('errmsg')}")
        for error in reply.get("writeErrors", ()):
            raise SinkRefused(f"{doing}: {error.get('errmsg')}")
        return ClusterTime.from_bson(reply["operationTime"])

    def _found(self, name: TableName, condition: Mapping[str, Any], at_ts: ClusterTime) -> set[TableId]:
        """The tables that the `_id`s name. Ids are `<changefeed>/<table>`, and may go on."""
        concern = {"level": "snapshot", "atClusterTime": at_ts.to_bson()}
        command = {"find": name.coll, "filter": condition, "projection": {"_id": 1}, "batchSize": _MOST_FOUND}
        doing = f"reading {name} as of a sync point"
        with translated(doing, SinkRefused), pymongo.timeout(self._seconds(doing)):
            reply = self._client[name.db].command({**command, "readConcern": concern})
        if reply["cursor"].get("id"):
            raise SinkRefused(f"{doing}: it has more than {_MOST_FOUND} documents of this changefeed")
        return {TableId(found["_id"].split("/")[1]) for found in reply["cursor"]["firstBatch"]}

    def _seconds(self, doing: str) -> float:
        if (left := self._permit()) <= 0:
            raise FencedError(f"{doing}: this node's session is over")
        return min(left, _PATIENCE_SECONDS)


def _shown(table: ExceptedTable) -> dict[str, Any]:
    return {"source": list(map(str, table.source)), "target": list(map(str, table.target)), "why": table.why}


def stored_points(client: Client, changefeed: str, most: int) -> list[SyncPoint]:
    """The newest ones that are done, the newest first."""
    with translated(f"reading {SYNC_POINTS}", SinkRefused):
        points = client.get_database(SYNC_POINTS.db, codec_options=_READ)[SYNC_POINTS.coll]
        found = points.find({"_id": beginning_with(f"{changefeed}/"), "done": True}).sort("_id", -1).limit(most)
        return [_point(each) for each in found]


def _point(stored: Mapping[str, Any]) -> SyncPoint:
    made_at: datetime = stored["made_at"]
    return SyncPoint(
        source=ClusterTime.from_bson(stored["source"]["at"]),
        target=ClusterTime.from_bson(stored["target"]["at"]),
        excepted=tuple(
            ExceptedTable(
                source=tuple(map(TableName.parse, table["source"])),
                target=tuple(map(TableName.parse, table["target"])),
                why=table["why"],
            )
            for table in stored["except"]
        ),
        made_at=made_at,
        verified=_part(stored["verified"]) if "verified" in stored else None,
    )


def _part(stored: Mapping[str, Any]) -> ComparedPart:
    return ComparedPart(**{each.name: stored[each.name] for each in fields(ComparedPart)})


def readable_for(client: Client) -> timedelta | None:
    """How long the server keeps its history. None: it does not tell this user."""
    parameter = "minSnapshotHistoryWindowInSeconds"
    try:
        return timedelta(seconds=int(client.admin.command({"getParameter": 1, parameter: 1})[parameter]))
    except OperationFailure:
        return None
