"""`OplogCursor`: DDL from the oplog of a replica set, for servers whose change streams do not show all of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import structlog
from bson.timestamp import Timestamp
from pymongo import CursorType, ReadPreference
from pymongo.client_session import ClientSession
from pymongo.collection import Collection
from pymongo.cursor import Cursor
from pymongo.errors import OperationFailure, PyMongoError
from pymongo.read_concern import ReadConcern

from changefeed.cluster_time import ClusterTime
from source.change_stream_cursor import AWAIT_MS
from source.connection import Client, session_time
from source.ddl_watch import Reading
from source.errors import CAPPED_POSITION_LOST, CURSOR_NOT_FOUND, told
from source.oplog.ddl_entry import (
    Entry,
    ddls_of_entry,
    ends_transaction,
    previous_in_chain,
    unknown_command,
)
from source.resume_token import high_water_mark_token, oplog_ddl_token

_FIRST_ENTRY = "initiating set"

log = structlog.get_logger(__name__)


def ddl_filter(start_ts: ClusterTime) -> Mapping[str, Any]:
    """Commands and view definitions; of transactions only those that hold a command or end a chain that may."""
    return {
        "ts": {"$gte": start_ts.to_bson()},
        "fromMigrate": {"$ne": True},
        "$or": [
            {"op": "c", "o.applyOps": {"$exists": False}},
            {"op": "c", "o.applyOps.op": "c"},
            {"op": "c", "o.partialTxn": {"$ne": True}, "prevOpTime.ts": {"$gt": Timestamp(0, 0)}},
            {"op": {"$in": ["i", "u", "d"]}, "ns": {"$regex": r"^[^.]+\.system\.views$"}},
        ],
    }


class OplogCursor:
    """Tails majority-committed entries.

    An empty answer proves that everything committed *before it was asked for* has been shown: the reply's own time
    may be newer than what the scan saw. So the mark it leaves is the time of the reply before.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._unknown: set[str] = set()
        self._session: ClientSession | None = None
        self._cursor: Cursor[dict[str, Any]] | None = None
        self._start_ts = ClusterTime(0, 0)
        self._committed_ts: ClusterTime | None = None

    def open(self, start_ts: ClusterTime) -> None:
        self._start_ts = start_ts
        self._committed_ts = None
        self._session = self._client.start_session(causal_consistency=False)
        tail = self._oplog.find(ddl_filter(start_ts), cursor_type=CursorType.TAILABLE_AWAIT, session=self._session)
        self._cursor = tail.max_await_time_ms(AWAIT_MS)

    def read(self) -> Reading:
        assert self._cursor is not None
        assert self._session is not None
        if not self._cursor.alive:
            raise OperationFailure("the cursor on the oplog ended", CURSOR_NOT_FOUND)
        entry = next(self._cursor, None)
        before_ts, self._committed_ts = self._committed_ts, session_time(self._session)
        if before_ts is None:
            self._refuse_a_gap()
        if entry is not None:
            return self._reading_of(entry)
        token = high_water_mark_token(before_ts) if before_ts is not None else None
        return Reading(token=token, quiet=True, committed_ts=self._committed_ts)

    def earlier_of(self, entry: Entry) -> list[Entry]:
        """The entries before this one of the transaction that it ends, in order."""
        if entry["op"] != "c" or not ends_transaction(entry):
            return []
        chain: list[Entry] = []
        previous = previous_in_chain(entry)
        while previous is not None:
            part = self._oplog.find_one({"ts": previous["ts"]})
            if part is None:
                message = f"the transaction that ends at {entry['ts']} begins before the oplog does"
                raise OperationFailure(message, CAPPED_POSITION_LOST)
            chain.append(part)
            previous = previous_in_chain(part)
        return chain[::-1]

    def close(self) -> None:
        cursor, session = self._cursor, self._session
        self._cursor = self._session = None
        try:
            if cursor is not None:
                cursor.close()
        except PyMongoError as error:
            log.info("ddl_stream_close_failed", error=told(error))
        finally:
            if session is not None:
                session.end_session()

    @property
    def _oplog(self) -> Collection[dict[str, Any]]:
        local = self._client.get_database(
            "local", read_preference=ReadPreference.PRIMARY, read_concern=ReadConcern("majority")
        )
        return local["oplog.rs"]

    def _refuse_a_gap(self) -> None:
        """After the first answer, so that nothing can be trimmed between the check and the scan's beginning."""
        oldest = self._oplog.find_one({}, sort=[("$natural", 1)])
        if oldest is None or oldest["o"].get("msg") == _FIRST_ENTRY:
            return
        if ClusterTime.from_bson(oldest["ts"]) > self._start_ts:
            raise OperationFailure(f"the oplog begins after {self._start_ts}", CAPPED_POSITION_LOST)

    def _reading_of(self, entry: Entry) -> Reading:
        assert self._committed_ts is not None
        self._log_unknown(entry)
        cluster_ts = ClusterTime.from_bson(entry["ts"])
        events = ddls_of_entry(entry, self.earlier_of(entry))
        token = oplog_ddl_token(cluster_ts, len(events) - 1) if events else high_water_mark_token(cluster_ts)
        return Reading(events=events, token=token, quiet=False, committed_ts=self._committed_ts)

    def _log_unknown(self, entry: Entry) -> None:
        name = unknown_command(entry)
        if name is not None and name not in self._unknown:
            self._unknown.add(name)
            log.warning("unknown_oplog_command", command=name, namespace=entry["ns"])
