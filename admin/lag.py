"""`lag_at`, `node_lag`, `slowest`: how long rows of a table, a node or a changefeed have been waiting to be written. Pure.

The owner says of a changefeed's checkpoint how long what comes after it has been at the source (`ChangefeedStatus.lag`). From there a table
lags less or more by the time between the two positions, on the source's clock:

    checkpoint 100, 60 s behind     a table at 100: 60 s      one at 130: 30 s      one at 160 or later: nothing
    checkpoint 100, nothing left    each table that follows: nothing                a stopped one at 40: 60 s
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime, timedelta
from heapq import nlargest

from changefeed.position import Position
from changefeed.records.node import Assignment, NodeId, PositionReport
from changefeed.records.status import ChangefeedStatus
from changefeed.table import TableId

_NOTHING = timedelta(0)
MOST_SHOWN = 5


@dataclass(frozen=True, slots=True)
class TableLag:
    table: TableId
    lag: timedelta


def lag_at(status: ChangefeedStatus, place: Position | None, now: datetime) -> timedelta | None:
    """Of a table at `place`; None for a table without a node. None before the changefeed has started."""
    return beside(status, status.lag(now), place)


def beside(status: ChangefeedStatus, lag: timedelta | None, place: Position | None) -> timedelta | None:
    """The same where the changefeed's `lag` is known."""
    if lag is None or place is None or status.checkpoint is None:
        return lag
    ahead = timedelta(seconds=place.ts.seconds - status.checkpoint.ts.seconds)
    return max(lag - ahead, _NOTHING)


def node_lag(
    status: ChangefeedStatus,
    assignment: Assignment,
    report: PositionReport | None,
    stopped: AbstractSet[TableId],
    now: datetime,
) -> timedelta | None:
    """Of its table that is furthest behind, without the stopped ones. None if it has no other."""
    elsewhere = {} if report is None else _elsewhere(assignment, report)
    places = [place for table, place in elsewhere.items() if table not in stopped]
    others = len(assignment.tables) - len(elsewhere.keys() | (stopped & assignment.tables.keys()))
    if others and report is None:
        return status.lag(now)
    if others and report is not None:
        places.append(report.checkpoint)
    return lag_at(status, min(places), now) if places else None


def slowest(
    status: ChangefeedStatus,
    assignments: Mapping[NodeId, Assignment],
    reports: Mapping[NodeId, PositionReport],
    now: datetime,
    most: int = MOST_SHOWN,
) -> list[TableLag]:
    """The tables that lag most, of those that are elsewhere than the most of their node. It visits no other table."""
    found = (
        TableLag(table, lag)
        for node, report in reports.items()
        if node in assignments
        for table, place in _elsewhere(assignments[node], report).items()
        if (lag := lag_at(status, place, now))
    )
    return nlargest(most, found, key=lambda each: (each.lag, each.table))


def _elsewhere(assignment: Assignment, report: PositionReport) -> dict[TableId, Position]:
    return {table: place for table, place in report.exceptions.items() if table in assignment.tables}
