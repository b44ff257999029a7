"""What the owner may rely on of a node's report, and what it may not."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

import pytest

from changefeed.cluster_time import ClusterTime
from changefeed.event import DdlEvent, DdlType
from changefeed.position import Position
from changefeed.records.ddl import DdlRecord, DdlState, Scope
from changefeed.records.node import AssignedTable, Assignment, NodeId, PositionReport
from changefeed.records.status import Straggler
from changefeed.table import TableId
from owner.tables.progress import Floor, NodeState, TableProgress

A, NODE, NOW = TableId("a" * 32), NodeId("n1"), datetime(2026, 11, 21, tzinfo=UTC)


def at(increment: int) -> Position:
    return Position(ClusterTime(100, increment))


GIVEN = {A: AssignedTable(start=at(1))}


def progress(
    *, assigned_rev: int = 10, floor: Floor | None = None, report: PositionReport | None = None
) -> TableProgress:
    state = NodeState(assignment=Assignment(tables=GIVEN), assignment_rev=assigned_rev, report=report)
    return TableProgress().next(GIVEN, {NODE: state}, floor or Floor(at(0), ()))


def report(rev: int, stops: Mapping[TableId, int] | None = None, checkpoint: int = 5) -> PositionReport:
    return PositionReport(run=1, barrier_rev=1, assignment_rev=rev, checkpoint=at(checkpoint), stops=stops or {})


@pytest.mark.parametrize(
    ("said", "obeys"),
    [
        (None, False),
        (report(10), False),
        (report(10, {A: 19}), False),
        (report(10, {A: 20}), True),
        (report(10, {A: 21}), True),
        (report(9, {A: 20}), False),
    ],
    ids=[
        "no report",
        "not of it",
        "of an earlier stop",
        "of this stop",
        "of a later one",
        "under an earlier assignment",
    ],
)
def test_a_table_is_stopped_when_its_node_says_so_of_this_stop(said: PositionReport | None, obeys: bool) -> None:
    """A table may be stopped, resumed, and stopped again: what was said of the first stop says nothing of the second."""
    assert progress(report=said).obeys(A, 20) is obeys


def test_a_table_without_a_node_is_stopped() -> None:
    assert TableProgress().next(GIVEN, {}, Floor(at(0), ())).obeys(A, 20)


def test_a_report_counts_under_the_assignment_that_it_has_seen() -> None:
    assert progress(report=report(10)).of(A) == at(5)
    assert progress(report=report(9)).of(A) == at(1)


def test_a_table_is_not_before_what_the_records_in_etcd_imply() -> None:
    """A new owner has no report yet: from the start in the assignment, rows would be written before DDLs that are done."""

    def floor(state: DdlState = DdlState.DONE, *, background: bool = False, straggler: int | None = None) -> Floor:
        event = DdlEvent(position=at(7), type=DdlType.MODIFY, db="shop")
        scope = Scope(tables=frozenset({A}))
        record = DdlRecord(event=event, scope=scope, state=state, background=background, seen_at=NOW)
        stragglers = {A: Straggler(at=at(straggler), since=NOW)} if straggler is not None else {}
        return Floor(at(4), [record], stragglers)

    assert progress(floor=floor()).of(A) == at(7)
    assert progress(floor=floor(DdlState.EXECUTING)).of(A) == at(7)
    assert progress(floor=floor(DdlState.PENDING)).of(A) == at(4)
    assert progress(floor=floor(background=True)).of(A) == at(4)
    assert progress(floor=floor(DdlState.PENDING, straggler=2)).of(A) == at(2)
    assert progress(floor=floor(straggler=2)).of(A) == at(7)
