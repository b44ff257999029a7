"""What the oplog's cursor asks the server for, asked of an ordinary collection that holds recorded and hand-written entries."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bson import json_util
from bson.binary import Binary
from bson.timestamp import Timestamp
from pymongo.collection import Collection
from pymongo.errors import OperationFailure

from changefeed.cluster_time import ClusterTime
from changefeed.errors import HistoryLost
from source.connection import Client, connect
from source.errors import translate
from source.oplog.ddl_entry import ddls_of_entry
from source.oplog_watch import OplogCursor, ddl_filter

RECORDED = Path(__file__).parents[2] / "fixtures" / "mongodb-4.3" / "replica-set-oplog.jsonl"
BEGINNING = ClusterTime(0, 1)
UI = Binary(bytes(16), 4)
CREATE = {"op": "c", "ns": "shop.$cmd", "ui": UI, "o": {"create": "a"}}
INSERT = {"op": "i", "ns": "shop.a", "ui": UI, "o": {"_id": 1}}


@pytest.fixture(scope="module")
def client(source_uri: str) -> Iterator[Client]:
    with connect(source_uri) as client:
        yield client


def selected(client: Client, database: str, entries: list[dict[str, Any]]) -> list[Timestamp]:
    client[database].entries.insert_many(entries)
    return [entry["ts"] for entry in client[database].entries.find(ddl_filter(BEGINNING), sort=[("ts", 1)])]


def test_of_the_recorded_oplog_exactly_the_ddl_is_asked_for(client: Client, database: str) -> None:
    entries: list[dict[str, Any]] = [json_util.loads(line) for line in RECORDED.read_text().splitlines()]
    with_ddl = [entry["ts"] for entry in entries if ddls_of_entry(entry)]
    about_views = [
        entry["ts"] for entry in entries if "system.views" in (entry["o"].get("create"), entry["o"].get("drop"))
    ]
    assert selected(client, database, entries) == sorted(with_ddl + about_views)
    assert len(with_ddl) > 50


def transaction(time: int, *operations: dict[str, Any], **fields: Any) -> dict[str, Any]:
    flags: dict[str, Any] = {name: fields.pop(name) for name in ("partialTxn", "prepare") if name in fields}
    o = {"applyOps": list(operations), **flags}
    return {"op": "c", "ns": "admin.$cmd", "o": o, "ts": Timestamp(100, time), **fields}


def test_of_transactions_only_those_that_may_hold_ddl_are_asked_for(client: Client, database: str) -> None:
    before = {"prevOpTime": {"ts": Timestamp(100, 1), "t": 1}}
    none_before = {"prevOpTime": {"ts": Timestamp(0, 0), "t": -1}}
    entries = [
        transaction(1, INSERT, **none_before),
        transaction(2, CREATE, INSERT, **none_before),
        transaction(3, INSERT, partialTxn=True, **none_before),
        transaction(4, INSERT, **before),
        {"op": "c", "ns": "admin.$cmd", "o": {"commitTransaction": 1}, "ts": Timestamp(100, 5), **before},
        {"op": "n", "ns": "", "o": {"msg": "periodic noop"}, "ts": Timestamp(100, 6)},
        {**CREATE, "ts": Timestamp(100, 7), "fromMigrate": True},
        {**INSERT, "ns": "shop.system.viewsmore", "ts": Timestamp(100, 8)},
    ]
    assert [time.inc for time in selected(client, database, entries)] == [2, 4, 5]


class OverOrdinaryCollection(OplogCursor):
    """Looks up the earlier entries of a transaction in an ordinary collection instead of the oplog."""

    def __init__(self, client: Client, entries: Collection[dict[str, Any]]) -> None:
        super().__init__(client)
        self._entries = entries

    @property
    def _oplog(self) -> Collection[dict[str, Any]]:
        return self._entries


def linked(time: int, before: int | None, *operations: dict[str, Any], **fields: Any) -> dict[str, Any]:
    previous = {"ts": Timestamp(100, before), "t": 1} if before else {"ts": Timestamp(0, 0), "t": -1}
    return transaction(time, *operations, prevOpTime=previous, **fields)


def test_a_chain_is_followed_to_its_beginning_in_order(client: Client, database: str) -> None:
    first = linked(1, None, CREATE, partialTxn=True)
    second = linked(2, 1, INSERT, partialTxn=True)
    last = linked(3, 2, {**CREATE, "o": {"create": "b"}})
    entries = client[database].entries
    entries.insert_many([first, second, last])
    earlier = OverOrdinaryCollection(client, entries).earlier_of(last)
    assert [entry["ts"].inc for entry in earlier] == [1, 2]
    assert [str(event.table) for event in ddls_of_entry(last, earlier)] == ["shop.a", "shop.b"]


def test_a_chain_whose_beginning_left_the_oplog_is_lost_history(client: Client, database: str) -> None:
    entries = client[database].entries
    entries.insert_one(linked(2, 1, CREATE, partialTxn=True))
    with pytest.raises(OperationFailure, match="begins before the oplog does") as caught:
        OverOrdinaryCollection(client, entries).earlier_of(linked(3, 2, INSERT))
    assert type(translate(caught.value, "reading")) is HistoryLost
