"""What the cursor makes of the driver's stream: duplicates of shards, a stream that ends."""

from __future__ import annotations

from typing import Any, cast

import pytest
from bson.binary import Binary
from bson.timestamp import Timestamp
from pymongo.errors import OperationFailure

from changefeed import filter_match
from changefeed.cluster_time import ClusterTime
from source.change_stream_cursor import ChangeStreamCursor
from source.connection import Client
from source.resume_token import high_water_mark_token

ORDERS = bytes.fromhex("e859f91defed4324b3c16153db5f4643")


def change(kind: str, increment: int, **fields: Any) -> dict[str, Any]:
    token = f"82{100:08X}{increment:08X}2B042C0100296E5A1004{ORDERS.hex().upper()}04"
    ns = {"db": "shop", "coll": "orders"}
    return {"_id": {"_data": token}, "operationType": kind, "ns": ns, "collectionUUID": Binary(ORDERS, 4), **fields}


class FakeSession:
    operation_time = Timestamp(100, 90)
    cluster_time = None

    def end_session(self) -> None:
        pass


class FakeStream:
    """The driver's ChangeStream over a list: alive until the list is used up, if it is to end."""

    def __init__(self, changes: list[dict[str, Any]], *, ends: bool) -> None:
        self._changes = iter(changes)
        self._ends = ends
        self.alive = True
        self.resume_token = {"_data": high_water_mark_token(ClusterTime(100, 0))}

    def try_next(self) -> dict[str, Any] | None:
        found = next(self._changes, None)
        if found is not None:
            self.resume_token = found["_id"]
        elif self._ends:
            self.alive = False
        return found

    def close(self) -> None:
        self.alive = False


class FakeClient:
    def __init__(self, changes: list[dict[str, Any]], *, ends: bool = False) -> None:
        self.stream = FakeStream(changes, ends=ends)
        self.asked: dict[str, Any] = {}

    def start_session(self, *, causal_consistency: bool) -> FakeSession:
        return FakeSession()

    def watch(self, pipeline: list[dict[str, Any]], **options: Any) -> FakeStream:
        self.asked = {"pipeline": pipeline, **options}
        return self.stream


def opened(client: FakeClient, *, sharded: bool = False) -> ChangeStreamCursor:
    cursor = ChangeStreamCursor(cast("Client", client), sharded=sharded)
    cursor.open(ClusterTime(100, 5))
    return cursor


def test_it_asks_for_all_ddl_and_no_rows_from_the_start_on() -> None:
    client = FakeClient([])
    opened(client)
    assert client.asked["show_expanded_events"] is True
    assert client.asked["start_at_operation_time"] == Timestamp(100, 5)
    (stage,) = client.asked["pipeline"]
    assert stage == {"$match": filter_match.DDL}


@pytest.mark.parametrize(("sharded", "drops"), [(True, 1), (False, 2)])
def test_only_shards_say_one_thing_twice(drops: int, *, sharded: bool) -> None:
    cursor = opened(FakeClient([change("drop", 6), change("drop", 7)]), sharded=sharded)
    assert sum(len(cursor.read().events) for _ in range(2)) == drops


def test_nothing_to_show_is_quiet() -> None:
    reading = opened(FakeClient([])).read()
    assert reading.quiet
    assert reading.committed_ts == ClusterTime(100, 90)


def test_a_stream_that_the_server_ended_is_an_error_and_not_silence() -> None:
    cursor = opened(FakeClient([], ends=True))
    cursor.read()
    with pytest.raises(OperationFailure, match="ended"):
        cursor.read()
