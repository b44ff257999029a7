"""Equal small values that are read from etcd are one object: a changefeed of 100,000 tables has few that differ."""

from __future__ import annotations

import json

from pydantic import TypeAdapter

from changefeed.cluster_time import ClusterTime
from changefeed.documents.document import Document
from changefeed.position import Position
from changefeed.table import TableId, TableName, TableSchema

_SCHEMAS = TypeAdapter(TableSchema)


def read(number: int, index: dict[str, object]) -> TableSchema:
    schema = TableSchema(
        id=TableId(f"{number:032x}"),
        name=TableName("shop", f"t{number}"),
        indexes=(Document.of(index),),
        valid_from=Position(ClusterTime(100, 1), "82"),
    )
    return _SCHEMAS.validate_json(json.dumps(_SCHEMAS.dump_python(schema, mode="json")))


def test_equal_indexes_and_positions_of_two_tables_are_one_object() -> None:
    index: dict[str, object] = {"v": 2, "key": {"at": 1}, "name": "at_1"}
    one, other, third = read(1, index), read(2, index), read(3, {**index, "unique": True})
    assert one.indexes[0] is other.indexes[0]
    assert one.valid_from is other.valid_from
    assert one.options is other.options
    assert third.indexes[0] != one.indexes[0]
