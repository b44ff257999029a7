"""What `table list` says of a table: `following` only of one that moves on."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from admin.services.troubles import TableFacts, TableTrouble, TroubleKind, standing
from changefeed.cluster_time import ClusterTime
from changefeed.errors import PipelineUnavailable
from changefeed.lifecycle import ErrorReport, State
from changefeed.position import Position
from changefeed.records.node import NodeId
from changefeed.table import TableKind

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
DEAD = ErrorReport.of(PipelineUnavailable("no Java"), NOW)


def ago(seconds: int) -> Position:
    return Position(ClusterTime(int(NOW.timestamp()) - seconds, 1))


WELL = TableFacts(
    kind=TableKind.COLLECTION,
    state=State.NORMAL,
    node=NodeId("n1"),
    at=ago(2),
    barrier=ago(1),
    lag=timedelta(seconds=1),
)
STOPPED = TableTrouble(TroubleKind.STOPPED, DEAD)
BEHIND = TableTrouble(TroubleKind.BEHIND)


@pytest.mark.parametrize(
    ("facts", "state"),
    [
        (WELL, "following"),
        (replace(WELL, held=True), "held"),
        (replace(WELL, at=ago(40)), "behind"),
        (replace(WELL, at=None), "behind"),
        (replace(WELL, at=ago(90), barrier=ago(90), lag=timedelta(seconds=90)), "waiting"),
        (replace(WELL, at=ago(90), barrier=ago(90), lag=timedelta(0)), "following"),
        (replace(WELL, trouble=BEHIND), "behind"),
        (replace(WELL, trouble=STOPPED), "stopped"),
        (replace(WELL, copying=True), "copy"),
        (replace(WELL, failing=DEAD), "failing"),
        (replace(WELL, failing=DEAD, copying=True), "failing"),
        (replace(WELL, failing=DEAD, leaving=True), "moving"),
        (replace(WELL, node=None, at=None), "no node"),
        (replace(WELL, state=State.PENDING), "changefeed pending"),
        (replace(WELL, state=None), "changefeed starting"),
        (replace(WELL, kind=TableKind.VIEW, node=None), "view"),
    ],
)
def test_the_first_reason_that_holds_counts(facts: TableFacts, state: str) -> None:
    assert standing(facts, NOW).state == state


def test_a_table_that_fails_says_why() -> None:
    assert standing(replace(WELL, failing=DEAD), NOW).error is DEAD
    assert standing(replace(WELL, trouble=STOPPED), NOW).error is DEAD
    assert standing(WELL, NOW).error is None
