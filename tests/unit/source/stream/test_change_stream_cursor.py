"""How the cursor handles replies: duplicates of shards, heartbeats."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Self, cast

import bson
import pytest
from bson.binary import Binary
from bson.codec_options import CodecOptions
from bson.int64 import Int64
from bson.raw_bson import RawBSONDocument
from bson.timestamp import Timestamp

from changefeed.cluster_time import ClusterTime
from source.connection import Client
from source.stream import filter_match, raw_stream
from source.stream.stream_ddl_watch import ChangeStreamCursor
from tests.unit.source.stream.tokens import high_water_mark_token

ORDERS = bytes.fromhex("e859f91defed4324b3c16153db5f4643")


def change(kind: str, increment: int, **fields: Any) -> dict[str, Any]:
    token = f"82{100:08X}{increment:08X}2B042C0100296E5A1004{ORDERS.hex().upper()}04"
    head = {"_id": {"_data": token}, "operationType": kind, "clusterTime": Timestamp(100, increment)}
    return {**head, "collectionUUID": Binary(ORDERS, 4), "ns": {"db": "shop", "coll": "orders"}, **fields}


class FakeSession:
    session_id: Mapping[str, Any] = {"id": 1}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def end_session(self) -> None:
        pass


class FakeSource:
    """Answers one aggregate with all its events."""

    codec_options: CodecOptions[dict[str, Any]] = CodecOptions(tz_aware=True)
    is_mongos = False

    def __init__(self, *changes: dict[str, Any]) -> None:
        self.admin = self
        self.changes = changes
        self.asked: dict[str, Any] = {}

    def start_session(self, *, causal_consistency: bool) -> FakeSession:
        return FakeSession()

    def command(self, command: dict[str, Any], **_: object) -> RawBSONDocument:
        self.asked = command
        cursor = {
            "firstBatch": list(self.changes),
            "id": Int64(1),
            "postBatchResumeToken": {"_data": high_water_mark_token(ClusterTime(100, 90))},
        }
        return RawBSONDocument(bson.encode({"cursor": cursor, "operationTime": Timestamp(100, 90), "ok": 1.0}))


class SlowSource(FakeSource):
    """Answers the aggregate when it is let, with what the majority had at 90. Until then the majority gets up to 95."""

    def __init__(self) -> None:
        super().__init__(change("drop", 6))
        self.let = threading.Event()

    def __getitem__(self, db: str) -> SlowSource:
        return self

    read_preference = None

    def command(self, command: dict[str, Any], **options: object) -> RawBSONDocument | dict[str, Any]:  # type: ignore[override] # as the driver
        if "aggregate" not in command:
            return {"lastWrite": {"majorityOpTime": {"ts": Timestamp(100, 95)}}}
        self.let.wait()
        return super().command(command, **options)


def opened(source: FakeSource, *, sharded: bool = False) -> ChangeStreamCursor:
    cursor = ChangeStreamCursor(cast("Client", source), sharded=sharded)
    cursor.open(ClusterTime(100, 5))
    return cursor


def test_it_asks_for_all_ddl_and_heartbeats_from_the_start_on() -> None:
    source = FakeSource()
    opened(source).read()
    stream, match = source.asked["pipeline"]
    assert stream["$changeStream"]["showExpandedEvents"] is True
    assert stream["$changeStream"]["startAtOperationTime"] == Timestamp(100, 5)
    assert match == {"$match": filter_match.DDL}


def test_heartbeats_are_nothing_but_places() -> None:
    reading = opened(FakeSource(change("replace", 6))).read()
    assert reading.events == ()
    assert reading.token == high_water_mark_token(ClusterTime(100, 90))


@pytest.mark.parametrize(("sharded", "drops"), [(True, 1), (False, 2)])
def test_only_shards_report_one_ddl_twice(drops: int, *, sharded: bool) -> None:
    cursor = opened(FakeSource(change("drop", 6), change("drop", 7)), sharded=sharded)
    assert len(cursor.read().events) == drops


def test_a_reply_without_events_is_quiet() -> None:
    reading = opened(FakeSource()).read()
    assert reading.quiet
    assert reading.committed_ts == ClusterTime(100, 90)


def test_a_reply_that_came_between_two_reads_does_not_say_what_the_majority_had_at_the_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = SlowSource()
    cursor = opened(source)
    monkeypatch.setattr(raw_stream, "_SILENCE_SECONDS", 0.0)
    assert cursor.read().events == ()
    source.let.set()
    monkeypatch.setattr(raw_stream, "_SILENCE_SECONDS", 60.0)
    reading = cursor.read()
    assert len(reading.events) == 1
    assert reading.committed_ts == ClusterTime(100, 95)
