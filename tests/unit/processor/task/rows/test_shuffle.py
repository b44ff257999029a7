"""A shuffle returns events unchanged, whatever their size."""

from __future__ import annotations

from typing import Any

import bson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from changefeed.cluster_time import ClusterTime
from changefeed.config.configuration import OrderBy
from changefeed.documents.document import Document
from changefeed.position import Position
from changefeed.table import TableId, TableKind, TableName, TableSchema
from processor.task.rows.shuffle import BLOB_BYTES, TableRoute, dependent, divisible, pieces, unpacked, whole

_ID_INDEX = {"v": 2, "key": {"_id": 1}, "name": "_id_", "unique": True}


def _schema(
    *indexes: dict[str, Any], options: dict[str, Any] | None = None, kind: TableKind = TableKind.COLLECTION
) -> TableSchema:
    return TableSchema(
        id=TableId("ab" * 16),
        name=TableName("shop", "orders"),
        kind=kind,
        options=Document.of(options or {}),
        indexes=tuple(map(Document.of, (_ID_INDEX, *indexes))),
        valid_from=Position(ClusterTime(1, 0)),
    )


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (_schema(), False),
        (_schema({"key": {"a": 1}, "name": "a_1"}), False),
        (_schema({"key": {"a": 1}, "name": "a_1", "unique": True}), True),
        (_schema({"key": {"_id": 1, "a": 1}, "name": "both", "unique": True}), True),
        (_schema(options={"capped": True, "size": 4096}), True),
        (_schema(options={"collation": {"locale": "en", "strength": 2}}), True),
        (_schema(options={"collation": {"locale": "simple"}}), False),
        (_schema(kind=TableKind.TIMESERIES), False),
        (_schema(kind=TableKind.TIMESERIES, options={"collation": {"locale": "en", "strength": 2}}), False),
    ],
)
def test_rows_depend_on_each_other_where_the_schema_says_so(schema: TableSchema, expected: bool) -> None:
    assert dependent(schema) is expected


_UNIQUE = _schema({"key": {"a": 1}, "name": "a_1", "unique": True})


@pytest.mark.parametrize(
    ("schema", "order_by", "whole"),
    [
        (_schema(), OrderBy.AUTO, False),
        (_schema(), OrderBy.TABLE, True),
        (_UNIQUE, OrderBy.AUTO, True),
        (_UNIQUE, OrderBy.ID, False),
    ],
)
def test_a_table_goes_whole_or_by_id(schema: TableSchema, order_by: OrderBy, whole: bool) -> None:
    route = TableRoute.of(schema, order_by)
    buckets = {route.bucket(bson.encode({"_id": number}), 8) for number in range(200)}
    assert len(buckets) == (1 if whole else 8)


def test_equal_ids_meet_in_one_bucket_whatever_their_bytes() -> None:
    route = TableRoute.of(_schema(), OrderBy.AUTO)
    for number in range(100):
        assert route.bucket(bson.encode({"_id": number}), 64) == route.bucket(bson.encode({"_id": float(number)}), 64)


def test_the_bucket_is_the_same_in_every_process() -> None:
    route = TableRoute.of(_schema(), OrderBy.AUTO)
    assert [route.bucket(bson.encode({"_id": key}), 1000) for key in (1, "a", None)] == [318, 199, 140]


_COLLATED = {"locale": "en", "strength": 2}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (_schema(), False),
        (_schema({"key": {"a": 1}, "name": "a_1"}), False),
        (_UNIQUE, True),
        (_schema({"key": {"a": -1.0, "b.c": 1}, "name": "both", "unique": True, "sparse": True}), True),
        (_schema({"key": {"a": 1}, "name": "a_1", "prepareUnique": True}), True),
        (_schema({"key": {"a": 1}, "name": "a_1", "unique": True, "collation": {"locale": "simple"}}), True),
        (_schema({"key": {"a": 1}, "name": "a_1", "unique": True, "collation": _COLLATED}), False),
        (_schema({"key": {"a": 1, "b": "2d"}, "name": "place", "unique": True}), False),
        (_schema({"key": {"a": 1}, "name": "a_1", "unique": True}, options={"capped": True, "size": 4096}), False),
        (_schema({"key": {"a": 1}, "name": "a_1", "unique": True}, options={"collation": _COLLATED}), False),
    ],
)
def test_a_table_is_divisible_whose_rows_share_nothing_but_plain_unique_values(
    schema: TableSchema, expected: bool
) -> None:
    assert divisible(schema) is expected
    assert dependent(schema) or not expected


_SIZES = st.one_of(
    st.integers(5, 100),
    st.sampled_from([BLOB_BYTES - 1, BLOB_BYTES, BLOB_BYTES + 1, 2 * BLOB_BYTES, 5 * BLOB_BYTES + 7]),
)


def _event(number: int, size: int) -> bytes:
    return size.to_bytes(4, "little") + bytes([number % 251]) * (size - 4)


@given(st.lists(st.lists(_SIZES, min_size=1, max_size=5), max_size=4))
def test_blobs_cut_into_pieces_give_the_same_events(blobs: list[list[int]]) -> None:
    events = [[_event(number, size) for number, size in enumerate(sizes)] for sizes in blobs]
    records = [(number, piece) for number, blob in enumerate(events) for piece in pieces(b"".join(blob))]
    assert all(len(piece) <= 2 * BLOB_BYTES for _, piece in records)
    found: list[bytes] = []
    for _, content in whole(records):
        assert isinstance(content, bytes)
        found += unpacked(content)
    assert found == [event for blob in events for event in blob]


def test_an_event_that_broke_off_is_left_out() -> None:
    large = _event(1, 5 * BLOB_BYTES)
    records: list[tuple[int, bytes | str]] = [(0, piece) for piece in list(pieces(large))[:3]]
    assert list(
        whole([*records, (0, "the error"), (1, large[:100].replace(large[:4], (100).to_bytes(4, "little")))])
    ) == [
        (0, "the error"),
        (1, (100).to_bytes(4, "little") + large[4:100]),
    ]
