"""The watch over a scripted cursor: order, resumption after any error, and what is resolved."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pymongo import errors as driver

from changefeed.cluster_time import ClusterTime
from changefeed.errors import (
    HistoryLost,
    RetryableError,
    SourceMajorityStalled,
    SourceRefused,
    SourceUnavailable,
)
from changefeed.event import DdlEvent, DdlType
from changefeed.position import Position
from changefeed.table import TableName
from source.ddl_watch import DdlBatch
from source.majority_watch import MajorityWatch
from source.resume_token import oplog_ddl_token
from source.stream.note import NoteKeeper
from source.stream.stream_ddl_watch import ChangeStreamCursor, Reading, ResumingDdlWatch
from tests.unit.source.stream.tokens import high_water_mark_token

START = Position(ClusterTime(100, 5))


def at(increment: int, ordinal: int = 0) -> Position:
    time = ClusterTime(100, increment)
    return Position(time, oplog_ddl_token(time, ordinal))


def ddl(position: Position) -> DdlEvent:
    return DdlEvent(position=position, type=DdlType.DROP, db="shop", table=TableName("shop", "orders"))


class ScriptedCursor:
    """A source with a fixed history; each step of the script is an error to raise or how many DDLs may be read at once."""

    def __init__(self, history: Sequence[Position], script: Sequence[Exception | int]) -> None:
        self.history = list(history)
        self.script = list(script)
        self.opened_at: list[ClusterTime] = []
        self.closed = 0
        self._next = 0

    def open(self, start_ts: ClusterTime) -> None:
        self.opened_at.append(start_ts)
        self._next = sum(position.ts < start_ts for position in self.history)
        if self.script and isinstance(self.script[0], driver.ServerSelectionTimeoutError):
            raise self.script.pop(0)  # type: ignore[misc] # it is one: the line before looked

    def read(self) -> Reading:
        step = self.script.pop(0) if self.script else 1
        if isinstance(step, Exception):
            raise step
        shown = self.history[self._next : self._next + step]
        self._next += len(shown)
        done = self._next == len(self.history)
        token = high_water_mark_token(ClusterTime(200, 1)) if done else shown[-1].token if shown else None
        return Reading(
            events=tuple(ddl(position) for position in shown),
            token=token,
            quiet=not shown,
            committed_ts=ClusterTime(200, 1),
        )

    def close(self) -> None:
        self.closed += 1


class CountedNotes:
    def __init__(self) -> None:
        self.looks: list[tuple[Position, bool]] = []

    def look_at(self, resolved: Position, committed_ts: ClusterTime, *, quiet: bool) -> None:
        self.looks.append((resolved, quiet))

    def end(self, committed_ts: ClusterTime) -> Position:
        return Position(committed_ts.next())


class MovingMajority:
    def look_at(self, committed_ts: ClusterTime) -> SourceMajorityStalled | None:
        return None


class StandingMajority:
    def look_at(self, committed_ts: ClusterTime) -> SourceMajorityStalled | None:
        return SourceMajorityStalled(f"stands at {committed_ts}")


def watch_of(
    cursor: ScriptedCursor, start: Position = START, notes: object = None, majority: object = None
) -> ResumingDdlWatch:
    return ResumingDdlWatch(
        cast("ChangeStreamCursor", cursor),
        start,
        cast("NoteKeeper", notes or CountedNotes()),
        cast("MajorityWatch", majority or MovingMajority()),
        lambda: "the oldest time available is 150.1",
    )


def polled(watch: ResumingDdlWatch, times: int) -> list[DdlBatch]:
    batches = []
    for _ in range(times):
        try:
            batches.append(watch.poll())
        except RetryableError:
            continue
    return batches


def test_it_begins_at_its_start_and_drops_what_is_below_it_in_the_same_cluster_time() -> None:
    start = at(7, 1)
    cursor = ScriptedCursor([at(7, 0), at(7, 1), at(8)], [1, 1, 1])
    shown = [event.position for batch in polled(watch_of(cursor, start), 3) for event in batch.events]
    assert cursor.opened_at == [start.ts]
    assert shown == [at(7, 1), at(8)]


@pytest.mark.parametrize(
    "error",
    [
        driver.AutoReconnect("primary stepped down"),
        driver.NetworkTimeout("slow"),
        driver.ServerSelectionTimeoutError("nobody there"),
        driver.CursorNotFound("killed", 43),
        driver.OperationFailure("interrupted", 11602),
        driver.OperationFailure("resume token not found", 280),
        driver.OperationFailure("token", 260),
        driver.OperationFailure("closed", 222),
        driver.OperationFailure("of the future", 999_999),
    ],
    ids=repr,
)
@pytest.mark.parametrize("place", range(4))
def test_after_any_error_anywhere_each_ddl_is_shown_once_and_in_order(error: Exception, place: int) -> None:
    history = [at(6), at(7, 0), at(7, 1), at(7, 2)]
    script: list[Exception | int] = [1, 1, 1, 1]
    script.insert(place, error)
    cursor = ScriptedCursor(history, script)
    batches = polled(watch_of(cursor), 12)
    assert [event.position for batch in batches for event in batch.events] == history
    resolved = [batch.resolved for batch in batches]
    assert resolved == sorted(resolved)
    assert resolved[-1] == Position(ClusterTime(200, 1))


@given(
    entries=st.lists(st.integers(1, 3), max_size=8),
    script=st.lists(
        st.integers(0, 3) | st.sampled_from([driver.AutoReconnect("gone"), driver.CursorNotFound("no", 43)])
    ),
)
def test_whatever_fails_nothing_is_lost_repeated_or_resolved_too_early(
    entries: list[int], script: list[Exception | int]
) -> None:
    history = [at(6 + n, ordinal) for n, size in enumerate(entries) for ordinal in range(size)]
    shown: list[Position] = []
    for batch in polled(watch_of(ScriptedCursor(history, script)), len(script) + 2 * len(history) + 2):
        shown += [event.position for event in batch.events]
        assert {position for position in history if position < batch.resolved} <= set(shown)
    assert shown == history


def test_it_resumes_at_the_cluster_time_of_what_is_resolved() -> None:
    cursor = ScriptedCursor([at(6), at(9), at(12)], [1, 1, driver.AutoReconnect("gone"), 1])
    polled(watch_of(cursor), 4)
    assert cursor.opened_at == [START.ts, ClusterTime(100, 9)]


def test_no_batch_resolves_a_ddl_that_it_or_an_earlier_one_did_not_show() -> None:
    history = [at(6), at(7, 0), at(7, 1), at(9)]
    shown: set[Position] = set()
    for batch in polled(watch_of(ScriptedCursor(history, [1, 1, 1, 1])), 4):
        shown |= {event.position for event in batch.events}
        assert {position for position in history if position < batch.resolved} <= shown


def test_a_lost_position_is_fatal_and_names_the_oldest_time_available() -> None:
    cursor = ScriptedCursor([], [driver.OperationFailure("resume point", 286)])
    with pytest.raises(HistoryLost, match=r"position 100\.5 is no longer .* 150\.1; remove the changefeed") as caught:
        watch_of(cursor).poll()
    assert caught.value.code == "history_lost"
    assert cursor.closed == 1


def test_missing_privileges_are_reported_as_such() -> None:
    with pytest.raises(SourceRefused):
        watch_of(ScriptedCursor([], [driver.OperationFailure("not authorized", 13)])).poll()


def test_a_retryable_error_says_when_to_come_back() -> None:
    with pytest.raises(SourceUnavailable) as caught:
        watch_of(ScriptedCursor([], [driver.AutoReconnect("gone")])).poll()
    assert caught.value.retry_after.total_seconds() > 0


def test_the_note_keeper_receives_each_reading() -> None:
    notes = CountedNotes()
    watch = watch_of(ScriptedCursor([at(6)], [1, 1]), notes=notes)
    watch.poll()
    watch.poll()
    assert [quiet for _, quiet in notes.looks] == [False, True]


def test_closing_twice_is_harmless() -> None:
    cursor = ScriptedCursor([], [1])
    with closing(watch_of(cursor)) as watch:
        watch.poll()
        watch.close()
    assert cursor.closed == 2


def test_a_stalled_majority_is_reported_with_the_batch_and_the_cursor_stays_open() -> None:
    cursor = ScriptedCursor([at(6)], [1, 0])
    watch = watch_of(cursor, majority=StandingMajority())
    first, second = watch.poll(), watch.poll()
    assert [event.position for event in first.events] == [at(6)]
    assert [str(batch.trouble) for batch in (first, second)] == ["stands at 200.1"] * 2
    assert len(cursor.opened_at) == 1
