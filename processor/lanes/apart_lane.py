"""`SlowLane`, `SuspectLane`: tables that are replicated apart from the others, by jobs of their own with a pace of their own. Pure.

    SlowLane        one table that cannot keep up                            until it has caught up and keeps up
    SuspectLane     tables of which one may be the cause of a failure        until one of their jobs succeeds; while these fail, it is halved

A lane whose jobs fail for a reason that may pass has pauses of its own.

**The share of a slow lane** (`SinkShare`): for which part of the time it may keep the sink busy, beside tables that follow. It has always more to
write, so all that other tables write waits behind it: for the target's cores, its disk and its majority. How much they wait shows in small
writes, which cost the target next to nothing: in those of the default lane while the slow lane writes, compared with those while it stands
still. After every few windows it stands still for a moment, for this comparison alone. What else slows the target down slows both.

    a small write waits     alone 2 ms, beside 2.1 ms     no harm: a larger share
                            alone 2 ms, beside 2.3 ms     as it is
                            alone 2 ms, beside 6 ms       a smaller share
                            nobody else writes            twice the share

A share is kept by resting after each command, so that a small write meets a short command at most.

Between windows the others wait for the cores: a job begins, reads and ends. So windows are short only while there is something to learn. A lane that has
had the least for a few windows is *settled*: its windows are long, with a comparison after each.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Self

from changefeed.lifecycle import ErrorReport
from changefeed.table import TableId
from processor.lanes.windows import Pace

FIRST, _LEAST = 0.1, 0.03
"""The table must get on, whatever the others have to wait."""
_HARMLESS, _HARMFUL = 1.1, 1.2
_GROWTH, _SHRINKAGE, _WITHOUT_OTHERS = 1.1, 0.6, 2.0
_WEIGHT = 0.5
_LEAST_WAITS = 3
"""Fewer waits say nothing."""
_SETTLED_AFTER = 3
"""Windows."""
STILL_EVERY = 8
"""Windows."""
STILL_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """Small writes: how many, and how long they waited in all."""

    count: int = 0
    seconds: float = 0.0

    def plus(self, count: int, seconds: float) -> Waits:
        return Waits(count=self.count + count, seconds=self.seconds + seconds)

    @property
    def mean(self) -> float:
        return self.seconds / self.count


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkShare:
    share: float = FIRST
    windows: int = 0
    at_least: int = 0
    """After how many windows in a row the comparison has left it the least."""
    alone: float | None = None
    """Seconds that a small write of other tables waits while the lane stands still."""
    still: Waits = field(default_factory=Waits)
    """Those since the lane has stood still."""
    beside: Waits = field(default_factory=Waits)
    """Those during the lane's last window."""

    def seen(self, count: int, seconds: float, *, beside: bool) -> SinkShare:
        """Small writes of other tables, while the lane wrote all the time or stood still all the time."""
        if beside:
            return replace(self, beside=self.beside.plus(count, seconds))
        return replace(self, still=self.still.plus(count, seconds))

    def after_window(self) -> SinkShare:
        """The share of the next window."""
        alone = self._alone()
        after = replace(self, windows=self.windows + 1, alone=alone, still=Waits(), beside=Waits())
        if not self.beside.count:
            return replace(after, share=min(1.0, self.share * _WITHOUT_OTHERS), at_least=0)
        if alone is None or self.beside.count < _LEAST_WAITS:
            return after
        share = self._compared(self.beside.mean / alone)
        return replace(after, share=share, at_least=self.at_least + 1 if share == self.share == _LEAST else 0)

    def _compared(self, times: float) -> float:
        if times < _HARMLESS:
            return min(1.0, self.share * _GROWTH)
        return max(_LEAST, self.share * _SHRINKAGE) if times > _HARMFUL else self.share

    @property
    def settled(self) -> bool:
        return self.at_least >= _SETTLED_AFTER

    @property
    def stands_still(self) -> bool:
        """Whether the lane stands still before its next window: also after its first, so that the share is learned from then on."""
        return self.windows % STILL_EVERY == 1 or self.settled

    def _alone(self) -> float | None:
        if self.still.count < _LEAST_WAITS or self.still.seconds <= 0:
            return self.alone
        present = self.still.mean
        return present if self.alone is None else self.alone + _WEIGHT * (present - self.alone)


def rest_after(busy_seconds: float, share: float, longest: float = 0.25) -> float:
    """How long to rest after a command that took so long."""
    return min(longest, busy_seconds * (1.0 - share) / share)


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
