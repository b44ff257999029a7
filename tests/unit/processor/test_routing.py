from __future__ import annotations

from typing import Any

import bson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from changefeed.cluster_time import ClusterTime
from changefeed.configuration import OrderBy
from changefeed.document import Document
from changefeed.position import Position
from changefeed.table import TableId, TableKind, TableName, TableSchema
from processor.routing import Components, TableRoute, dependent

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
        (_schema(kind=TableKind.TIMESERIES), True),
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


def test_rows_that_hand_a_unique_value_on_are_one_component() -> None:
    components = Components(
        [{b"1", b"one", b"aside"}, {b"2", b"two", b"one"}, {b"3", b"six"}, {b"1", b"ten"}, {b"4", b"six"}]
    )
    assert [components.of(number) for number in range(5)] == [0, 0, 2, 0, 2]


@given(st.lists(st.frozensets(st.sampled_from([bytes([n]) for n in range(12)]), min_size=1, max_size=3), max_size=20))
def test_changes_that_share_a_value_go_to_one_bucket(changes: list[frozenset[bytes]]) -> None:
    keys = [bson.encode({"_id": number}) for number in range(len(changes))]
    buckets = Components(changes).buckets(7, keys, 1000)
    for one, values in enumerate(changes):
        for other in range(one):
            if values & changes[other]:
                assert buckets[one] == buckets[other]
