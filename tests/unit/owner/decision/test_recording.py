"""The drops of views that the source does not show one by one."""

from __future__ import annotations

from typing import Any

import pytest

from changefeed.cluster_time import ClusterTime
from changefeed.documents.document import EMPTY, Document
from changefeed.event import DdlEvent, DdlType
from changefeed.position import Position
from changefeed.table import TableId, TableKind, TableName, TableSchema, view_id
from owner.decision.recording import with_ended_views
from schema_store.versions import SchemaVersions

A = TableId("a" * 32)
AT = Position(ClusterTime(100, 9), "00000000")
_OPEN = Document.of({"viewOn": "a", "pipeline": []})


def name(coll: str) -> TableName:
    return TableName("shop", coll)


def schema(coll: str, kind: TableKind = TableKind.VIEW, db: str = "shop") -> TableSchema:
    id = view_id(TableName(db, coll)) if kind is TableKind.VIEW else TableId(coll * 32)
    options = _OPEN if kind is TableKind.VIEW else EMPTY
    since = Position(ClusterTime(100, 1))
    return TableSchema(id=id, name=TableName(db, coll), kind=kind, options=options, valid_from=since)


KNOWN = SchemaVersions.of(
    [
        schema("w"),
        schema("v"),
        schema("a", TableKind.COLLECTION),
        schema("x", db="crm"),
        schema("t", TableKind.TIMESERIES),
    ]
)


def event(type: DdlType, coll: str, id: TableId | None = None, **more: Any) -> DdlEvent:
    return DdlEvent(position=AT, type=type, db="shop", table=name(coll), id=id, wall_ms=7, **more)


def told(events: list[DdlEvent]) -> list[tuple[DdlType, str, str]]:
    return [(each.type, str(each.renamed_to or each.table), each.position.token) for each in events]


ALL = event(DdlType.DROP, "system.views", TableId("5" * 32))


def test_all_views_of_the_database_end_one_after_the_other() -> None:
    found = with_ended_views(ALL, KNOWN)
    assert told(found) == [(DdlType.DROP, "shop.v", "00000000"), (DdlType.DROP, "shop.w", "00000000.0001")]
    assert {each.wall_ms for each in found} == {7}
    after = KNOWN.apply_all(found)
    assert {each.name.coll for each in after.in_database("shop", Position(AT.ts.next()))} == {"a", "t"}


def test_the_places_are_the_same_when_some_drops_are_known_already() -> None:
    found = with_ended_views(ALL, KNOWN)
    assert with_ended_views(ALL, KNOWN.apply_all(found[:1])) == found


def test_the_places_come_before_that_of_the_next_operation() -> None:
    positions = [each.position for each in with_ended_views(ALL, KNOWN)]
    assert AT == positions[0] < positions[1] < Position(AT.ts, "00000001")


@pytest.mark.parametrize(
    "taking",
    [
        event(DdlType.CREATE, "v", TableId("b" * 32)),
        event(DdlType.CREATE, "v", view_id(name("v")), description=Document.of({"viewOn": "b", "pipeline": []})),
        event(DdlType.RENAME, "a", A, renamed_to=name("v")),
    ],
)
def test_a_view_ends_when_its_name_is_taken(taking: DdlEvent) -> None:
    found = with_ended_views(taking, KNOWN)
    assert told(found) == [(DdlType.DROP, "shop.v", "00000000"), (taking.type, "shop.v", "00000000.0001")]
    assert with_ended_views(taking, KNOWN.apply_all(found[:1])) == found
    KNOWN.apply_all(found)


@pytest.mark.parametrize(
    "other",
    [
        event(DdlType.CREATE, "v", view_id(name("v")), description=_OPEN),
        event(DdlType.CREATE, "new", TableId("b" * 32)),
        event(DdlType.RENAME, "a", A, renamed_to=name("new")),
        event(DdlType.MODIFY, "v", view_id(name("v")), description=_OPEN),
        event(DdlType.DROP, "a", A),
        DdlEvent(position=AT, type=DdlType.DROP_DATABASE, db="shop"),
    ],
)
def test_any_other_event_stays_as_it_is(other: DdlEvent) -> None:
    assert with_ended_views(other, KNOWN) == [other]
