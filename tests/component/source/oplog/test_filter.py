"""The oplog cursor's filter, evaluated by a server over an ordinary collection of recorded and hand-written entries."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bson import json_util
from bson.binary import Binary
from bson.timestamp import Timestamp

from changefeed.cluster_time import ClusterTime
from source.connection import Client, connect
from source.oplog.ddl_entry import ddls_of_entry
from source.oplog.oplog_ddl_watch import WANTED

RECORDED = Path(__file__).parents[3] / "fixtures" / "mongodb-4.3" / "replica-set-oplog.jsonl"
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
    return [entry["ts"] for entry in client[database].entries.find(WANTED, sort=[("ts", 1)])]


def test_of_the_recorded_oplog_exactly_the_ddl_is_asked_for(client: Client, database: str) -> None:
    entries: list[dict[str, Any]] = [json_util.loads(line) for line in RECORDED.read_text().splitlines()]
    with_ddl = [entry["ts"] for entry in entries if ddls_of_entry(entry)]
    about_views = [entry["ts"] for entry in entries if entry["o"].get("create") == "system.views"]
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
        {**INSERT, "ns": "shop.system.viewsmore", "ts": Timestamp(100, 8)},
    ]
    assert [time.inc for time in selected(client, database, entries)] == [2, 4, 5]
