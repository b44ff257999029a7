"""Rows that somebody changed at the target are written again by the processor of their table, while the source is written to."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from datetime import UTC, datetime
from threading import Event, Thread
from typing import Any

import bson
import pytest

from admin.desired.desired_store import DesiredStore
from changefeed.records.requests import ChangefeedId, RepairRequest
from changefeed.table import TableId
from tests.component.processor.conftest import ReplicatingCluster

_ROWS = 300


def _ask(cluster: ReplicatingCluster, feed: ChangefeedId, table: TableId, ids: Sequence[object]) -> None:
    keys = tuple(b64encode(bson.encode({"_id": id})).decode() for id in ids)
    request = RepairRequest(id=str(ids), keys=keys, asked_at=datetime.now(UTC))
    assert DesiredStore(cluster.etcd, cluster.layout).repair(feed, table, request) is not None
    cluster.until(lambda: cluster.etcd.get(cluster.layout.repair(feed, table)) is None, "the end of the request")


def _table(cluster: ReplicatingCluster, database: str, coll: str) -> TableId:
    [info] = cluster.source[database].list_collections(filter={"name": coll})
    return TableId(info["info"]["uuid"].hex())


def test_missing_extra_and_changed_rows_are_as_the_source_has_them(standing: ReplicatingCluster, database: str) -> None:
    rows, there = standing.source[database]["rows"], standing.target[f"{database}_to"]["rows"]
    for side in (rows, there):
        side.insert_many([{"_id": number, "code": number} for number in range(_ROWS)])
        side.create_index("code", unique=True)
    feed = standing.create("repaired", database)
    standing.until(lambda: standing.began(feed), "the beginning")
    over = Event()

    def write() -> None:
        number = 0
        while not over.wait(0.01):
            number += 1
            rows.update_one({"_id": 200 + number % 100}, {"$inc": {"n": 1}})

    writer = Thread(target=write)
    writer.start()
    try:
        there.delete_many({"_id": {"$lt": 50}})
        there.insert_many([{"_id": f"extra {number}", "code": number} for number in range(50)])
        there.update_many({"_id": {"$gte": 50, "$lt": 250}}, {"$set": {"bad": 1}})
        damaged: list[Any] = [*range(250), *(f"extra {number}" for number in range(50))]
        _ask(standing, feed, _table(standing, database, "rows"), damaged)
    finally:
        over.set()
        writer.join()
    standing.until(lambda: list(there.find(sort=[("_id", 1)])) == list(rows.find(sort=[("_id", 1)])), "equal rows")


@pytest.mark.soak
def test_of_two_tables_under_one_name_no_row_is_removed(standing: ReplicatingCluster, database: str) -> None:
    source, there = standing.source[database], standing.target[f"{database}_to"]["all"]
    for coll in ("one", "two"):
        source[coll].insert_one({"_id": coll})
        there.insert_one({"_id": coll})
    feed = standing.create("fan-in", database, routes=[{"from": f"{database}.*", "to": f"{database}_to.all"}])
    standing.until(lambda: standing.began(feed), "the beginning")
    there.insert_one({"_id": "extra"})
    there.delete_one({"_id": "one"})
    for coll in ("one", "two"):
        _ask(standing, feed, _table(standing, database, coll), ["one", "two", "extra"])
    assert sorted(row["_id"] for row in there.find()) == ["extra", "one", "two"]
