"""`Applier`: gathers row changes, folds them, and hands them to the sink in large batches; counts what became of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter

from changefeed.position import Position
from changefeed.table import TableId
from processor.copied_ranges import CopiedRanges, Fate, Sieve
from processor.folding import fold
from processor.gate import place
from processor.job import JobOutcome
from processor.lanes import LaneJob
from sink.row import RowChange, RowWriter, WriteResult

BATCH_CHANGES = 1_000
BATCH_BYTES = 16 << 20

_type = attrgetter("type")


class Applier:
    """For one task. Each batch is durable, or waits, before the next begins; what was added counts once `finish` has returned.

    Changes that may have been applied before are a beginning of each row's changes, so writing them first keeps
    every row's order.
    """

    def __init__(self, writer: RowWriter, job: LaneJob, copied: Mapping[TableId, CopiedRanges] | None = None) -> None:
        """`copied` are the tables whose initial copy holds some of their changes already."""
        self._job = job
        self._copied = copied or {}
        self._run = writer.begin(self._ends_ahead)
        self._replay = _Replay(job)
        self._sieves = {table: Sieve(ranges) for table, ranges in self._copied.items()}
        self._selective = self._replay.possible or bool(self._sieves)
        self._again: list[RowChange] = []
        self._first_time: list[RowChange] = []
        self._room = BATCH_CHANGES
        """How many changes that come for the first time the batch may hold."""
        self._bytes = 0
        self.outcome = JobOutcome()

    def _ends_ahead(self, table: TableId) -> bool:
        """Whether changes of the table behind its window may have been applied before; or stand in chunks that took a while to read."""
        window, ranges = self._job.of(table), self._copied.get(table)
        in_copy = window is not None and ranges is not None and window.end.ts.to_int() <= ranges.last
        return in_copy or self._job.ends_ahead(table)

    def add(self, change: RowChange) -> None:
        if self._selective and self._sorted_out(change):
            return
        self._first_time.append(change)
        self._bytes += len(change.key) + len(change.document or change.update or b"")
        if self._bytes >= BATCH_BYTES or len(self._first_time) >= self._room:
            self.flush()

    def _sorted_out(self, change: RowChange) -> bool:
        """Whether it is no plain change, and has been seen to."""
        sieve = self._sieves.get(change.table.id)
        fate = sieve.fate(change.key, change.time) if sieve else Fate.NEW
        if fate is Fate.NEW and not self._replay.of(change):
            return False
        if fate is not Fate.HELD:
            self._again.append(change)
            self._room -= 1
            self._bytes += change.size
            if self._bytes >= BATCH_BYTES or len(self._first_time) >= self._room:
                self.flush()
        return True

    def finish(self) -> None:
        """Nothing is added any more."""
        self.flush()
        _count(self._run.settle(), self.outcome)

    def flush(self) -> None:
        again, first_time, size = self._again, self._first_time, self._bytes
        self._again, self._first_time, self._room, self._bytes = [], [], BATCH_CHANGES, 0
        self._write(again, replay=True)
        self._write(first_time, replay=False)
        for changes in (again, first_time):
            self.outcome.applied.update(map(_type, changes))
        self.outcome.bytes += size

    def _write(self, changes: Sequence[RowChange], *, replay: bool) -> None:
        if changes:
            _count(self._run.write(fold(changes), replay=replay), self.outcome)


def _count(result: WriteResult, outcome: JobOutcome) -> None:
    """Events are counted as they came, not as they were folded."""
    deviations = [*result.divergences, *result.rejected]
    outcome.add(
        JobOutcome(
            duplicates=result.duplicates,
            skipped=result.skipped,
            retries=result.retries,
            divergences=len(result.divergences),
            rejected=len(result.rejected),
            unsettled=result.unsettled,
            ahead=result.ahead,
            samples=[f"{deviation.change}: {deviation.reason}" for deviation in deviations],
        )
    )


class _Replay:
    """Which changes may have been applied before. In a lane that has long been running, none."""

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
