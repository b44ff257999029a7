"""The DDLs of Sluice's own by which a table is copied anew: when they are recorded, and where."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from changefeed.cluster_time import ClusterTime
from changefeed.config.configuration import Configuration
from changefeed.config.tables.filter import Disposition
from changefeed.documents.document import Document
from changefeed.errors import HistoryLost, SluiceError, SourceUnsupported
from changefeed.event import DdlType
from changefeed.lifecycle import ErrorReport
from changefeed.position import Position
from changefeed.records.ddl import Barrier, DdlRecord, DdlState, Scope
from changefeed.records.requests import TableVerb
from changefeed.records.status import Straggler
from changefeed.sharded_history import ShardedHistory, ShardHistory
from changefeed.table import Beside, TableId, TableKind, TableName, definition_of
from owner.ddl.stragglers import NOTHING, StoredStraggler
from owner.decision import recopy
from owner.decision.decide import Decision, LookUp, RecordDdls
from owner.tables.wishes import Forget, TableWishes, after_release
from sink.ddl import BeginAgain, DropTables, ReplaceView, Routing, downstream
from tests.unit.owner.decision.test_decide import NOW, A, B, Feed, at, barrier_of, ddl, status_of, table

C = TableId("c" * 32)
ASKED = TableWishes(requests={A: TableVerb.RECOPY}, replicated={A})
COPY = TableName("shop", f"sluice.recopy.{A}")


def recorded(decision: Decision) -> list[DdlRecord]:
    return [record for action in decision.actions if isinstance(action, RecordDdls) for record in action.records]


def types(records: Iterable[DdlRecord]) -> list[tuple[DdlType, Position]]:
    return [(record.event.type, record.position) for record in records]


def answered(decision: Decision) -> frozenset[TableId]:
    return frozenset(table for action in decision.actions if isinstance(action, RecordDdls) for table in action.answers)


def forgotten(decision: Decision) -> frozenset[TableId]:
    return frozenset(table for action in decision.actions if isinstance(action, Forget) for table in action.requests)


def test_a_table_leaves_and_enters_at_places_of_no_event_before_all_that_has_arrived() -> None:
    drop = ddl(11, DdlType.DROP, "a", A)
    decision = Feed(table(A, "a"), table(B, "b")).decide([drop], places={A: at(5), B: at(5)}, wishes=ASKED)
    assert types(recorded(decision)) == [
        (DdlType.LEAVE, at(6)),
        (DdlType.ENTER, at(7)),
        (DdlType.DROP, at(11)),
    ]
    assert answered(decision) == {A}
    assert barrier_of(decision).held == {A: at(6)}
    last = recorded(decision)[-1]
    assert last.scope.names == {TableName("shop", "a"), COPY}


def test_the_new_life_is_copied_beside_and_the_target_stands_where_the_old_one_ended() -> None:
    feed = Feed(table(A, "a"))
    leave, enter = recorded(feed.decide(places={A: at(5)}, wishes=ASKED))
    tip = feed.tip.apply(leave.event).apply(enter.event)
    life = tip.life(A)
    assert life is not None
    assert life[0] == at(7)
    assert life[1].beside == Beside(name=COPY, stands_at=at(6))
    assert tip.at(A, at(6)) is None


def test_no_table_stands_at_such_a_place_before_it_knows_of_it() -> None:
    """A table in copy that follows the barrier stands there while its chunks are being read: it would seem to be ready to end."""
    barrier = Barrier(epoch=1, position=at(9))
    decision = Feed(table(A, "a")).decide(places={A: at(9)}, barrier=barrier, wishes=ASKED)
    assert types(recorded(decision)) == [(DdlType.LEAVE, at(10)), (DdlType.ENTER, at(11))]


def test_a_stopped_table_stands_where_it_was_stopped() -> None:
    stopped = StoredStraggler(Straggler(at=at(2), stopped=True, since=NOW), 7)
    wishes = replace(ASKED, stragglers={A: stopped})
    _, enter = recorded(Feed(table(A, "a")).decide(places={A: at(3)}, wishes=wishes))
    assert enter.event.description.decode()["beside"]["standsAt"] == str(at(3))


def test_no_table_begins_before_the_removal_of_a_shard() -> None:
    """Its changes from there on would lack those of the shard, if that is gone (seed 71058 into files)."""
    removed = ShardHistory(host="sc:27018", until_ts=at(8).ts)

    def begun(resolved: int, *, holding: bool = False) -> list[tuple[DdlType, Position]]:
        cluster = ShardedHistory(resolved_ts=at(resolved).ts, seconds=0, shards={"sc": removed})
        feed = Feed(table(A, "a"))
        return types(recorded(feed.decide([], resolved, {A: at(5)}, wishes=ASKED, history=cluster, holding=holding)))

    assert begun(8) == []
    assert begun(12) == [(DdlType.LEAVE, at(9)), (DdlType.ENTER, at(10))]
    assert begun(12, holding=True) == []


def test_a_table_that_is_lost_with_a_shard_is_looked_up_before_and_nothing_passes_the_barrier() -> None:
    """The shard alone may have logged a change of its options, which nobody has read (seed 7709489)."""
    feed, cluster = Feed(table(A, "a")), ShardedHistory(resolved_ts=at(20).ts, seconds=0, shards={})
    lost = ErrorReport.of(HistoryLost("sc is gone"), NOW)
    wishes = replace(
        ASKED, stragglers={A: StoredStraggler(Straggler(at=at(2), stopped=True, since=NOW, error=lost), 7)}
    )
    later = ddl(8, DdlType.CREATE, "b", B)

    def decided(entered: Mapping[tuple[Position, TableId | None], Document | SluiceError]) -> Decision:
        return feed.decide([later], places={A: at(3)}, wishes=wishes, history=cluster, entered=entered)

    asked = decided({})
    [question] = [action.event for action in asked.actions if isinstance(action, LookUp)]
    assert (recorded(asked), asked.waiting, question.renamed_to) == ([], (later,), TableName("shop", "a"))
    assert barrier_of(asked).position == feed.status.resolved

    found = Document.of({"options": {"validationLevel": "moderate"}, "indexes": []})
    leave, enter, create = recorded(decided({(question.position, A): found}))
    assert (leave.event.type, create.event.type) == (DdlType.LEAVE, DdlType.CREATE)
    assert (enter.position, enter.event.description.decode()["options"]) == (
        question.position,
        {"validationLevel": "moderate"},
    )
    assert not [action for action in decided({(question.position, B): found}).actions if isinstance(action, RecordDdls)]
    [others_alone] = recorded(decided({(question.position, A): SourceUnsupported("no UTF-8")}))
    assert others_alone.event.type is DdlType.CREATE


def test_a_table_that_was_a_straggler_enters_as_one_that_goes_on() -> None:
    """Its old record, which says stopped, must not be that of the new life, whatever is deleted when."""
    _, enter = recorded(Feed(table(A, "a")).decide(places={A: at(5)}, wishes=ASKED))
    stopped = StoredStraggler(Straggler(at=at(2), stopped=True, since=NOW), 7)
    found = after_release([enter], {A: stopped}, waiting=NOTHING, passed=at(4), now=NOW)
    assert found == {A: Straggler(at=enter.position, since=NOW)}


@pytest.mark.parametrize("resolved", [5, 6])
def test_a_quiet_source_has_no_place_yet_and_is_to_move_on(resolved: int) -> None:
    """One place is too few for two DDLs."""
    feed = Feed(table(A, "a"))
    decision = feed.decide(resolved=resolved, places={A: at(5)}, wishes=ASKED)
    assert recorded(decision) == []
    assert forgotten(decision) == frozenset()
    assert decision.lacks_place
    assert not feed.decide(resolved=7, places={A: at(5)}, wishes=ASKED).lacks_place
    assert not feed.decide(resolved=resolved, places={A: at(5)}).lacks_place


def test_a_copy_that_is_up_to_date_at_a_quiet_source_lacks_a_place_too() -> None:
    begun = replace(table(A, "a"), beside=Beside(name=COPY, stands_at=at(1)))
    decision = Feed(begun).decide(resolved=5, places={A: at(5)}, beside={A})
    assert (recorded(decision), decision.lacks_place) == ([], True)


def test_a_source_is_not_asked_to_move_on_where_that_would_give_no_place() -> None:
    feed = Feed(table(A, "a"))
    assert not feed.decide(resolved=5, places={A: at(5)}, wishes=ASKED, watching=False).lacks_place
    assert not feed.decide(resolved=9, horizon=5, places={A: at(5)}, wishes=ASKED).lacks_place
    event = ddl(6, DdlType.CREATE, "b", B)
    assert not feed.decide([event], places={A: at(5)}, wishes=ASKED).lacks_place


def test_an_event_that_is_not_recorded_yet_is_not_overtaken() -> None:
    """An event at the second place would come between the two, and would find no table."""
    between = replace(ddl(6, DdlType.DROP, "a", A), position=Position(ClusterTime(100, 6), "0001"))
    decision = Feed(table(A, "a")).decide([between], places={A: at(5)}, wishes=ASKED)
    assert DdlType.LEAVE not in [type for type, _ in types(recorded(decision))]


def test_what_is_recorded_is_not_overtaken() -> None:
    """The barrier may not have been published since."""
    feed = Feed(table(A, "a"))
    feed.knows(ddl(9, DdlType.RENAME, "a", A, renamed_to=TableName("shop", "z")))
    records = recorded(feed.decide(places={A: at(5)}, wishes=ASKED))
    assert types(records) == [(DdlType.LEAVE, at(10)), (DdlType.ENTER, at(11))]
    assert records[0].event.table == TableName("shop", "z")


def test_a_table_whose_create_waits_for_a_user_leaves_after_it_and_nobody_waits_for_that() -> None:
    """No node has the table, so its leave would never be done, and the checkpoint of all tables would stand there."""
    feed = Feed(table(A, "a"), table(B, "b"))
    drop = feed.knows(ddl(6, DdlType.DROP, "b", B))
    refused = ErrorReport(code="ddl_refused", message="no", retryable=False, at=NOW)
    feed.records[drop.position] = replace(drop, refused=refused)
    feed.knows(ddl(7, DdlType.CREATE, "b", C))
    begun = recopy.begun(table(C, "b"), TableName("shop", "b"), (at(8), at(9)), at(8), NOW)
    feed.records |= {record.position: record for record in begun}
    stands = StoredStraggler(Straggler(at=at(6), since=NOW), 7)
    wishes = TableWishes(stragglers={B: stands}, replicated={A, B})
    decision = feed.decide(places={A: at(10), B: at(6)}, resolved=10, wishes=wishes)
    assert status_of(decision).checkpoint == at(10)


def test_two_tables_have_places_of_their_own() -> None:
    wishes = TableWishes(requests={A: TableVerb.RECOPY, B: TableVerb.RECOPY}, replicated={A, B})
    feed = Feed(table(A, "a"), table(B, "b"))
    positions = [record.position for record in recorded(feed.decide(places={A: at(5), B: at(5)}, wishes=wishes))]
    assert positions == [at(6), at(7), at(8), at(9)]


def test_a_table_does_not_end_where_it_began() -> None:
    """There its own beginning would count as that DDL."""
    begun = replace(table(A, "a"), valid_from=at(6))
    assert recorded(Feed(begun).decide(places={A: at(5)}, wishes=ASKED)) == []


@pytest.mark.parametrize("stopped_at", [None, 2])
def test_among_messages_a_table_begins_again_by_a_message_and_nothing_is_beside(stopped_at: int | None) -> None:
    stragglers = {A: StoredStraggler(Straggler(at=at(2), stopped=True, since=NOW), 7)} if stopped_at else {}
    feed = Feed(table(A, "a"), sink="file:///srv/f")
    wishes = replace(ASKED, stragglers=stragglers)
    leave, enter = recorded(feed.decide(places={A: at(stopped_at or 5)}, wishes=wishes))
    assert (leave.disposition, enter.disposition) == (Disposition.SCHEMA_ONLY, Disposition.APPLY)
    again = feed.tip.apply(leave.event).apply(enter.event).latest(A)
    assert again is not None
    assert (again.beside, again.valid_from) == (None, at(7))
    message = downstream(enter.event, Routing(route=lambda name: name, tables={A: TableName("shop", "a")}))
    skipped = at(stopped_at) if stopped_at else None
    assert message == BeginAgain(name=TableName("shop", "a"), schema=again, skipped_from=skipped)


@pytest.mark.parametrize(
    ("configuration", "kind", "why"),
    [
        ({"sink": "file:///tmp/messages"}, TableKind.VIEW, "is a view"),
        ({"on_occupied": "keep"}, TableKind.TIMESERIES, "may have rows at the target from before the changefeed"),
        ({"routes": [{"from": "shop.*", "to": "all.rows"}]}, TableKind.COLLECTION, "shares all.rows with other tables"),
        ({"on_occupied": "keep"}, TableKind.COLLECTION, "may have rows at the target from before the changefeed"),
    ],
)
def test_what_cannot_be_copied_beside_is_refused_with_the_reason(
    configuration: dict[str, Any], kind: TableKind, why: str
) -> None:
    feed = Feed(table(A, "a", kind), **configuration)
    assert why in recopy.obstacle(table(A, "a", kind), feed.configuration)
    decision = feed.decide(places={A: at(5)}, wishes=ASKED)
    assert recorded(decision) == []
    assert forgotten(decision) == {A}


@pytest.mark.parametrize(
    "routes", [[], [{"from": "shop.*", "to": "dr.*"}], [{"from": "shop.a", "to": "all.rows"}]], ids=str
)
def test_a_table_with_a_name_of_its_own_is_copied(routes: list[dict[str, str]]) -> None:
    fields = {"id": "f", "source": "mongodb://s", "sink": "mongodb://t", "routes": routes}
    assert recopy.obstacle(table(A, "a"), Configuration.parse(fields)) == ""


def test_a_view_is_replaced_by_its_present_definition() -> None:
    view = replace(table(A, "a", TableKind.VIEW), options=Document.of({"viewOn": "b", "pipeline": []}))
    feed = Feed(view, table(B, "b"))
    leave, enter = recorded(feed.decide(places={B: at(5)}, wishes=ASKED))
    assert leave.scope == enter.scope == Scope(apart=frozenset({A}), names=frozenset({TableName("shop", "a")}))
    assert (leave.disposition, enter.disposition) == (Disposition.SCHEMA_ONLY, Disposition.APPLY)
    again = feed.tip.apply(leave.event).apply(enter.event).latest(A)
    assert again == replace(view, valid_from=enter.position)
    done = downstream(enter.event, Routing(route=lambda name: replace(name, db="dr"), tables={}))
    assert done == ReplaceView(name=TableName("dr", "a"), options=view.options)


def test_a_time_series_is_dropped_and_copied_in_its_place() -> None:
    series = replace(table(A, "a", TableKind.TIMESERIES), options=Document.of({"timeseries": {"timeField": "at"}}))
    feed = Feed(series)
    leave, enter = recorded(feed.decide(places={A: at(5)}, wishes=ASKED))
    assert leave.scope.ended == {A}
    assert enter.disposition is Disposition.APPLY
    again = feed.tip.apply(leave.event).apply(enter.event).latest(A)
    assert again == replace(series, valid_from=enter.position)
    done = downstream(enter.event, Routing(route=lambda name: name, tables={}))
    assert done == DropTables(names=(TableName("shop", "a"),))


def test_a_request_of_an_unknown_table_is_forgotten() -> None:
    assert forgotten(Feed().decide(wishes=ASKED)) == {A}


def beside(*, valid_from: int = 1) -> Feed:
    copied = replace(table(A, "a"), valid_from=at(valid_from), beside=Beside(name=COPY, stands_at=at(1)))
    return Feed(copied, table(B, "b"))


def test_a_copy_that_has_ended_takes_the_tables_place() -> None:
    decision = beside().decide(places={A: at(5), B: at(5)}, beside={A})
    [exchange] = recorded(decision)
    assert types([exchange]) == [(DdlType.EXCHANGE, at(6))]
    assert exchange.scope.tables == {A}
    assert exchange.scope.names == {COPY, TableName("shop", "a")}
    assert barrier_of(decision).held == {A: at(6)}


def test_a_copy_takes_no_place_before_it_has_caught_up_nor_beside_a_ddl() -> None:
    behind = StoredStraggler(Straggler(at=at(2), since=NOW), 7)
    assert recorded(beside().decide(places={A: at(4), B: at(5)}, beside={A})) == []
    assert recorded(beside().decide(places={A: at(5)}, beside={A}, wishes=TableWishes(stragglers={A: behind}))) == []
    feed = beside()
    feed.knows(ddl(9, DdlType.CREATE_INDEXES, "a", A, description=definition_of(table(A, "a"))))
    assert recorded(feed.decide(places={A: at(5)}, beside={A})) == []


def test_a_table_that_is_copied_anew_once_more_still_stands_where_it_stood() -> None:
    _, enter = recorded(beside().decide(places={A: at(5)}, wishes=ASKED))
    assert enter.event.description.decode()["beside"] == {"name": str(COPY), "standsAt": str(at(1))}


def test_a_request_that_is_found_after_a_crash_is_answered_already() -> None:
    feed = Feed(table(A, "a"))
    for record in recorded(feed.decide(places={A: at(5)}, wishes=ASKED)):
        feed.records[record.position] = record
        feed.tip = feed.tip.apply(record.event)
    again = feed.decide(places={A: at(5)}, wishes=ASKED)
    assert recorded(again) == []
    assert forgotten(again) == {A}
    assert all(record.state is DdlState.PENDING for record in feed.records.values())
