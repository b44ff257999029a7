"""How a note is written when the server refuses one way, or both."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest
from pymongo.errors import AutoReconnect, OperationFailure
from structlog.testing import capture_logs

from changefeed.cluster_time import ClusterTime
from changefeed.errors import SourceUnavailable
from changefeed.position import Position
from source.connection import Client
from source.stream.note import NoteKeeper

RESOLVED, COMMITTED = Position(ClusterTime(100, 5)), ClusterTime(100, 5)
NOT_AUTHORIZED = OperationFailure("not authorized", 13)


class ScriptedNotes(NoteKeeper):
    def __init__(self, append: ClusterTime | Exception, heartbeat: ClusterTime | Exception) -> None:
        self.tried: list[str] = []
        self._answers = {"append": append, "heartbeat": heartbeat}
        super().__init__(cast("Client", None))

    def _append_note(self) -> ClusterTime:
        return self._try("append")

    def _update_heartbeat(self) -> ClusterTime:
        return self._try("heartbeat")

    def _try(self, way: str) -> ClusterTime:
        self.tried.append(way)
        answer = self._answers[way]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def be_quiet(self, times: int) -> None:
        for _ in range(times):
            self.look_at(RESOLVED, COMMITTED, quiet=True)


@pytest.fixture
def logged() -> Iterator[list[Any]]:
    with capture_logs() as logs:
        yield cast("list[Any]", logs)


def test_one_note_is_enough_for_one_silence() -> None:
    notes = ScriptedNotes(ClusterTime(100, 6), NOT_AUTHORIZED)
    notes.be_quiet(5)
    assert notes.tried == ["append"]


def test_the_refused_way_is_not_tried_again(logged: list[Any]) -> None:
    notes = ScriptedNotes(NOT_AUTHORIZED, ClusterTime(100, 6))
    notes.be_quiet(3)
    notes.look_at(Position(ClusterTime(100, 9)), ClusterTime(100, 9), quiet=True)
    notes.look_at(Position(ClusterTime(100, 9)), ClusterTime(100, 9), quiet=True)
    assert notes.tried == ["append", "heartbeat", "heartbeat"]
    assert [log["left"] for log in logged] == [1]


def test_a_source_that_takes_no_note_at_all_is_left_to_itself(logged: list[Any]) -> None:
    notes = ScriptedNotes(NOT_AUTHORIZED, NOT_AUTHORIZED)
    notes.be_quiet(5)
    assert notes.tried == ["append", "heartbeat"]
    assert [log["event"] for log in logged] == ["source_note_refused"] * 2


def test_a_source_that_is_away_is_an_error_to_retry() -> None:
    notes = ScriptedNotes(AutoReconnect("gone"), ClusterTime(100, 6))
    with pytest.raises(SourceUnavailable, match="writing a note"):
        notes.be_quiet(2)
    assert notes.tried == ["append"]


def test_something_shown_is_not_silence() -> None:
    notes = ScriptedNotes(ClusterTime(100, 6), NOT_AUTHORIZED)
    for _ in range(3):
        notes.look_at(RESOLVED, COMMITTED, quiet=False)
    assert notes.tried == []


class ShardedNotes(ScriptedNotes):
    """Each note is an entry on each of three shards."""

    def __init__(self) -> None:
        super().__init__(COMMITTED, NOT_AUTHORIZED)
        self.now = COMMITTED

    def _append_note(self) -> ClusterTime:
        super()._append_note()
        self.now = ClusterTime(self.now.seconds, self.now.increment + 3)
        return self.now


def test_an_idle_sharded_source_comes_to_rest_after_two_notes() -> None:
    notes = ShardedNotes()
    for _ in range(20):
        notes.look_at(Position(notes.now), notes.now, quiet=True)
    assert len(notes.tried) == 2


class UnheardNotes(ScriptedNotes):
    """No note can be written. A stream shows something at the given times."""

    def __init__(self, *shown: ClusterTime) -> None:
        super().__init__(NOT_AUTHORIZED, NOT_AUTHORIZED)
        self.looked: list[ClusterTime] = []
        self._shown = shown

    def _nothing_at(self, ts: ClusterTime) -> bool:
        self.looked.append(ts)
        return ts not in self._shown

    def ends(self, ts: ClusterTime, times: int) -> list[Position]:
        found = []
        for _ in range(times):
            found.append(self.end(ts))
            self.look_at(Position(ts), ts, quiet=True)
        return found


def test_where_no_note_can_be_written_a_no_op_at_the_end_of_a_silence_is_not_behind() -> None:
    """It is known with the first reply: what is once said to be committed counts until it is downstream."""
    row, no_op = ClusterTime(100, 5), ClusterTime(110, 1)
    notes = UnheardNotes(row)
    assert set(notes.ends(row, 5)) == {Position(row.next())}
    assert set(notes.ends(no_op, 4)) == {Position(no_op)}
    assert notes.looked == [row, no_op]


def test_a_busy_source_is_not_asked() -> None:
    notes = UnheardNotes()
    ends = [end for second in range(100, 120) for end in notes.ends(ClusterTime(second, 1), 2)]
    assert ends[-1] == Position(ClusterTime(119, 2))
    assert notes.looked == []


def test_a_source_that_takes_notes_is_not_asked() -> None:
    notes = UnheardNotes()
    notes._ways = [lambda: COMMITTED]
    notes.ends(COMMITTED, 3)
    assert notes.looked == []
