"""Indexes of buckets as a user sees them. The pairs are what real servers (5.0.4, 6.0.5, 6.0.27) write and list."""

from __future__ import annotations

from typing import Any

import pytest

from changefeed.cluster_time import ClusterTime
from changefeed.documents.document import Document
from changefeed.event import DdlEvent, DdlType
from changefeed.position import Position
from changefeed.table import TableId, TableKind, TableName, TableSchema, view_id
from schema_store.definition import in_measurements

AT = Position(ClusterTime(1, 1))
NAME = TableName("shop", "w")


def series(id: str = "ab" * 16, **timeseries: str) -> TableSchema:
    options = Document.of({"timeseries": {"timeField": "at", "metaField": "m"} | timeseries})
    return TableSchema(id=TableId(id), name=NAME, kind=TableKind.TIMESERIES, options=options, valid_from=AT)


def event(type_: DdlType, description: dict[str, Any]) -> DdlEvent:
    return DdlEvent(
        position=AT, type=type_, db="shop", table=NAME, id=series().id, description=Document.of(description)
    )


@pytest.mark.parametrize(
    ("stored", "seen"),
    [
        ({"control.max.at": -1, "control.min.at": -1}, {"at": -1}),
        ({"meta": 1, "control.min.at": 1, "control.max.at": 1}, {"m": 1, "at": 1}),
        ({"meta.k": "hashed"}, {"m.k": "hashed"}),
        ({"meta.$**": 1}, {"m.$**": 1}),
        ({"meta.meta": 1, "control.max.a.b": -1, "control.min.a.b": -1}, {"m.meta": 1, "a.b": -1}),
    ],
)
def test_the_bounds_of_a_field_stand_for_it_and_meta_for_the_meta_field(
    stored: dict[str, Any], seen: dict[str, Any]
) -> None:
    created = event(DdlType.CREATE_INDEXES, {"indexes": [{"v": 2, "key": stored, "name": "i", "sparse": True}]})
    assert in_measurements(created, series()).description.decode() == {
        "indexes": [{"v": 2, "key": seen, "name": "i", "sparse": True}]
    }


def test_what_the_server_noted_as_the_users_specification_is_taken() -> None:
    original = {"name": "some", "partialFilterExpression": {"m.k": 3}, "key": {"x": 1}, "v": 2}
    stored = {
        "v": 2,
        "key": {"control.min.x": 1, "control.max.x": 1},
        "name": "some",
        "partialFilterExpression": {"meta.k": {"$eq": 3}},
        "originalSpec": original,
    }
    dropped = event(DdlType.DROP_INDEXES, {"indexes": [stored]})
    assert in_measurements(dropped, series()).description.decode() == {"indexes": [original]}


def test_other_tables_and_other_ddl_stay_as_they_are() -> None:
    index = event(DdlType.CREATE_INDEXES, {"indexes": [{"v": 2, "key": {"meta": 1}, "name": "i"}]})
    plain = TableSchema(id=TableId("cd" * 16), name=NAME, valid_from=AT)
    assert in_measurements(index, plain) is index
    assert in_measurements(index, series(view_id(NAME))) is index
    modified = event(DdlType.MODIFY, {"index": {"name": "i", "hidden": True}})
    assert in_measurements(modified, series()) is modified
