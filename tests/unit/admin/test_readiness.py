from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from admin.readiness import CutOverFacts, readiness_of
from admin.stubs.sluice.admin.v1 import admin_pb2 as pb
from changefeed.cluster_time import ClusterTime
from changefeed.errors import DdlRefused
from changefeed.event import DdlEvent, DdlType
from changefeed.lifecycle import ErrorReport, State
from changefeed.position import Position
from changefeed.records.ddl import DdlRecord, DdlState, Scope
from changefeed.records.requests import ChangefeedId
from changefeed.records.status import ChangefeedStatus
from changefeed.table import TableName

NOW = datetime(2026, 11, 23, 8, 0, tzinfo=UTC)
AT = Position(ClusterTime(100, 1))


def following(lag: float = 0.0) -> CutOverFacts:
    current = NOW - timedelta(seconds=lag)
    status = ChangefeedStatus(
        checkpoint=AT, resolved=AT, current_at=current, seen_at=NOW, behind=lag > 0, info_version=1, epoch=1
    )
    return CutOverFacts(id=ChangefeedId("f"), state=State.NORMAL, status=status)


def asked(facts: CutOverFacts, *, within: float = 60, leave_stopped: bool = False) -> pb.Readiness:
    return readiness_of(facts, NOW, within=timedelta(seconds=within), leave_stopped=leave_stopped)


def ddl(type: DdlType, state: DdlState, refused: ErrorReport | None = None) -> DdlRecord:
    event = DdlEvent(position=AT, type=type, db="s", table=TableName("s", "a"))
    return DdlRecord(event=event, scope=Scope(), state=state, seen_at=NOW, refused=refused)


def test_a_changefeed_that_follows_is_ready_within_its_lag() -> None:
    assert asked(following()) == pb.Readiness(ready=True, takes=timedelta(seconds=1))
    found = asked(replace(following(lag=4), expiries=50))
    assert found.ready
    assert found.takes.ToTimedelta() == timedelta(seconds=5)
    assert [finding.kind for finding in found.findings] == ["expiry"]


def test_a_cut_over_that_would_take_too_long_is_not_ready() -> None:
    found = asked(following(lag=20), within=10)
    assert not found.ready
    assert "it would take about 20 s" in found.findings[0].message


@pytest.mark.parametrize(
    ("facts", "kind", "told"),
    [
        (replace(following(), status=None, state=State.PENDING), "state", "it has not begun"),
        (replace(following(), state=State.STOPPED), "state", "it is stopped; resume it"),
        (replace(following(), state=State.FAILED, error="gone"), "state", "it is failed: gone"),
        (replace(following(), state=State.WARNING, error="no node"), "error", "no node"),
        (replace(following(), source_problems=["no answer"]), "source", "no answer"),
        (
            replace(following(), copying=2, copy_left=timedelta(seconds=30)),
            "copy",
            "2 tables are being copied, about 30 s",
        ),
        (replace(following(), stopped=["s.a"]), "stopped", "1 table is waiting for a user: s.a; resume them"),
        (
            replace(following(), behind=list("abcdefg")),
            "behind",
            "7 tables are behind the others: a, b, c, d, e and 2 more",
        ),
        (replace(following(), rejected=1), "rejected", "1 row is rejected"),
        (replace(following(), rejected=3), "rejected", "3 rows are rejected"),
        (
            replace(following(), open_ddls=[ddl(DdlType.CREATE_INDEXES, DdlState.EXECUTING)]),
            "index",
            "1 index build is running at the target: createIndexes s.a",
        ),
        (
            replace(following(), open_ddls=[ddl(DdlType.RENAME, DdlState.PENDING)]),
            "ddl",
            "1 schema change is not done: rename s.a",
        ),
    ],
)
def test_what_is_in_the_way_is_named_and_the_time_unknown(facts: CutOverFacts, kind: str, told: str) -> None:
    found = asked(facts)
    [finding] = found.findings
    assert not found.ready
    assert finding.kind == kind
    assert told in finding.message
    assert not found.HasField("takes")


def test_stopped_tables_may_be_left_with_their_refused_ddls() -> None:
    refused = ErrorReport.of(DdlRefused("no"), NOW)
    facts = replace(following(), stopped=["s.a"], open_ddls=[ddl(DdlType.CREATE_INDEXES, DdlState.PENDING, refused)])
    assert not asked(facts).ready
    assert asked(facts, leave_stopped=True).ready


def test_what_has_finished_needs_nothing() -> None:
    assert asked(replace(following(), state=State.FINISHED)).ready
