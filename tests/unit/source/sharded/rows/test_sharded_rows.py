"""What a row of a sharded cluster is taken for."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import bson
import pytest
from bson.binary import Binary
from bson.int64 import Int64
from bson.objectid import ObjectId
from bson.timestamp import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from changefeed.table import TableId
from source.oplog.row_entry import MalformedEntry
from source.sharded.cluster_clients import ClusterClients
from source.sharded.rows.row_scan import id_cut, row_scan
from source.sharded.rows.sharded_rows import sharded_rows
from source.source import RowCapture
from source.stream.window_reader import ReadOptions

_FIRST, _NOW = UUID(int=1), UUID(int=2)


@pytest.fixture
def rows() -> RowCapture:
    with closing(ClusterClients("mongodb://127.0.0.1:1/?connect=false")) as clients:
        return sharded_rows(clients, {TableId(_NOW.hex): TableId(_FIRST.hex)}, ReadOptions())


def entry(**fields: Any) -> bytes:
    usual = {"op": "i", "ns": "shop.orders", "ui": Binary(_NOW.bytes, 4), "o": {"_id": 1, "k": 2}, "o2": {"_id": 1}}
    return bson.encode(
        {**usual, "ts": Timestamp(100, 1), **fields} if "ts" in fields else {**usual, **fields, "ts": Timestamp(100, 1)}
    )


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
def test_a_row_is_known_by_its_id_whatever_the_shard_key_is(rows: RowCapture, key: dict[str, Any]) -> None:
    header = rows.scan(entry(o2=key))
    assert bson.decode(header.key) == {"_id": key["_id"]}
    assert header.uuid == _FIRST.bytes
    assert bson.decode(entry(o2=key)[header.full_at : header.full_end]) == {"_id": 1, "k": 2}


_VALUES = st.one_of(
    st.integers(-9, 9), st.integers(-9, 9).map(Int64), st.text("_id\x07\x10", max_size=9), st.floats(-1, 1), st.none()
)
_NAMES = st.sampled_from(["k", "b", "_i", "id", "_id_"])


@given(
    st.lists(st.tuples(st.dictionaries(_NAMES, _VALUES, max_size=2), _VALUES, st.booleans()), min_size=1, max_size=8)
)
def test_keys_of_all_forms_one_after_another(keys: list[tuple[dict[str, Any], Any, bool]]) -> None:
    id_of = id_cut()
    for fields, id, first in keys:
        key = {"_id": id, **fields} if first else {**fields, "_id": id}
        for _ in range(2):
            assert id_of(bson.encode(key)) == bson.encode({"_id": id})


@pytest.mark.parametrize("whole_keys", [False, True])
@given(st.dictionaries(_NAMES, _VALUES, max_size=2), st.one_of(_VALUES, st.builds(ObjectId)), st.sampled_from("iud"))
def test_the_key_of_an_entry_as_servers_write_it(whole_keys: bool, fields: dict[str, Any], id: object, op: str) -> None:
    key, document = {**fields, "_id": id}, {"_id": id, **fields, "text": "x"}
    o = {"i": document, "u": {"$v": 2, "diff": {"u": {"text": "y"}}}, "d": key}[op]
    rest = {"ts": Timestamp(100, 1), "t": Int64(1), "v": Int64(2), "wall": datetime(2026, 1, 1, tzinfo=UTC)}
    of_delete = {} if op == "d" else {"o2": key}
    raw = bson.encode({"op": op, "ns": "shop.orders", "ui": Binary(_NOW.bytes, 4), "o": o, **of_delete, **rest})
    found = bson.decode(row_scan({}, whole_keys=whole_keys)(raw).key)
    assert list(found.items()) == (list(key.items()) if whole_keys else [("_id", id)])


def test_what_a_migration_copies_is_no_row(rows: RowCapture) -> None:
    assert rows.scan(entry(fromMigrate=True)).type == b"noop"
    end = {"ts": Timestamp(100, 1), "t": Int64(1), "v": Int64(2), "wall": datetime(2026, 1, 1, tzinfo=UTC)}
    assert rows.scan(entry(**end)).type == b"insert"
    assert rows.scan(entry(**end, fromMigrate=True)).type == b"noop", "wherever it is"
    assert rows.scan(entry(o={"_id": 1, "text": b"\x08fromMigrate\x00\x01"})).type == b"insert"


def test_what_no_operation_on_a_document_has_beside_it_is_no_key(rows: RowCapture) -> None:
    assert rows.scan(entry(op="n", o={"msg": ""}, o2={"shardCollection": "shop.orders"})).type == b"noop"


def test_a_key_without_an_id_is_an_error(rows: RowCapture) -> None:
    with pytest.raises(MalformedEntry, match="no _id"):
        rows.scan(entry(o2={"k": 1}))
