"""Rows that exchange values of a unique index end as at the source, whatever windows replay them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias, cast

import bson
from hypothesis import given, note, settings
from hypothesis import strategies as st

from changefeed.cluster_time import ClusterTime
from changefeed.event import RowType
from changefeed.position import Position, Window
from changefeed.records.ddl import Barrier
from changefeed.table import TableId, TableName
from processor.lanes.lane_plan import LaneLimits, Paces, plan
from processor.lanes.lanes import LaneJob, Lanes
from processor.lanes.windows import Pace
from processor.task.job import JobOutcome
from processor.task.rows.applier import Applier
from sink.dependence import Dependence
from sink.mongodb.connection import Client
from sink.mongodb.rows.row_writer import MongoRowWriter
from sink.row import RowChange, TargetTable
from tests.invariants import check_lanes
from tests.unit.processor.task.rows.beside import BESIDE
from tests.unit.processor.task.rows.unique_target import Row, UniqueTarget

Event: TypeAlias = tuple[RowType, str, Row]
"""Kind, `_id`, and the fields written."""

_START = 100
_ID = TableId("ab" * 16)
_NAME = TableName("shop", "orders")
_TABLE = TargetTable(
    id=_ID, source=_NAME, name=_NAME, ordered=True, dependence=Dependence.of([{"key": {"u": 1}}], capped=False)
)
_ROWS, _VALUES = "qrst", "123456"


def sets(key: str, **fields: Any) -> Event:
    return RowType.UPDATE, key, fields


class History:
    """One event per second, as far as the source accepts them; the state before and after each."""

    def __init__(self, before: dict[str, Row], events: Sequence[Event]) -> None:
        source = UniqueTarget(before)
        self.states = [_copy(source.rows)]
        self.events: list[RowChange] = []
        for event in events:
            change = _change(event, _START + len(self.events))
            if _happens(source, event):
                self.events.append(change)
                self.states.append(_copy(source.rows))

    @property
    def end(self) -> Position:
        return _at(len(self.events))

    def within(self, window: Window) -> list[RowChange]:
        return [change for change in self.events if window.start <= change.position < window.end]


def _happens(source: UniqueTarget, event: Event) -> bool:
    kind, key, content = event
    there = key in source.rows
    if there is (kind is RowType.INSERT):
        return False
    if kind is RowType.DELETE:
        source.rows.pop(key)
        return True
    row = {"_id": key, **content} if kind is not RowType.UPDATE else {**source.rows[key], **content}
    if any(other != key and "u" in row and held.get("u") == row["u"] for other, held in source.rows.items()):
        return False
    source.rows[key] = row
    return True


def _change(event: Event, second: int) -> RowChange:
    kind, key, content = event
    document = bson.encode({"_id": key, **content}) if kind in (RowType.INSERT, RowType.REPLACE) else None
    update = bson.encode({"updatedFields": content, "removedFields": []}) if kind is RowType.UPDATE else None
    time = ClusterTime(second, 1).to_int()
    return RowChange(_TABLE, kind, bson.encode({"_id": key}), document, update, time, f"82{second:08x}".encode())


def _at(number: int) -> Position:
    return Position(ClusterTime(_START + number, 0))


def _copy(rows: dict[Any, Row]) -> dict[Any, Row]:
    return {key: dict(row) for key, row in rows.items()}


class Node:
    """Makes lanes and windows like a node, one job after the other."""

    def __init__(self, history: History, target: UniqueTarget, replay_until: Position) -> None:
        self.history, self.target = history, target
        self.writer = MongoRowWriter(cast("Client", target), permit=lambda: 60.0)
        self.barrier = Barrier(epoch=1, position=history.end)
        before = Barrier(epoch=1, position=replay_until)
        self.lanes = Lanes.empty(_at(0)).assign({_ID: _at(0)}, before)

    def job(self, seconds: int) -> LaneJob | None:
        """The next job, in a window of so many seconds."""
        pace = Pace(seconds=seconds)
        jobs = plan(self.lanes, self.barrier, Paces(default=pace, own=pace), LaneLimits())
        for job in jobs:
            self.lanes = self.lanes.started(job)
            check_lanes(self.lanes)
        return jobs[0] if jobs else None

    def finish(self, job: LaneJob) -> JobOutcome:
        applier = Applier(self.writer, job, BESIDE)
        for change in self.history.within(job.scan):
            applier.add(change)
        applier.finish()
        self.lanes = self.lanes.finished(job.number, applier.outcome.rows.unsettled)
        check_lanes(self.lanes)
        return applier.outcome

    def interrupt(self, job: LaneJob, after: int) -> None:
        """Interrupts the job after so many events."""
        applier = Applier(self.writer, job, BESIDE)
        for change in self.history.within(job.scan)[:after]:
            applier.add(change)
        applier.flush()
        self.lanes = self.lanes.failed(job.number)

    def follow(self, widths: Iterator[int]) -> list[tuple[int, int]]:
        """Runs to the end; returns the start and end of each window."""
        went = []
        while job := self.job(next(widths)):
            outcome = self.finish(job)
            assert (outcome.rows.tally.repaired, outcome.rows.tally.rejected) == (0, 0), outcome.rows.samples
            went.append((job.scan.start.ts.seconds - _START, job.scan.end.ts.seconds - _START))
            assert len(went) < 100, "no progress"
        return went


def _pairs() -> Iterator[int]:
    while True:
        yield 2


_GOES_ROUND = [
    sets("r", u="k"),
    sets("s", u="v"),
    sets("s", u="w"),
    sets("r", u="v"),
    sets("s", u="z"),
    sets("q", u="w"),
]


def test_a_window_with_rows_that_wait_is_repeated_with_more_events() -> None:
    history = History({"q": {"u": "a"}, "r": {"u": "b"}, "s": {"u": "c"}}, _GOES_ROUND)
    node = Node(history, UniqueTarget({}), history.end)
    node.target.rows = _copy(history.states[-1])
    assert node.follow(_pairs()) == [(0, 2), (2, 4), (2, 6)]
    assert node.target.rows == history.states[-1]


def test_no_field_of_a_refused_change_is_lost() -> None:
    events = [sets("r", x=0), sets("s", y=0), sets("r", u="v", x=1), sets("s", y=1), sets("r", u="w"), sets("q", u="v")]
    history = History({"q": {"u": "a"}, "r": {"u": "b"}, "s": {"u": "c"}}, events)
    node = Node(history, UniqueTarget({}), history.end)
    node.target.rows = _copy(history.states[-1])
    node.follow(_pairs())
    assert node.target.rows == history.states[-1]


def test_rows_that_exchanged_their_values_exchange_them_again() -> None:
    """At the end `w` has a and wants b, `q` has b and wants a, and the values that they had in between belong to other rows."""
    names = [("w", "x"), ("q", "b"), ("w", "a"), ("w", "1"), ("q", "2"), ("w", "b"), ("q", "a"), ("y", "1"), ("z", "2")]
    before: dict[str, Row] = {"w": {"u": "b"}, "q": {"u": "c"}, "y": {"u": "d"}, "z": {"u": "e"}}
    history = History(before, [sets(row, u=value) for row, value in names])
    assert len(history.events) == len(names)
    node = Node(history, UniqueTarget({}), history.end)
    node.target.rows = _copy(history.states[-1])
    node.follow(_pairs())
    assert node.target.rows == history.states[-1]


_KINDS = [RowType.UPDATE] * 6 + [RowType.INSERT, RowType.REPLACE, RowType.DELETE]
_DRAWN = st.lists(
    st.tuples(st.sampled_from(_KINDS), st.sampled_from(_ROWS), st.integers(0, 5), st.booleans()),
    min_size=8,
    max_size=40,
)


def _events(before: dict[str, Row], drawn: Sequence[tuple[RowType, str, int, bool]]) -> list[Event]:
    """Most drawn events are possible, because a row takes a value that no row has."""
    source, events = UniqueTarget(before), []
    for number, (kind, key, choice, other) in enumerate(drawn):
        free = sorted(set(_VALUES) - {row.get("u") for row in source.rows.values()})
        content = {} if kind is RowType.DELETE else {"u": free[choice % len(free)]} | ({"x": number} if other else {})
        if _happens(source, (kind, key, content)):
            events.append((kind, key, content))
    return events


def _some_ahead(history: History, reached: int, draw: st.DataObject) -> dict[Any, Row]:
    """The rows of a position, or of one before, where their values are free."""
    rows = _copy(history.states[reached])
    for key in _ROWS:
        then = history.states[draw.draw(st.integers(0, reached))].get(key)
        rest = {other: row for other, row in rows.items() if other != key}
        if then is None:
            rows = rest
        elif all("u" not in then or row.get("u") != then["u"] for row in rest.values()):
            rows = rest | {key: dict(then)}
    return rows


@settings(max_examples=100)
@given(drawn=_DRAWN, draw=st.data())
def test_random_histories_end_as_at_the_source(
    drawn: list[tuple[RowType, str, int, bool]], draw: st.DataObject
) -> None:
    """Each history is replayed from any position that was reached, in windows of any width, with repeated interruptions. Some rows are ahead of others:
    a command was the last that an earlier attempt sent.
    """
    before: dict[str, Row] = {key: {"u": value} for key, value in zip(_ROWS, _VALUES, strict=False)}
    history = History(before, _events(before, drawn))
    target = UniqueTarget({})
    reached = draw.draw(st.integers(len(history.events) // 2, len(history.events)))
    target.rows = _some_ahead(history, reached, draw)
    widths = st.integers(1, 5)
    node = Node(history, target, _at(reached))
    for _ in range(draw.draw(st.integers(0, 2))):
        if job := node.job(draw.draw(widths)):
            node.interrupt(job, draw.draw(st.integers(1, 12)))
    note(f"{history.events}")
    node.follow(iter(lambda: draw.draw(widths), None))
    assert target.rows == history.states[-1]
