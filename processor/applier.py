"""`Applier`: gathers row changes, folds them, and hands them to the sink in large batches; counts what became of them."""

from __future__ import annotations

from collections.abc import Sequence

from changefeed.position import Position
from changefeed.table import TableId
from processor.folding import fold
from processor.gate import place
from processor.job import JobOutcome
from processor.lanes import LaneJob
from sink.row import RowChange, RowWriter, WriteResult

BATCH_CHANGES = 10_000
BATCH_BYTES = 16 << 20


class Applier:
    """For one task. Each batch is durable before the next begins; what was added counts once `finish` has returned.

    Changes that may have been applied before are a beginning of each table's changes, so writing them first keeps
    every table's order.
    """

    def __init__(self, writer: RowWriter, job: LaneJob) -> None:
        self._writer = writer
        self._replay = _Replay(job)
        self._changes: list[RowChange] = []
        self._bytes = 0
        self.outcome = JobOutcome()

    def add(self, change: RowChange) -> None:
        self._changes.append(change)
        self._bytes += change.size
        if len(self._changes) >= BATCH_CHANGES or self._bytes >= BATCH_BYTES:
            self.finish()

    def finish(self) -> None:
        changes, size = self._changes, self._bytes
        self._changes, self._bytes = [], 0
        again = [change for change in changes if self._replay.of(change)] if self._replay.possible else []
        first_time = [change for change in changes if not self._replay.of(change)] if again else changes
        self._write(again, replay=True)
        self._write(first_time, replay=False)
        self.outcome.applied.update(change.type for change in changes)
        self.outcome.bytes += size

    def _write(self, changes: Sequence[RowChange], *, replay: bool) -> None:
        if changes:
            _count(self._writer.write(fold(changes), replay=replay), self.outcome)


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
