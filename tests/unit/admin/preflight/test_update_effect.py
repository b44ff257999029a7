"""What an update would do is told before it is done."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from admin.preflight.update_effect import TableEffect, UpdateEffect, effect
from admin.stubs.sluice.admin.v1 import admin_pb2 as pb
from changefeed.capture import Capture
from changefeed.cluster_time import ClusterTime
from changefeed.config.configuration import Configuration
from changefeed.documents.document import Document
from changefeed.position import Position
from changefeed.records.requests import ChangefeedInfo, Reroute
from changefeed.table import TableId, TableKind, TableName, TableSchema
from owner.tables.route_change import places

BEFORE: dict[str, Any] = {
    "id": "f",
    "source": "mongodb://me:secret@a",
    "sink": "mongodb://b",
    "filter": {"tables": ["shop.*"]},
}
INFO = ChangefeedInfo(configuration=Configuration.parse(BEFORE), created_at=datetime(2026, 11, 21, tzinfo=UTC))


def table(name: str, kind: TableKind = TableKind.COLLECTION) -> TableSchema:
    return TableSchema(
        id=TableId(name), name=TableName.parse(name), kind=kind, valid_from=Position(ClusterTime(100, 1))
    )


KNOWN = [table("shop.a"), table("shop.b"), table("shop.v", TableKind.VIEW)]
_TTL_INDEX = Document.of({"key": {"at": 1}, "name": "at_1", "expireAfterSeconds": 60})


def told(
    reroute: Reroute | None = None,
    *,
    found: list[TableSchema] = KNOWN,
    known: list[TableSchema] = KNOWN,
    begun: bool = True,
    info: ChangefeedInfo = INFO,
    **now: Any,
) -> UpdateEffect:
    wanted = Configuration.parse({**BEFORE, **now})
    stays = [each for each in known if wanted.filter.wants_table(each.name)]
    moved = places(stays, info.configuration.routes, wanted.routes, {})
    capture = Capture.CHANGE_STREAM
    return effect(info, wanted, capture, reroute, moved, found, known=known, without_name=[], begun=begun)


def changed(name: str, what: TableEffect, before: str = "", now: str = "") -> pb.PlannedTable:
    return pb.PlannedTable(name=name, effect=what, target_before=before, target=now)


def test_nothing_changed_does_nothing() -> None:
    assert told() == UpdateEffect()


def test_tables_come_and_go() -> None:
    found = told(filter={"tables": ["shop.*", "!shop.b", "x.*"]}, found=[*KNOWN[:1], KNOWN[2], table("x.c")])
    assert found.tables == (changed("x.c", TableEffect.ADDED, now="x.c"), changed("shop.b", TableEffect.REMOVED))
    assert found.options == (pb.ChangedOption(path="filter.tables", before="shop.*", now="shop.*, !shop.b, x.*"),)


def test_tables_change_their_names() -> None:
    routes = [{"from": "shop.*", "to": "dr.*"}]
    renamed = told(Reroute.RENAME, routes=routes)
    assert {each.effect for each in renamed.tables} == {TableEffect.RENAMED}
    copied = told(Reroute.COPY, routes=routes)
    assert copied.tables == (
        changed("shop.a", TableEffect.COPIED, "shop.a", "dr.a"),
        changed("shop.b", TableEffect.COPIED, "shop.b", "dr.b"),
        changed("shop.v", TableEffect.COPIED, "shop.v", "dr.v"),
    )
    assert copied.options == (pb.ChangedOption(path="routes", before="-", now="from shop.* to dr.*"),)


def test_credentials_are_not_told() -> None:
    found = told(source="mongodb://me:other@a")
    assert found.notes == ("the source is reached by another connection string; it is the same deployment",)
    assert found.options == ()


def test_a_start_without_effect_is_told_as_such() -> None:
    assert "the new start has no effect" in told(start="now").notes[0]
    assert told(start="now", begun=False).notes == ()


def test_a_changed_ttl_is_told_as_one_that_leaves_expiries_as_they_are() -> None:
    expiring = [replace(KNOWN[0], indexes=(_TTL_INDEX,)), KNOWN[1]]
    [note] = told(known=expiring, found=expiring, ddl={"ttl": "copied"}).notes
    assert "the expiries of shop.a stay at the target as they are" in note
    assert "do not expire at the target until the cut-over" in note
    copied = replace(INFO, configuration=Configuration.parse({**BEFORE, "ddl": {"ttl": "copied"}}))
    [note] = told(known=expiring, found=expiring, info=copied, ddl={"ttl": "deferred"}).notes
    assert "go on expiring at the target" in note
    assert told(ddl={"ttl": "copied"}).notes == ()
    assert told(known=expiring, found=expiring, begun=False, ddl={"ttl": "copied"}).notes == ()
