"""Watching what a source tells."""

from __future__ import annotations

import time
from typing import Any

from bson.timestamp import Timestamp
from pymongo.database import Database

from devstack.mongodb import Client

Event = dict[str, Any]
TIMEOUT_SECONDS = 20


class Watch:
    """What an expanded stream of one database shows from now on."""

    def __init__(self, client: Client, database: str, **options: Any) -> None:
        self.client = client
        self.db: Database[dict[str, Any]] = client[database]
        self._options = {"show_expanded_events": True, "max_await_time_ms": 200, **options}
        self._stream = self.db.watch(**self._options)
        self._ends = 0

    def events(self) -> list[Event]:
        """Those of what was done since the last call: an end is written and read up to."""
        self._ends += 1
        end = f"end{self._ends}"
        self.db[end].insert_one({"_id": 0})
        seen: list[Event] = []
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while time.monotonic() < deadline:
            event = self._stream.try_next()
            if event is None:
                continue
            if event["ns"].get("coll") == end and event["operationType"] == "insert":
                return [past for past in seen if past["ns"].get("coll") != end]
            seen.append(dict(event))
        raise TimeoutError(f"the stream showed {seen} and no end")

    def again(self, **options: Any) -> list[Event]:
        """What another stream shows up to the last end."""
        seen: list[Event] = []
        with self.db.watch(**{**self._options, **options}) as stream:
            deadline = time.monotonic() + TIMEOUT_SECONDS
            while time.monotonic() < deadline:
                event = stream.try_next()
                if event is not None:
                    seen.append(dict(event))
                    if event["ns"].get("coll") == f"end{self._ends}" and event["operationType"] == "insert":
                        return seen
        raise TimeoutError(f"the stream showed {seen} and no end")

    def uuid(self, coll: str) -> bytes:
        return bytes(next(iter(self.db.list_collections(filter={"name": coll})))["info"]["uuid"])

    def oplog(self, since: Timestamp) -> list[dict[str, Any]]:
        """This database's command entries and transactions after a time."""
        entries = self.client["local"]["oplog.rs"].find({"ts": {"$gt": since}, "op": {"$in": ["c", "i", "u", "d"]}})
        name = self.db.name
        return [
            entry
            for entry in entries
            if entry["ns"].startswith(f"{name}.") or f"{name}." in repr(entry["o"].get("applyOps"))
        ]

    def now(self) -> Timestamp:
        reply = self.client["admin"].command("hello")
        now: Timestamp = reply["lastWrite"]["opTime"]["ts"]
        return now


def kinds(events: list[Event]) -> list[tuple[str, str]]:
    """(operation, collection) of each."""
    return [(event["operationType"], event["ns"].get("coll", "")) for event in events]
