"""What becomes of a table that stands still while its DDLs go on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from changefeed.config.tables.filter import Disposition
from changefeed.documents.document import Document
from changefeed.errors import DdlRefused, HistoryLost, RowRejected, SluiceError
from changefeed.event import DdlEvent, DdlType
from changefeed.lifecycle import ErrorReport
from changefeed.position import Position
from changefeed.records.ddl import DdlRecord, DdlState, Scope
from changefeed.records.requests import TableVerb
from changefeed.records.status import Straggler
from changefeed.table import TableId, TableName
from owner.ddl.execution import Observe
from owner.ddl.stragglers import StoredStraggler
from owner.decision.decide import Decision, LookUp, RecordDdls, ReleaseDdls
from owner.tables.wishes import Mark, TableWishes
from tests.unit.owner.decision.test_decide import NOW, A, B, Feed, at, ddl, table

C = TableId("c" * 32)


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("owner.tables.wishes._MOST_WAITING", 3)
    monkeypatch.setattr("owner.tables.wishes._MOST_IN_ALL", 5)
    monkeypatch.setattr("owner.tables.wishes._MOST_WAITING_BYTES", 1000)


def change(increment: int, coll: str = "a", id: TableId = A, comment: str = "") -> DdlEvent:
    validator = {"$comment": comment or str(increment)}
    return ddl(increment, DdlType.MODIFY, coll, id, description=Document.of({"validator": validator}))


def stopped(error: type[RowRejected | HistoryLost] = RowRejected) -> StoredStraggler:
    return StoredStraggler(Straggler(at=at(6), stopped=True, error=ErrorReport.of(error("no"), NOW), since=NOW), 7)


def wishes(*tables: TableId) -> TableWishes:
    return TableWishes(stragglers=dict.fromkeys(tables, stopped()), replicated={A, B, C})


PLACES = {A: at(6), B: at(6), C: at(6)}


def lost(decision: Decision) -> dict[TableId, str]:
    marks = [action for action in decision.actions if isinstance(action, Mark)]
    told = {mark.table: mark.straggler for mark in marks if mark.straggler.stopped}
    return {
        table: it.error.message
        for table, it in told.items()
        if it.error is not None and it.error.code == "history_lost"
    }


def recorded(decision: Decision) -> list[tuple[DdlType, Position]]:
    found = [record for action in decision.actions if isinstance(action, RecordDdls) for record in action.records]
    return [(record.event.type, record.position) for record in found]


def test_a_stopped_table_of_which_too_many_ddls_wait_is_lost() -> None:
    feed = Feed(table(A, "a"), table(B, "b"))
    for increment in (11, 12, 13):
        feed.knows(change(increment))
    assert lost(feed.decide(places=PLACES, wishes=wishes(A))) == {}
    decision = feed.decide([change(14)], places=PLACES, wishes=wishes(A))
    assert lost(decision) == {
        A: "it stands still, and 4 DDLs of it wait, more than are kept; have the table copied anew (`sluice table recopy`)"
    }
    assert recorded(decision) == [(DdlType.MODIFY, at(14))], "the mark is not in etcd yet"


def test_so_is_one_that_stands_at_a_refused_ddl_and_one_whose_ddls_are_large() -> None:
    feed = Feed(table(A, "a"), table(B, "b"))
    first = feed.knows(change(11))
    feed.records[at(11)] = replace(first, refused=ErrorReport.of(DdlRefused("no"), NOW))
    for increment in (12, 13, 14):
        feed.knows(change(increment))
    feed.knows(change(15, "b", B, comment="x" * 1000))
    decision = feed.decide(places=PLACES | {A: at(11)}, wishes=wishes(B))
    assert lost(decision).keys() == {A, B}


def test_a_table_that_goes_on_keeps_its_ddls_however_many_there_are() -> None:
    feed = Feed(table(A, "a"))
    for increment in range(11, 19):
        feed.knows(change(increment))
    going = StoredStraggler(Straggler(at=at(6), since=NOW), 7)
    assert lost(feed.decide(places=PLACES, wishes=replace(wishes(), stragglers={A: going}))) == {}
    assert lost(feed.decide(places=PLACES, wishes=wishes())) == {}


def test_of_many_standing_tables_the_one_with_the_most_ddls_is_lost() -> None:
    feed = Feed(table(A, "a"), table(B, "b"), table(C, "c"))
    for increment, (coll, id) in enumerate([("a", A)] * 2 + [("b", B)] * 3 + [("c", C)], start=11):
        feed.knows(change(increment, coll, id))
    assert lost(feed.decide(places=PLACES, wishes=wishes(A, B, C))).keys() == {B}
    known = replace(wishes(A, C), stragglers={A: stopped(), B: stopped(HistoryLost), C: stopped()})
    assert lost(feed.decide(places=PLACES, wishes=known)) == {}


@pytest.mark.parametrize("why", ["it ends", "its rows at the target may be older than the changefeed"])
def test_a_table_that_cannot_or_need_not_be_copied_anew_is_not_given_up(why: str) -> None:
    feed = Feed(table(A, "a"), **({} if why == "it ends" else {"on_occupied": "keep"}))
    for increment in range(11, 16):
        feed.knows(change(increment))
    if why == "it ends":
        feed.knows(ddl(17, DdlType.DROP, "a", A))
    assert lost(feed.decide(places=PLACES, wishes=wishes(A))) == {}


def test_of_a_lost_table_only_what_ends_or_renames_it_is_recorded() -> None:
    feed = Feed(table(A, "a"), table(B, "b"))
    known = replace(wishes(), stragglers={A: stopped(HistoryLost)})
    named = ddl(13, DdlType.RENAME, "a", A, renamed_to=TableName("shop", "z"))
    seen = [change(11), change(12, "b", B), named, change(14, "z"), ddl(15, DdlType.DROP, "z", A)]
    assert recorded(feed.decide(seen, places=PLACES, wishes=known)) == [
        (DdlType.MODIFY, at(12)),
        (DdlType.RENAME, at(13)),
        (DdlType.DROP, at(15)),
    ]


def test_its_copy_begins_as_the_source_has_it_and_its_later_ddls_are_recorded() -> None:
    feed = Feed(table(A, "a"))
    known = TableWishes(stragglers={A: stopped(HistoryLost)}, requests={A: TableVerb.RECOPY}, replicated={A})
    later = change(9)
    asked = feed.decide([later], places={A: at(6)}, wishes=known)
    [question] = [action.event for action in asked.actions if isinstance(action, LookUp)]
    assert recorded(asked) == []
    found = Document.of({"options": {"validationLevel": "moderate"}, "indexes": []})
    entered: dict[tuple[Position, TableId | None], Document | SluiceError] = {(question.position, A): found}
    assert recorded(feed.decide([later], places={A: at(6)}, wishes=known, entered=entered)) == [
        (DdlType.LEAVE, at(6)),
        (DdlType.ENTER, question.position),
        (DdlType.MODIFY, at(9)),
    ]


def test_the_ddls_that_waited_are_skipped_when_its_copy_begins() -> None:
    feed = Feed(table(A, "a"))
    for increment in (7, 8):
        feed.knows(change(increment))
    known = TableWishes(stragglers={A: stopped(HistoryLost)}, replicated={A})
    leave = ddl(9, DdlType.LEAVE, "a", A)
    ended = Scope(tables=frozenset({A}), ended=frozenset({A}))
    feed.records[at(9)] = DdlRecord(event=leave, scope=ended, disposition=Disposition.SCHEMA_ONLY, seen_at=NOW)
    decision = feed.decide(places={A: at(6)}, wishes=known)
    [released] = [action for action in decision.actions if isinstance(action, ReleaseDdls)]
    assert [(record.position, record.state, record.note) for record in released.records] == [
        (at(7), DdlState.SKIPPED, "its table ends later"),
        (at(8), DdlState.SKIPPED, "its table ends later"),
    ]
    assert not [action for action in decision.actions if isinstance(action, Observe)]


def test_the_ddls_of_a_table_whose_name_is_taken_are_not_recorded_since_it_is_copied_when_the_name_is_free() -> None:
    feed = Feed(table(A, "a"), table(B, "b"), routes=[{"from": "shop.x", "to": "shop.b"}])
    taken = ddl(11, DdlType.RENAME, "a", A, renamed_to=TableName("shop", "x"))
    decision = feed.decide([taken, change(12, "x"), ddl(13, DdlType.DROP, "x", A)], places=PLACES)
    assert recorded(decision) == [(DdlType.RENAME, at(11)), (DdlType.DROP, at(13))]
