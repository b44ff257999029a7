"""How long rows of a table have been waiting, from what the owner says of the changefeed and where the table is."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from admin.lag import lag_at, node_lag, slowest
from changefeed.cluster_time import ClusterTime
from changefeed.position import Position
from changefeed.records.node import AssignedTable, Assignment, NodeId, PositionReport
from changefeed.records.status import ChangefeedStatus
from changefeed.table import TableId

NOW = datetime(2026, 11, 21, tzinfo=UTC)


def at(seconds: int) -> Position:
    return Position(ClusterTime(seconds, 1))


def status(lag: float, *, behind: bool = True) -> ChangefeedStatus:
    """At 100 of the source's time, with this lag at `NOW`."""
    known = NOW - timedelta(seconds=lag)
    return ChangefeedStatus(
        checkpoint=at(100), resolved=at(160), current_at=known, seen_at=NOW, behind=behind, info_version=1, epoch=1
    )


def seconds(status: ChangefeedStatus, place: Position | None) -> float | None:
    lag = lag_at(status, place, NOW)
    return None if lag is None else lag.total_seconds()


def test_the_table_that_is_furthest_behind_lags_as_its_changefeed() -> None:
    assert seconds(status(60), at(100)) == 60


def test_a_table_that_is_ahead_lags_less_and_never_less_than_nothing() -> None:
    assert seconds(status(60), at(130)) == 30
    assert seconds(status(60), at(175)) == 0


def test_at_rest_no_table_lags() -> None:
    at_rest = status(0.4, behind=False)
    assert seconds(at_rest, at(100)) == seconds(at_rest, at(110)) == 0


def test_a_table_that_the_checkpoint_does_not_wait_for_lags_by_what_it_is_behind() -> None:
    assert seconds(status(0.4, behind=False), at(40)) == 60
    assert seconds(status(5), at(40)) == 65


def test_a_table_without_a_node_lags_as_its_changefeed() -> None:
    assert seconds(status(7), None) == 7
    assert seconds(ChangefeedStatus(info_version=1, epoch=1), None) is None


A, B, C = (TableId(letter * 32) for letter in "abc")


def assigned(*tables: TableId) -> Assignment:
    return Assignment(tables={table: AssignedTable(start=at(1)) for table in tables})


def report(checkpoint: int, **places: int) -> PositionReport:
    exceptions = {TableId(name * 32): at(place) for name, place in places.items()}
    return PositionReport(run=1, barrier_rev=1, assignment_rev=1, checkpoint=at(checkpoint), exceptions=exceptions)


def of_node(tables: Assignment, told: PositionReport | None, *stopped: TableId) -> float | None:
    lag = node_lag(status(60), tables, told, set(stopped), NOW)
    return None if lag is None else lag.total_seconds()


def test_a_node_lags_as_its_table_that_is_furthest_behind_and_is_not_stopped() -> None:
    assert of_node(assigned(A, B), report(150, b=120)) == 40
    assert of_node(assigned(A, B), report(150, b=40), B) == 10
    assert of_node(assigned(B), report(150, b=120)) == 40
    assert of_node(assigned(B), report(150, b=40), B) is None
    assert of_node(assigned(), report(150)) is None


def test_a_node_that_has_not_reported_lags_as_the_changefeed() -> None:
    assert of_node(assigned(A), None) == 60


def test_the_slowest_tables_are_those_that_are_elsewhere_than_the_others() -> None:
    tables = {NodeId("n1"): assigned(A, B, C)}
    found = slowest(status(60), tables, {NodeId("n1"): report(160, a=100, b=130, c=160)}, NOW)
    assert [(each.table, each.lag.total_seconds()) for each in found] == [(A, 60), (B, 30)]
