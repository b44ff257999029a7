"""`Applier`: collects row changes, folds them, hands them to the sink in large batches, and counts the results.

While the sink writes one batch, the next is collected, so that the source, this task and the target work at the same time:

    collects  1   2   3   4            end
    writes        1   2   3   4   rest, settle

Batches begin small and grow unless the sink is slow for one of the tables, so that this is noticed soon: a window that takes too long, or that
one table holds up, is overdue and may end early.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import AbstractContextManager
from dataclasses import dataclass
from math import inf
from operator import attrgetter
from typing import NamedTuple

import structlog

from changefeed.event import RowTally, RowType
from changefeed.position import Position
from changefeed.table import TableId
from coordination import failpoint
from processor.lanes.lanes import LaneJob
from processor.task.copied_ranges import CopiedFilter, CopiedRanges, Overlap
from processor.task.job import JobOutcome
from processor.task.limiter import UNLIMITED, Limiter
from processor.task.rows.folding import fold
from processor.task.rows.gate import place
from sink.row import AskedRows, RowChange, RowWriter, Sole, Write, WriteResult

BATCH_CHANGES = 20_000
BATCH_BYTES = 16 << 20
FIRST_CHANGES = 500
_LEAST_CHANGES, _LEAST_SHARING = 50, 10
_BATCH_SECONDS = 0.25
"""How long the sink should be busy with one batch."""
_CAPPED_CHANGES, _CAPPED_SECONDS = 40_000, 2.0
"""A full capped table costs a target five times as much a row as another one, and what came and went within a batch costs nothing."""
_GROWTH = 4
LONGEST_SECONDS, LONGEST_SETTLED_SECONDS = 3.0, 20.0
HELD_UP_SECONDS = 0.5
"""How long one table may hold up the others of its window."""

_type = attrgetter("type")
_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Batch:
    writes: Sequence[Write]
    applied: Counter[RowType]
    bytes: int
    capped: bool
    """It begins with a full capped table, which is most often alone."""


class _Written(NamedTuple):
    rows: WriteResult
    seconds: float
    capped: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenAlone:
    """What only a task may do that alone writes its tables."""

    sole: Sole | None = None
    """Which tables these are."""
    asked: Sequence[AskedRows] = ()
    """Rows of them that are to be repaired at the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkUse:
    """How a task may use the sink."""

    limiter: Limiter = UNLIMITED
    folds: bool = True
    """The sink needs only the effect of several changes of one row, not each of them."""
    shares: bool = False
    """The task rests after each command, so a batch takes long."""
    settled: bool = False
    """Nobody waits to learn how long, or an early end costs more than the wait."""


