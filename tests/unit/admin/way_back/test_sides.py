"""Which expiries a table has that a cut-over suspends or restores."""

from __future__ import annotations

from admin.way_back.sides import expiries_of
from changefeed.cluster_time import ClusterTime
from changefeed.documents.document import Document
from changefeed.position import Position
from changefeed.table import TableId, TableName, TableSchema

_ID_INDEX = Document.of({"v": 2, "key": {"_id": 1}, "name": "_id_"})
_TTL_INDEX = Document.of({"v": 2, "key": {"at": 1}, "name": "at_1", "expireAfterSeconds": 3600})


def schema(options: Document, *indexes: Document) -> TableSchema:
    at = Position(ClusterTime(1, 1))
    return TableSchema(
        id=TableId("ab"), name=TableName("shop", "sessions"), options=options, indexes=indexes, valid_from=at
    )


def test_a_table_s_own_expiry_and_that_of_each_index() -> None:
    found = expiries_of(schema(Document.of({"expireAfterSeconds": 600}), _ID_INDEX, _TTL_INDEX))
    assert [(each.index, each.after.decode()) for each in found] == [
        ("", {"expireAfterSeconds": 600}),
        ("at_1", {"expireAfterSeconds": 3600}),
    ]


def test_a_table_without_expiry_has_none() -> None:
    assert list(expiries_of(schema(Document.of({}), _ID_INDEX))) == []
