"""What a row of a sharded cluster is taken for."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import bson
import pytest
from bson.binary import Binary
from bson.objectid import ObjectId
from bson.timestamp import Timestamp

from changefeed.table import TableId
from source.oplog.row_entry import MalformedEntry
from source.sharded.cluster_clients import ClusterClients
from source.sharded.rows import ShardedRows

_FIRST, _NOW = UUID(int=1), UUID(int=2)


@pytest.fixture
def rows() -> ShardedRows:
    with ClusterClients("mongodb://127.0.0.1:1/?connect=false") as clients:
        return ShardedRows(clients, {TableId(_NOW.hex): TableId(_FIRST.hex)}, patience=timedelta())


def entry(**fields: Any) -> bytes:
    usual = {"op": "i", "ns": "shop.orders", "ui": Binary(_NOW.bytes, 4), "o": {"_id": 1, "k": 2}, "o2": {"_id": 1}}
    return bson.encode({**usual, **fields, "ts": Timestamp(100, 1)})


@pytest.mark.parametrize(
    "key",
    [
        {"_id": 7},
        {"k": 1, "_id": 7},
        {"_id": ObjectId(), "k": 1},
        {"k": "x", "b": {"c": 1}, "_id": "text"},
        {"k": b"\x07_id\x00" + bytes(12), "_id": {"a": 1}},
    ],
)
def test_a_row_is_known_by_its_id_whatever_the_shard_key_is(rows: ShardedRows, key: dict[str, Any]) -> None:
    header = rows.scan(entry(o2=key))
    assert bson.decode(header.key) == {"_id": key["_id"]}
    assert header.uuid == _FIRST.bytes
    assert bson.decode(entry(o2=key)[header.full_at : header.full_end]) == {"_id": 1, "k": 2}


def test_what_a_migration_copies_is_no_row(rows: ShardedRows) -> None:
    assert rows.scan(entry(fromMigrate=True)).type == b"noop"
    assert rows.scan(entry(o={"_id": 1, "text": b"\x08fromMigrate\x00\x01"})).type == b"insert"


def test_what_no_operation_on_a_document_has_beside_it_is_no_key(rows: ShardedRows) -> None:
    assert rows.scan(entry(op="n", o={"msg": ""}, o2={"shardCollection": "shop.orders"})).type == b"noop"


def test_a_key_without_an_id_is_an_error(rows: ShardedRows) -> None:
    with pytest.raises(MalformedEntry, match="no _id"):
        rows.scan(entry(o2={"k": 1}))
