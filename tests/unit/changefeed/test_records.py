"""The records by which owner and processors communicate mean the same to both."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from changefeed.config.configuration import Configuration
from changefeed.event import DdlEvent, DdlType
from changefeed.lifecycle import ErrorReport, Lifecycle, State
from changefeed.position import Position
from changefeed.records.ddl import Barrier, DdlRecord, DdlState, Scope
from changefeed.records.node import PositionReport
from changefeed.records.requests import ChangefeedInfo
from changefeed.records.status import ChangefeedStatus
from changefeed.table import TableId, TableName

NOW = datetime(2026, 11, 21, tzinfo=UTC)
ORDERS, ITEMS = TableId("0a" * 16), TableId("0b" * 16)


def at(text: str) -> Position:
    return Position.parse(text)


_NAMES = st.builds(TableName, st.sampled_from(["shop", "crm"]), st.sampled_from(["a", "b"]))
SCOPES = st.builds(
    Scope,
    tables=st.frozensets(st.sampled_from([ORDERS, ITEMS]), max_size=2),
    names=st.frozensets(_NAMES, max_size=2),
    databases=st.frozensets(st.sampled_from(["shop", "crm"]), max_size=1),
)


@given(SCOPES, SCOPES)
def test_meeting_of_scopes_is_symmetric(left: Scope, right: Scope) -> None:
    assert left.meets(right) == right.meets(left)


@given(SCOPES.filter(lambda scope: scope != Scope()))
def test_a_scope_that_touches_anything_meets_itself(scope: Scope) -> None:
    assert scope.meets(scope)


@pytest.mark.parametrize(
    ("left", "right", "meet"),
    [
        (Scope(tables=frozenset({ORDERS})), Scope(tables=frozenset({ITEMS})), False),
        (Scope(tables=frozenset({ORDERS})), Scope(tables=frozenset({ORDERS, ITEMS})), True),
        (Scope(names=frozenset({TableName("dr", "a")})), Scope(names=frozenset({TableName("dr", "a")})), True),
        (Scope(names=frozenset({TableName("dr", "a")})), Scope(databases=frozenset({"dr"})), True),
        (Scope(names=frozenset({TableName("dr", "a")})), Scope(databases=frozenset({"shop"})), False),
    ],
    ids=["other tables", "one table", "one name downstream", "a name in a dropped database", "another database"],
)
def test_scopes_meet_where_they_touch_the_same(left: Scope, right: Scope, meet: bool) -> None:
    assert left.meets(right) is meet


def test_the_barrier_is_lower_for_held_tables_only() -> None:
    barrier = Barrier(epoch=1, position=at("200.1"), held={ORDERS: at("100.1/82")})

    assert barrier.of(ORDERS) == at("100.1/82")
    assert barrier.of(ITEMS) == at("200.1")


def test_a_report_holds_for_all_tables_but_its_exceptions() -> None:
    report = PositionReport(
        run=1, barrier_rev=7, assignment_rev=6, checkpoint=at("150.1"), exceptions={ORDERS: at("100.1")}
    )

    assert report.of(ORDERS) == at("100.1")
    assert report.of(ITEMS) == at("150.1")


@pytest.mark.parametrize(
    ("state", "is_open"),
    [(DdlState.PENDING, True), (DdlState.EXECUTING, True), (DdlState.DONE, False), (DdlState.SKIPPED, False)],
)
def test_a_ddl_is_open_until_it_is_done_or_skipped(state: DdlState, is_open: bool) -> None:
    event = DdlEvent(position=at("100.1/82"), type=DdlType.DROP, db="shop", table=TableName("shop", "a"))
    record = DdlRecord(event=event, scope=Scope(), state=state, seen_at=NOW)

    assert record.open is is_open
    assert record.position == event.position


def test_a_changefeed_is_stored_with_its_credentials_as_the_user_wrote_them() -> None:
    adapter = TypeAdapter(ChangefeedInfo)
    uri = "mongodb://reader:${env:SOURCE_PASSWORD}@db1.example/"
    configuration = Configuration.parse(
        {"id": "orders", "source": uri, "sink": "blackhole://", "routes": [{"from": "shop.*", "to": "dr.*"}]}
    )
    info = ChangefeedInfo(configuration=configuration, created_at=NOW)
    stored = adapter.dump_json(info)

    assert uri.encode() in stored
    assert adapter.validate_json(stored) == info


def test_a_status_round_trips_with_its_error() -> None:
    adapter = TypeAdapter(ChangefeedStatus)
    error = ErrorReport(code="history_lost", message="gone", retryable=False, at=NOW)
    status = ChangefeedStatus(
        lifecycle=Lifecycle(state=State.FAILED, error=error, since_at=NOW),
        checkpoint=at("100.1"),
        info_version=3,
        epoch=9,
    )

    assert adapter.validate_json(adapter.dump_json(status)) == status


def test_a_changefeed_that_has_not_started_has_no_lag() -> None:
    assert ChangefeedStatus(info_version=1, epoch=1).lag(NOW) is None


def test_a_status_without_current_at_lags_by_its_checkpoint() -> None:
    checkpoint = at("1795176000.1")
    status, moment = ChangefeedStatus(checkpoint=checkpoint, info_version=1, epoch=1), checkpoint.ts.to_datetime()
    assert status.lag(moment + timedelta(seconds=7)) == timedelta(seconds=7)
    assert status.lag(moment - timedelta(seconds=7)) == timedelta(0)
