"""A row that is read to repair another is never older than the change it repairs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import bson
import pytest
from pymongo import WriteConcern
from pymongo.database import Database

from changefeed.errors import SourceUnavailable
from changefeed.table import TableId, TableName
from devstack.mongodb.server import TESTING, Client
from source.connection import connect, session_time
from source.oplog.window import majority_time
from source.tables.row_read import Row, read_row
from tests.conftest import ReplicaSets

_TABLE, _KEY = TableName("shop", "a"), bson.encode({"_id": 1})


class Shop:
    """`read` reads row 1 of the table whose first name is `a`."""

    def __init__(self, client: Client, there: Database[dict[str, Any]]) -> None:
        self._client, self.there = client, there
        [found] = there.list_collections(filter={"name": "a"})
        self._id = TableId(found["info"]["uuid"].hex())

    def read(self) -> Row | None:
        name = TableName(self.there.name, "a")
        return read_row(self._client, name, self._id, _KEY, not_before=majority_time(self._client))


def _id_of(client: Client, name: str) -> TableId:
    [found] = client["shop"].list_collections(filter={"name": name})
    return TableId(found["info"]["uuid"].hex())


def test_a_version_that_the_majority_has_not_got_yet_is_waited_for(own_replica_set: ReplicaSets) -> None:
    members = own_replica_set("rs", parameters=TESTING)
    with connect(members.uri) as client, client.start_session(causal_consistency=False) as session:
        rows = client["shop"].get_collection("a", write_concern=WriteConcern("majority"))
        rows.insert_one({"_id": 1, "version": "old"}, session=session)
        old_ts, id_ = session_time(session), _id_of(client, "a")
        members.hold_majority()
        rows.with_options(write_concern=WriteConcern(1)).replace_one(
            {"_id": 1}, {"_id": 1, "version": "new"}, session=session
        )
        new_ts = session_time(session)
        before = read_row(client, _TABLE, id_, _KEY, not_before=old_ts)
        assert before is not None
        assert bson.decode(before.document or b"")["version"] == "old"
        with pytest.raises(SourceUnavailable, match=r"shop\.a"):
            read_row(client, _TABLE, id_, _KEY, not_before=new_ts, wait_ms=500)
        members.release_majority()
        after = read_row(client, _TABLE, id_, _KEY, not_before=new_ts, wait_ms=20_000)
        assert after is not None
        assert bson.decode(after.document or b"")["version"] == "new"
        assert after.read_ts >= new_ts


def test_a_row_that_is_gone_is_none(own_replica_set: ReplicaSets) -> None:
    members = own_replica_set("rs", size=1)
    with connect(members.uri) as client, client.start_session(causal_consistency=False) as session:
        client["shop"]["a"].insert_one({"_id": 2}, session=session)
        row = read_row(client, _TABLE, _id_of(client, "a"), _KEY, not_before=session_time(session))
        assert row is not None
        assert row.document is None


@pytest.fixture
def shop(source_client: Client, source_uri: str, database: str) -> Iterator[Shop]:
    source_client[database]["a"].insert_one({"_id": 1, "is": "it"})
    with connect(source_uri) as client:
        yield Shop(client, source_client[database])


@pytest.mark.parametrize("successor", [False, True])
def test_a_table_is_read_whatever_its_name_is_by_now(shop: Shop, successor: bool) -> None:
    read = shop.read
    shop.there["a"].rename("b")
    if successor:
        shop.there["a"].insert_one({"_id": 1, "is": "another"})
    row = read()
    assert row is not None
    assert bson.decode(row.document or b"") == {"_id": 1, "is": "it"}


def test_a_table_that_is_gone_has_no_rows_to_speak_of(shop: Shop) -> None:
    shop.there["a"].drop()
    shop.there["a"].insert_one({"_id": 1, "is": "another"})
    assert shop.read() is None


@pytest.mark.since("6.0")  # for earlier servers see `source/tables/row_read.py`
def test_a_table_that_is_renamed_again_and_again_is_read_or_said_to_be_unreadable_for_now(shop: Shop) -> None:
    """No read returns the table without its row."""
    stop = threading.Event()

    def rename() -> None:
        while not stop.is_set():
            shop.there["a"].rename("b")
            shop.there["b"].rename("a")

    with ThreadPoolExecutor(1) as threads:
        renaming = threads.submit(rename)
        rows = []
        for _ in range(200):
            with suppress(SourceUnavailable):
                rows.append(shop.read())
        stop.set()
        renaming.result()
    assert rows
    assert all(row is not None and row.document is not None for row in rows)
