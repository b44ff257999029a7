from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import bson
import pytest

from changefeed.cluster_time import ClusterTime
from changefeed.config.written_values import RateLimit
from changefeed.errors import SourceUnavailable
from changefeed.event import RowTally, RowType
from changefeed.position import Position, Window
from changefeed.table import TableId, TableName
from processor.lanes.lanes import LaneJob
from processor.task.limiter import FollowedLimit, Limiter
from processor.task.rows import applier
from processor.task.rows.applier import Applier, SinkUse
from sink.dependence import Dependence
from sink.row import AskedRows, RowChange, Sole, TargetTable, Unfinished, Write, WriteResult
from tests.unit.processor.task.rows.beside import BESIDE
from tests.until import PATIENCE_SECONDS

A, B = TableId("aa" * 16), TableId("bb" * 16)


def at(seconds: int, token: str = "") -> Position:
    return Position(ClusterTime(seconds, 0), token)


class RecordingWriter:
    def __init__(self) -> None:
        self.written: list[tuple[list[tuple[str, int]], bool]] = []

    def begin(
        self, unfinished: Unfinished, sole: Sole | None = None, asked: Sequence[AskedRows] = ()
    ) -> RecordingWriter:
        self.unfinished = [table for table in (A, B) if unfinished(table)]
        return self

    def prepare(self, changes: Sequence[RowChange], *, replay: bool) -> Write:
        return partial(self._write, changes, replay=replay)

    def _write(self, changes: Sequence[RowChange], *, replay: bool) -> WriteResult:
        rows = [(change.table.id[0], bson.decode(change.key)["_id"]) for change in changes]
        self.written.append((rows, replay))
        return WriteResult(tally=RowTally(skipped=int(replay)))

    def settle(self) -> WriteResult:
        return WriteResult(unsettled=set(self.unfinished))

    def close(self) -> None:
        pass


def change(table: TableId, seconds: int, id: int, kind: RowType = RowType.INSERT) -> RowChange:
    target = TargetTable(id=table, source=TableName("s", table[0]), name=TableName("t", table[0]))
    document = None if kind is RowType.DELETE else bson.encode({"_id": id})
    return RowChange(target, kind, bson.encode({"_id": id}), document, None, seconds << 32, b"82")


def job(**replay: Any) -> LaneJob:
    return LaneJob(
        number=1, window=Window(at(100), at(200)), tables=frozenset({A, B}), **{"replay_until": at(100), **replay}
    )


def test_what_may_have_been_applied_is_written_first_and_as_a_replay() -> None:
    writer = RecordingWriter()
    applying = Applier(writer, job(replay_until=at(150), own_replay={B: at(120)}), BESIDE)
    for table, seconds, id in ((A, 110, 1), (B, 119, 2), (B, 120, 3), (A, 149, 4), (A, 150, 5)):
        applying.add(change(table, seconds, id))
    applying.finish()
    assert writer.written == [([("a", 1), ("b", 2), ("a", 4)], True), ([("b", 3), ("a", 5)], False)]
    assert applying.outcome.rows.tally.skipped == 1


def test_without_replay_everything_goes_in_one_write() -> None:
    writer = RecordingWriter()
    applying = Applier(writer, job(), BESIDE)
    applying.add(change(A, 110, 1))
    applying.add(change(B, 111, 2))
    applying.finish()
    assert writer.written == [([("a", 1), ("b", 2)], False)]


def test_events_are_counted_as_they_came_though_they_were_folded() -> None:
    writer = RecordingWriter()
    applying = Applier(writer, job(), BESIDE)
    applying.add(change(A, 110, 1))
    applying.add(change(A, 111, 1, RowType.DELETE))
    applying.finish()
    assert writer.written == [([("a", 1)], False)]
    assert applying.outcome.rows.tally.applied == {RowType.INSERT: 1, RowType.DELETE: 1}


def test_a_batch_is_written_when_it_is_large() -> None:
    writer = RecordingWriter()
    applying = Applier(writer, job(), BESIDE)
    for id in range(60_001):
        applying.add(change(A, 110, id))
    applying.finish()
    sizes = [len(rows) for rows, _ in writer.written]
    assert (sizes[0], max(sizes), sum(sizes)) == (applier.FIRST_CHANGES, applier.BATCH_CHANGES, 60_001)


def test_batches_of_a_full_capped_table_become_large_so_that_what_came_and_went_is_folded() -> None:
    writer = RecordingWriter()
    applying = Applier(writer, job(), BESIDE)
    capped = TargetTable(
        id=A, source=TableName("s", "a"), name=TableName("t", "a"), ordered=True, dependence=Dependence(capped=True)
    )
    for id in range(100_000):
        applying.add(change(A, 110, id)._replace(table=capped))
    applying.finish()
    assert max(len(rows) for rows, _ in writer.written) > applier.BATCH_CHANGES


def test_a_full_capped_table_is_replayed_in_one_batch_however_large() -> None:
    """A row that came in one batch and went in a later one would roll off another in between."""
    writer = RecordingWriter()
    applying = Applier(writer, job(replay_until=at(150)), BESIDE)
    capped = TargetTable(
        id=A, source=TableName("s", "a"), name=TableName("t", "a"), ordered=True, dependence=Dependence(capped=True)
    )
    for id in range(20_000):
        applying.add(change(A, 110, id)._replace(table=capped))
        applying.add(change(B, 110, id))
    applying.add(change(A, 120, 0, RowType.DELETE)._replace(table=capped))
    applying.add(change(A, 150, 1, RowType.DELETE)._replace(table=capped))
    applying.finish()
    replayed = [[id for table, id in rows if table == "a"] for rows, replay in writer.written if replay]
    assert [len(rows) for rows in replayed if rows] == [20_000]
    assert writer.written[-1] == ([("a", 1)], False)


