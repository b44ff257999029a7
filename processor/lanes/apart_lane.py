"""`SlowLane`, `SuspectLane`: tables that are replicated apart from the others, by jobs of their own with a pace of their own. Pure.

    SlowLane        one table that cannot keep up                            until it has caught up and keeps up
    SuspectLane     tables of which one may be the cause of a failure        until one of their jobs succeeds; while these fail, it is halved

A lane whose jobs fail for a reason that may pass has pauses of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Self

from changefeed.lifecycle import ErrorReport
from changefeed.table import TableId
from processor.lanes.sink_share import STILL_SECONDS, SinkShare
from processor.lanes.windows import Pace


@dataclass(frozen=True, slots=True, kw_only=True)
class ApartLane:
    """All moments are monotonic seconds."""

    tables: frozenset[TableId]
    pace: Pace
    failures: int = 0
    """In a row, for reasons that may pass."""
    error: ErrorReport | None = None
    """Of the last one."""
    begins_at: float = 0.0
    """It begins no window before, since it has failed or stands still."""

    @property
    def alone(self) -> TableId | None:
        """Its table, if it has only one."""
        return next(iter(self.tables)) if len(self.tables) == 1 else None

    def afresh(self) -> Self:
        return replace(self, failures=0, begins_at=0.0, error=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowLane(ApartLane):
    sink: SinkShare = field(default_factory=SinkShare)
    moved_at: float = 0.0
    """When its last window began or ended."""

    def after_window(self, pace: Pace, now: float) -> Self:
        sink = self.sink.after_window()
        return replace(self.afresh(), pace=pace, sink=sink, begins_at=now + STILL_SECONDS if sink.stands_still else 0.0)

    def rested(self, now: float) -> Self:
        """One that has stood still long enough may begin, so nothing is due because of it any more."""
        return replace(self, begins_at=0.0) if self.error is None and 0 < self.begins_at <= now else self


@dataclass(frozen=True, slots=True, kw_only=True)
class SuspectLane(ApartLane):
    since: float = 0.0
    """When it was put apart."""

    def halves(self) -> tuple[Self, Self]:
        tables = sorted(self.tables)
        middle = len(tables) // 2
        return replace(self, tables=frozenset(tables[:middle])), replace(self, tables=frozenset(tables[middle:]))