class Applier(AbstractContextManager["Applier"]):
    """For one task, which ends only after its last write. Each batch is durable, or its rows wait, before the next is written. Added
    changes count once `finish` has returned.

    The changes that may have been applied before are the first ones of each row, so writing them first keeps the order of every row.
    """

    def __init__(
        self,
        writer: RowWriter,
        job: LaneJob,
        beside: Executor,
        copied: Mapping[TableId, CopiedRanges] | None = None,
        alone: WrittenAlone | None = None,
        use: SinkUse | None = None,
    ) -> None:
        """`beside` writes while changes are added. `copied`: the tables whose initial copy contains some of their changes already."""
        alone, use = alone or WrittenAlone(), use or SinkUse()
        self._job = job
        self._beside = beside
        self._copied = copied or {}
        self._folds = use.folds
        self._run = writer.begin(self._ends_ahead, alone.sole, alone.asked)
        self._replay = _Replay(job)
        self._filters = {table: CopiedFilter(ranges) for table, ranges in self._copied.items()}
        self._selective = self._replay.possible or bool(self._filters)
        self._again: list[RowChange] = []
        self._whole: list[RowChange] = []
        """Of full capped tables, of which a replay is one batch: a row that came in one and went in a later one would roll off another."""
        self._first_time: list[RowChange] = []
        self._limiter = use.limiter
        self._longest, self._held_up = (
            (LONGEST_SETTLED_SECONDS, inf) if use.settled else (LONGEST_SECONDS, HELD_UP_SECONDS)
        )
        self._least = _LEAST_SHARING if use.shares else _LEAST_CHANGES
        self._most = self._least if use.shares else FIRST_CHANGES
        self._room, self._most_bytes = self._allowed()
        """`_room`: how many changes in `_first_time` the batch may contain."""
        self._bytes = 0
        self._writing: Future[_Written] | None = None
        self._begun_at = time.monotonic()
        self.overdue = False
        """The sink is too slow for the whole window: what was added takes long enough."""
        self.outcome = JobOutcome()

    def __exit__(self, *_: object) -> None:
        """A failed task ends only when its last write has ended."""
        if self._writing is not None and (failure := self._writing.exception()) is not None:
            _log.info("batch_under_way_failed_too", error=str(failure))

    def _ends_ahead(self, table: TableId) -> bool:
        """Whether changes of the table after the end of its window may have been applied already, or may be contained in chunks of its copy."""
        window, ranges = self._job.of(table), self._copied.get(table)
        in_copy = window is not None and ranges is not None and window.end.ts.to_int() <= ranges.last
        return in_copy or self._job.ends_ahead(table)

    def add(self, change: RowChange) -> None:
        if self._selective and self._take_special(change):
            return
        self._first_time.append(change)
        _, _, key, document, update, _, _, _ = change
        self._bytes += len(key) + len(document or update or b"")
        if self._bytes >= self._most_bytes or len(self._first_time) >= self._room:
            self._write_beside()

    def _allowed(self) -> tuple[int, int]:
        """Changes and bytes of one batch. What waits for a limit is one batch, and the next one."""
        room = self._limiter.room()
        if room is None:
            return self._most, BATCH_BYTES
        return min(self._most, room.documents), min(BATCH_BYTES, room.bytes)

    def _take_special(self, change: RowChange) -> bool:
        """Handles a change that is replayed or contained in the copy. Returns False for any other change."""
        copied_filter = self._filters.get(change.table.id)
        overlap = copied_filter.of(change) if copied_filter else Overlap.NEW
        capped = change.table.dependence is not None and change.table.dependence.capped
        if overlap is Overlap.NEW and not self._replay.of(change):
            if capped and self._whole:
                self._bring_whole()
            return False
        if capped and overlap is not Overlap.HELD:
            self._whole.append(change)
        elif overlap is not Overlap.HELD:
            self._again.append(change)
            self._room -= 1
            self._bytes += change.size
            if self._bytes >= self._most_bytes or len(self._first_time) >= self._room:
                self._write_beside()
        return True

    def _bring_whole(self) -> None:
        self._again += self._whole
        self._bytes += sum(change.size for change in self._whole)
        self._whole = []

    def end_at(self, at: Position) -> None:
        """The window ends early: there, all changes before it were added, and none after it."""
        self._job = self._job.cut(at)
        self.outcome.ended, self.outcome.silent_until = at, None

    def finish(self) -> None:
        """Writes everything that was added and settles. Nothing may be added after it."""
        self.flush()
        self.outcome.rows.add(self._run.settle())

    def flush(self) -> None:
        """Writes everything that was added."""
        self._bring_whole()
        batch = self._taken()
        self._wait()
        self.outcome.rows.add(self._written(batch).rows)

    def _write_beside(self) -> None:
        batch = self._taken()
        self._wait()
        took = time.monotonic() - self._begun_at
        held_up = (
            took > self._held_up and len(self.outcome.rows.writing) > 1 and self.outcome.rows.busiest(took) is not None
        )
        self.overdue = took > self._longest or held_up
        self._writing = self._beside.submit(self._written, batch)

    def _wait(self) -> None:
        writing, self._writing = self._writing, None
        if writing is not None:
            written = writing.result()
            self._adapt(written)
            self.outcome.rows.add(written.rows)

    def _adapt(self, written: _Written) -> None:
        """Only the batches of one slow table become smaller: with fewer rows of many tables, each command would only have fewer rows."""
        rows, seconds = written.rows, written.seconds
        changes, longest = (_CAPPED_CHANGES, _CAPPED_SECONDS) if written.capped else (BATCH_CHANGES, _BATCH_SECONDS)
        most = min(changes, _GROWTH * self._most)
        if seconds > 0 and (len(rows.writing) == 1 or rows.busiest(seconds) is not None):
            most = min(most, int(rows.tally.applied.total() * longest / seconds))
        self._most = max(self._least, most)

    def _taken(self) -> _Batch:
        again, first_time, size = self._again, self._first_time, self._bytes
        self._again, self._first_time, self._bytes = [], [], 0
        self._room, self._most_bytes = self._allowed()
        applied = Counter(map(_type, again))
        applied.update(map(_type, first_time))
        writes = [
            self._run.prepare(fold(changes, replay=replay) if self._folds else changes, replay=replay)
            for changes, replay in ((again, True), (first_time, False))
            if changes
        ]
        first = first_time[0].table.dependence if first_time else None
        return _Batch(writes=writes, applied=applied, bytes=size, capped=first is not None and first.capped)

    def _written(self, batch: _Batch) -> _Written:
        """Counts events before folding."""
        self._limiter.pay(batch.applied.total(), batch.bytes)
        failpoint.reach("rows_due", *batch.applied)
        begun_at = time.monotonic()
        rows = WriteResult(tally=RowTally(applied=batch.applied, bytes=batch.bytes))
        for write in batch.writes:
            rows.add(write())
        return _Written(rows, time.monotonic() - begun_at, batch.capped)


class _Replay:
    """Which changes may have been applied before. None, once a lane has passed its replay."""

    def __init__(self, job: LaneJob) -> None:
        self._job = job
        self._until: dict[TableId, tuple[int, bytes]] = {}
        latest: Position = max([job.replay_until, *job.own_replay.values()])
        self.possible = latest > job.scan.start

    def of(self, change: RowChange) -> bool:
        table = change.table.id
        until = self._until.get(table)
        if until is None:
            until = self._until[table] = place(self._job.replay_of(table))
        return (change.time, change.token) < until