class SlowWriter(RecordingWriter):
    """Its first write waits until the test releases it."""

    def __init__(self) -> None:
        super().__init__()
        self.let_go = threading.Event()

    def _write(self, changes: Sequence[RowChange], *, replay: bool) -> WriteResult:
        assert self.let_go.wait(PATIENCE_SECONDS)
        return super()._write(changes, replay=replay)


def test_the_next_batch_is_gathered_while_one_is_written() -> None:
    writer = SlowWriter()
    with Applier(writer, job(), BESIDE) as applying:
        for id in range(2 * applier.FIRST_CHANGES - 1):
            applying.add(change(A, 110, id))
        assert writer.written == []
        writer.let_go.set()
        applying.finish()
    ids = [id for rows, _ in writer.written for _, id in rows]
    assert ids == list(range(2 * applier.FIRST_CHANGES - 1))


def test_a_task_that_fails_has_written_the_batch_under_way() -> None:
    writer = SlowWriter()

    def fail() -> None:
        with Applier(writer, job(), BESIDE) as applying:
            for id in range(applier.FIRST_CHANGES):
                applying.add(change(A, 110, id))
            threading.Timer(0.2, writer.let_go.set).start()
            raise SourceUnavailable("gone")

    with pytest.raises(SourceUnavailable):
        fail()
    assert len(writer.written) == 1


def test_nothing_is_written_when_there_is_nothing() -> None:
    writer = RecordingWriter()
    Applier(writer, job(), BESIDE).finish()
    assert writer.written == []


def test_rows_of_a_table_that_is_replayed_beyond_its_window_may_stay_unsettled() -> None:
    applying = Applier(RecordingWriter(), job(replay_until=at(200), own_replay={B: at(201)}), BESIDE)
    applying.finish()
    assert applying.outcome.rows.unsettled == {B}


class TakesItsTime(RecordingWriter):
    """Each change of A takes a virtual millisecond, each change of B nothing."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.now = 0.0
        # the applier reads the clock itself, as a task does; the module's own name for it is replaced, not the clock of the test
        monkeypatch.setattr("processor.task.rows.applier.time", SimpleNamespace(monotonic=lambda: self.now))

    def _write(self, changes: Sequence[RowChange], *, replay: bool) -> WriteResult:
        result = super()._write(changes, replay=replay)
        for table, seconds in ((A, 0.001), (B, 0.0)):
            if count := sum(change.table.id == table for change in changes):
                self.now += count * seconds
                result.took(table, count * seconds)
        return result


@pytest.mark.parametrize(
    ("share", "settled", "overdue_after"),
    [(1, False, 3.0), (1, True, 20.0), (2, False, 0.5), (2, True, 20.0)],
    ids=["alone", "settled", "holds up another", "one of a divided window"],
)
def test_a_window_is_overdue_when_it_takes_too_long_or_one_table_holds_up_the_others(
    monkeypatch: pytest.MonkeyPatch, share: int, settled: bool, overdue_after: float
) -> None:
    writer = TakesItsTime(monkeypatch)
    with Applier(writer, job(), BESIDE, use=SinkUse(settled=settled)) as applying:
        for id in range(100_000):
            applying.add(change(B if id % share else A, 110, id))
            if applying.overdue:
                break
        applying.finish()
    assert overdue_after < writer.now < overdue_after + 1.0
    assert max(len(rows) for rows, _ in writer.written[3:]) <= 250 * share, "a quarter of a second"


def test_a_window_that_ended_early_may_have_a_target_that_is_ahead_of_its_end() -> None:
    class Asking(RecordingWriter):
        def begin(
            self, unfinished: Unfinished, sole: Sole | None = None, asked: Sequence[AskedRows] = ()
        ) -> RecordingWriter:
            self.ends_ahead = unfinished
            return super().begin(unfinished, sole, asked)

        def settle(self) -> WriteResult:
            return WriteResult(unsettled={table for table in (A, B) if self.ends_ahead(table)})

    applying = Applier(Asking(), job(replay_until=at(150), own_replay={B: at(120)}), BESIDE)
    assert applying.outcome.rows.unsettled == set()
    applying.add(change(A, 110, 1))
    applying.end_at(at(130))
    applying.finish()
    assert (applying.outcome.ended, applying.outcome.rows.unsettled) == (at(130), {A})


def test_a_limit_keeps_batches_at_a_second_and_each_is_paid_for_before_it_is_written() -> None:
    writer, clock = RecordingWriter(), [50.0]
    begun: list[float] = []

    class Bucket:
        def take(self, cost_seconds: float, share: float, told_at: float) -> float:
            begun.append(cost_seconds)
            return 0.0

    limit = RateLimit(documents=3)
    limiter = Limiter(FollowedLimit(limit, lambda: limit), 1.0, Bucket, permit=lambda: None, monotonic=lambda: clock[0])
    applying = Applier(writer, job(), BESIDE, use=SinkUse(limiter=limiter))
    for id in range(7):
        applying.add(change(A, 110 + id, id))
    applying.finish()
    assert [len(rows) for rows, _ in writer.written] == [3, 3, 1]
    assert begun == [1.0, 1.0, 1 / 3]
