"""What a Spark job is given for one window, and what it answers: small values that are pickled. Pure.

What seldom changes stands in the job's context (`job_context.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta

from changefeed.cluster_time import ClusterTime
from changefeed.event import RowType
from changefeed.lifecycle import ErrorReport
from changefeed.position import Position
from changefeed.table import TableId, TableName
from processor.lanes.lanes import LaneJob
from processor.task.copied_ranges import CopiedRanges

_MOST_SAMPLES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """The tables, and the source's names, of DDLs that are not done: events behind those may be nobody's to explain yet."""

    tables: frozenset[TableId] = frozenset()
    names: frozenset[TableName] = frozenset()
    patterns_since: Position | None = None
    """Where the filter got its present patterns: a table that nobody knew before was not wanted then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """One job of one lane. The tables of the default lane stand in the context, not here."""

    attempt: str
    """Where in etcd its tasks look whether they are still wanted."""
    job: LaneJob
    default: bool
    held: Held = field(default_factory=Held)
    copied: Mapping[TableId, CopiedRanges] = field(default_factory=dict)
    """What the initial copies of tables still in copy hold already."""
    density: int | None = None
    """Bytes in a second of cluster time, as the lane's last window had them."""

    @classmethod
    def of(
        cls,
        attempt: str,
        job: LaneJob,
        held: Held,
        copied: Mapping[TableId, CopiedRanges],
        *,
        density: int | None = None,
    ) -> JobSpec:
        return cls(
            attempt=attempt,
            job=replace(job, tables=frozenset()),
            default=bool(job.tables),
            held=held,
            copied=copied,
            density=density,
        )

    def whole(self, tables: frozenset[TableId]) -> LaneJob:
        """With the context's tables, if it is the default lane's."""
        return replace(self.job, tables=tables) if self.default else self.job


@dataclass(slots=True, kw_only=True)
class JobOutcome:
    """What became of a window, or of one task's part of it. With an `error` any part of it may have been applied."""

    applied: Counter[RowType] = field(default_factory=Counter)
    bytes: int = 0
    duplicates: int = 0
    skipped: int = 0
    """Replayed changes that no longer fitted."""
    retries: int = 0
    divergences: int = 0
    rejected: int = 0
    samples: list[str] = field(default_factory=list)
    """Some of the divergences and rejections, in words."""
    unsettled: set[TableId] = field(default_factory=set)
    """Tables of which something waits for what the target is ahead with: they have to begin again where they began."""
    ahead: dict[TableId, ClusterTime] = field(default_factory=dict)
    """Tables with rows that were read from the source, and the newest time that these may be of."""
    error: ErrorReport | None = None
    took: timedelta = timedelta()
    silent_until: Position | None = None
    """Behind the window, the source has nothing to show below this. Said of a window that is read in one piece."""

    def add(self, other: JobOutcome) -> None:
        self.applied.update(other.applied)
        self.bytes += other.bytes
        self.duplicates += other.duplicates
        self.skipped += other.skipped
        self.retries += other.retries
        self.divergences += other.divergences
        self.rejected += other.rejected
        self.samples = (self.samples + other.samples)[:_MOST_SAMPLES]
        self.unsettled = self.unsettled | other.unsettled
        for table, time in other.ahead.items():
            self.ahead[table] = max(time, self.ahead.get(table, time))
        self.error = _worse(self.error, other.error)


def _worse(one: ErrorReport | None, other: ErrorReport | None) -> ErrorReport | None:
    """What waiting cannot mend says more than what it can."""
    if one is None or other is None:
        return one or other
    return other if one.retryable and not other.retryable else one
