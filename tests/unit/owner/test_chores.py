"""What an owner has done now and then: when a chore asks again, and what each of them asks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any, cast

import pytest

from changefeed.cluster_time import ClusterTime
from changefeed.errors import SinkUnavailable, SluiceError, SourceUnavailable, SourceUnsupported
from changefeed.position import Position
from changefeed.records.ddl import Observation
from changefeed.records.node import PositionReport
from changefeed.records.requests import ChangefeedId
from changefeed.records.status import LetterTotals
from changefeed.table import TableId, TableName
from owner.background import Chore
from owner.chores import SinkChores, SourceChores
from owner.connections import SourceConnection
from sink import sink as ports
from sink.ddl import DownstreamDdl
from sink.receipt import CommitCounts
from tests.unit.owner.at_once import AtOnce

FEED = ChangefeedId("f")
NONE, THREE = LetterTotals(), LetterTotals(count=3, bytes=700)


def _at(seconds: int) -> Position:
    return Position(ClusterTime(seconds, 0))


class Asked:
    """A chore that is asked every ten seconds, and its answers, or its error."""

    def __init__(self, failed: Callable[[SluiceError], None] | None = None) -> None:
        self.background = AtOnce()
        self.count = 0
        self.away = False
        self.errors: list[SluiceError] = []
        self.chore = Chore[int](self.background, "chore", 10.0, failed or self.errors.append)

    def tick(self, after: float = 0.0, *, wanted: bool = True) -> bool:
        self.background.seconds += after
        return self.chore.tick(self._answer, wanted=wanted)

    def _answer(self) -> int:
        self.count += 1
        if self.away:
            raise SourceUnavailable("away")
        return self.count


def test_a_chore_is_asked_at_once_and_then_after_each_pause() -> None:
    asked = Asked()
    assert [asked.tick(seconds) for seconds in (0, 1, 8, 1, 1)] == [True, False, False, True, False]
    assert asked.chore.answer == 2


def test_a_slow_answer_is_waited_for_without_a_wait_and_the_pause_begins_with_it() -> None:
    asked = Asked()
    asked.background.slow = True
    assert not asked.tick()
    asked.background.slow = False
    assert asked.tick(60)
    assert not asked.tick(9)
    assert asked.count == 1


def test_an_error_is_told_once_and_leaves_the_last_answer_until_after_the_pause() -> None:
    asked = Asked()
    asked.tick()
    asked.away = True
    assert not asked.tick(10)
    assert not asked.tick(9)
    assert (len(asked.errors), asked.chore.answer) == (1, 1)
    asked.away = False
    assert asked.tick(1)


def test_a_chore_whose_error_is_raised_is_asked_again_at_the_next_tick() -> None:
    def raised(error: SluiceError) -> None:
        raise error

    asked = Asked(raised)
    asked.away = True
    for _ in range(2):
        with pytest.raises(SourceUnavailable):
            asked.tick()
    asked.away = False
    assert asked.tick()


def test_what_is_not_wanted_is_not_asked_but_an_answer_is_not_kept_for_a_later_call() -> None:
    asked = Asked()
    assert not asked.tick(wanted=False)
    asked.background.slow = True
    asked.tick()
    asked.background.slow = False
    assert asked.tick(wanted=False)
    assert not asked.tick(10, wanted=False)
    assert asked.tick()
    assert asked.count == 2


def test_a_chore_that_is_hurried_is_asked_at_the_next_tick() -> None:
    asked = Asked()
    asked.tick()
    asked.chore.hurry()
    assert asked.tick()


class Source:
    """Of a heartbeat and of notes."""

    def __init__(self) -> None:
        self.background = AtOnce()
        self.error: SluiceError | None = None
        self.beats: list[tuple[str, Position, ClusterTime | None]] = []
        self.notes = self.ended = 0
        self.chores = SourceChores(FEED, "test/f", cast("SourceConnection", self), self.background)

    def _ask(self) -> None:
        if self.error is not None:
            raise self.error

    def beat(self, name: str, *, checkpoint: Position, last_ts: ClusterTime | None) -> ClusterTime | None:
        self._ask()
        self.beats.append((name, checkpoint, last_ts))
        return checkpoint.ts

    def end_heartbeats(self, _: str) -> None:
        self._ask()
        self.ended += 1

    def move_on(self) -> None:
        self.notes += 1
        self._ask()


@pytest.fixture
def source() -> Source:
    return Source()


def test_a_heartbeat_knows_the_one_before(source: Source) -> None:
    for seconds in (100, 101, 102):
        source.chores.beat(_at(seconds))
        source.background.seconds += 5
    assert source.beats == [("test/f", _at(100), None), ("test/f", _at(102), _at(100).ts)]


@pytest.mark.parametrize(("error", "beats"), [(SourceUnavailable("away"), 1), (SourceUnsupported("no"), 0)])
def test_a_heartbeat_that_is_refused_is_not_tried_again(error: SluiceError, beats: int, source: Source) -> None:
    source.error = error
    source.chores.beat(_at(100))
    source.error = None
    source.background.seconds += 10
    source.chores.beat(_at(110))
    assert len(source.beats) == beats


def test_a_heartbeat_is_ended_or_left(source: Source) -> None:
    source.background.slow = True
    assert not source.chores.heartbeat_ended()
    source.background.slow = False
    assert (source.chores.heartbeat_ended(), source.ended) == (True, 1)
    source.error = SourceUnavailable("away")
    assert (source.chores.heartbeat_ended(), source.ended) == (True, 1)


def test_a_note_is_written_where_one_is_wanted_and_no_second_one_soon(source: Source) -> None:
    def notes(*wanted: bool) -> int:
        for each in wanted:
            source.chores.note(wanted=each)
        return source.notes

    assert notes(False, False) == 0
    assert notes(True, True, False, True) == 1
    source.background.seconds += 1
    source.error = SourceUnavailable("away")
    assert notes(True, True) == 2
    source.background.seconds += 1
    assert notes(True) == 3


class Sink:
    """Of messages, or with letters; with tables that are to be dropped."""

    def __init__(self, *, marked: bool = True, swept: bool = True) -> None:
        self.background = AtOnce()
        self.away = False
        self.made: list[tuple[Position, Mapping[TableId, Position]]] = []
        self.gone: list[list[int]] = []
        self.ended: list[int] = []
        self.committed = CommitCounts()
        self.found, self.asked = NONE, 0
        self.dropped: list[DownstreamDdl] = []
        self.reports: list[PositionReport] = []
        self._marked, self._swept = marked, swept
        self.chores = SinkChores(FEED, cast("ports.Sink", self), self.background)

    def marks(self) -> Any:
        return self if self._marked else None

    def leftovers(self) -> Any:
        return self if self._swept else None

    def ddl(self) -> Any:
        return self

    def _ask(self) -> None:
        if self.away:
            raise SinkUnavailable("away", retry_after=timedelta())

    def mark(
        self, at: Position, behind: Mapping[TableId, Position], _: Iterable[TableName], committed: CommitCounts
    ) -> None:
        self._ask()
        self.made.append((at, behind))
        self.committed = committed

    def end(self, gone: Callable[[int], bool]) -> int:
        self._ask()
        self.ended = [epoch for epoch in range(5) if gone(epoch)]
        return len(self.ended)

    def sweep(self, gone: Callable[[int], bool]) -> int:
        self._ask()
        self.gone.append([epoch for epoch in range(5) if gone(epoch)])
        return 0

    def open_letters(self, _: LetterTotals) -> LetterTotals:
        self.asked += 1
        self._ask()
        return self.found

    def observe(self, names: Iterable[TableName]) -> Observation:
        self._ask()
        return Observation(tables=dict.fromkeys(names))

    def apply(self, ddl: DownstreamDdl, _: Observation) -> str:
        self.dropped.append(ddl)
        return ""

    def close(self) -> None: ...

    def look(self, rejected: int = 0) -> LetterTotals | None:
        self.background.seconds += 6
        return self.chores.letters(NONE, rejected)

    def checkpoint(self, seconds: int, behind: Mapping[TableId, Position] | None = None, *, after: float = 1.0) -> None:
        self.background.seconds += after
        self.chores.mark(_at(seconds), behind or {}, tuple, self.reports)

    def begun(self) -> Sink:
        self.chores.sweep(lambda _: False)
        return self


@pytest.fixture
def sink() -> Sink:
    return Sink().begun()


def test_each_new_checkpoint_is_marked_once(sink: Sink) -> None:
    for at in (100, 100, 101, 101):
        sink.checkpoint(at)
    sink.checkpoint(101, {TableId("a"): _at(99)})
    assert sink.made == [(_at(100), {}), (_at(101), {}), (_at(101), {TableId("a"): _at(99)})]


def _report(**counts: int) -> PositionReport:
    committed = {int(epoch[1:]): count for epoch, count in counts.items()}
    return PositionReport(run=1, barrier_rev=1, assignment_rev=1, checkpoint=_at(100), committed=committed)


def test_a_mark_says_on_how_many_commits_it_rests(sink: Sink) -> None:
    """Those of a node count until the term ends, also when its report is gone."""
    sink.reports = [_report(e3=5), _report(e4=1)]
    sink.checkpoint(100)
    assert sink.committed == CommitCounts(counts={3: 5, 4: 1})
    sink.reports = [_report(e4=2)]
    sink.checkpoint(101)
    sink.reports = [_report(e4=1)]
    sink.checkpoint(102)
    assert sink.committed == CommitCounts(counts={3: 5, 4: 2})


def test_nothing_is_marked_before_the_logs_of_gone_nodes_are_ended() -> None:
    """Their commits may have been reported to an earlier owner alone."""
    sink = Sink()
    sink.reports = [_report(e4=2)]
    sink.away = True
    sink.chores.sweep(lambda epoch: epoch < 2)
    sink.away = False
    sink.checkpoint(100)
    assert sink.made == []
    sink.chores.sweep(lambda epoch: epoch < 2)
    sink.checkpoint(101)
    assert (sink.ended, sink.committed) == ([0, 1], CommitCounts(counts={4: 2}, ended=2))


def test_marks_have_a_pause_between_them(sink: Sink) -> None:
    sink.checkpoint(100)
    sink.checkpoint(101, after=0.5)
    assert [at for at, _ in sink.made] == [_at(100)]


def test_a_sink_that_is_away_is_marked_later(sink: Sink) -> None:
    sink.away = True
    sink.checkpoint(100)
    sink.away = False
    sink.checkpoint(101)
    sink.checkpoint(101)
    assert [at for at, _ in sink.made] == [_at(101)]


def test_a_sink_is_swept_at_once_and_every_ten_minutes(sink: Sink) -> None:
    """Who is gone is what etcd says."""
    for _ in range(3):
        sink.chores.sweep(lambda epoch: epoch < 2)
        sink.background.seconds += 1
    sink.background.seconds += 600
    sink.chores.sweep(lambda epoch: epoch < 3)
    assert sink.gone == [[0, 1], [0, 1, 2]]


def test_a_sink_that_is_away_is_swept_later(sink: Sink) -> None:
    sink.away = True
    sink.chores.sweep(lambda _: False)
    sink.away = False
    sink.chores.sweep(lambda _: False)
    assert sink.gone == []
    sink.background.seconds += 600
    sink.chores.sweep(lambda _: False)
    assert sink.gone == [[]]


def test_a_sink_without_marks_that_keeps_nothing_uncommitted_is_left_alone() -> None:
    sink = Sink(marked=False, swept=False)
    sink.checkpoint(100)
    sink.chores.sweep(lambda _: True)
    assert (sink.made, sink.gone) == ([], [])


def test_a_changefeed_without_letters_asks_the_target_once(sink: Sink) -> None:
    assert [sink.look() for _ in range(5)] == [NONE] * 5
    assert sink.asked == 1


def test_a_refusal_is_counted_and_open_letters_are_until_they_are_gone(sink: Sink) -> None:
    sink.look()
    sink.found = THREE
    assert sink.look(rejected=3) == sink.look(rejected=3) == THREE
    sink.found = NONE
    assert [sink.look(rejected=3) for _ in range(3)] == [NONE] * 3
    assert sink.asked == 4


def test_a_target_that_does_not_answer_leaves_the_count_that_was_known(sink: Sink) -> None:
    sink.away = True
    assert sink.look() is None
    sink.away, sink.found = False, THREE
    sink.look()
    sink.away = True
    assert sink.look() == THREE
    sink.away, sink.found = False, NONE
    assert sink.look() == NONE


def test_a_target_that_does_not_answer_keeps_no_changefeed_from_being_removed_for_long(sink: Sink) -> None:
    names = [TableName("shop", "copy")]
    assert sink.chores.dropped([])
    sink.away = True
    assert not sink.chores.dropped(names)
    sink.background.seconds += 29
    assert not sink.chores.dropped(names)
    sink.background.seconds += 2
    assert sink.chores.dropped(names)
    assert sink.dropped == []
    sink.away = False
    assert sink.chores.dropped(names)
    assert len(sink.dropped) == 1


def test_each_drop_has_patience_of_its_own(sink: Sink) -> None:
    """A changefeed that is started anew drops its unfinished copies, and goes on with the same owner."""
    assert sink.chores.dropped([TableName("shop", "copy")])
    sink.background.seconds += 3600
    sink.away = True
    assert not sink.chores.dropped([TableName("shop", "later")])
    sink.background.seconds += 31
    assert sink.chores.dropped([TableName("shop", "later")])
    assert not sink.chores.dropped([TableName("shop", "last")])
