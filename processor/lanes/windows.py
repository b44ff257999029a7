"""How wide the next window of a lane is, and into which slices it is cut.

A lane that follows runs windows as long as the barrier has moved since the last one: small by themselves. A lane that
is behind is limited by its `Pace`: the number of seconds of cluster time that one window may span. It is corrected after each
window by what the window turned out to hold, so that a window stays within the bytes and the time that a job should take:

    window    spans   held      took    pace before -> after      (limits: 256 MiB, 20 s)
    1         60 s    4 MiB     1 s     60 s  -> 240 s            as wide as it might be, and light: four times wider, not more
    2         240 s   512 MiB   12 s    240 s -> 120 s            twice the bytes: half the span
    3         120 s   200 MiB   8 s     120 s -> 153 s            towards the limits, bytes being nearer
    4         2 s     1 MiB     0.2 s   153 s -> 153 s            the barrier was near: says nothing about wide windows

Cluster time is cut at whole seconds: a cut never falls inside a transaction, whose events share one cluster time.

A change stream does not end where a window does: it looks for matches until it has a reply full of them. So
- it is cut into slices only where each slice has several replies' worth of matches, as far as the last windows tell: several cursors that each scan to the
  end of the oplog would cost the source as many scans;
- where it found that nothing matches for long behind a window, the next one reaches as far: narrow ones would each scan as much.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise

from changefeed.capture import Capture
from changefeed.cluster_time import ClusterTime
from changefeed.position import Position, Window

_WIDEST_SECONDS = 6 * 3600
_GROWTH = 4.0
_SHRINKAGE = 1 / 16
_LIGHTEST = 1e-6
_LAST_SECOND = 2**32 - 1
_SLICE_BYTES = 32 * 1024 * 1024
"""Two replies: what one reads beyond its end is up to one more."""
_OPLOG_SLICE_BYTES = 2 * 1024 * 1024
"""What a task of its own is worth: a source at rest says something every ten seconds, and that is no wide window."""
_END_OF_TIME = Position(ClusterTime(_LAST_SECOND, 2**32 - 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowLimits:
    bytes: int = 256 * 1024 * 1024
    duration: timedelta = timedelta(seconds=20)
    """How long one window's job should run: until then its lane's checkpoint stands still."""
    slices: int = 4
    slice_seconds: int = 2
    """A slice spans no less: opening a change stream costs more than reading one second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """What a window turned out to hold, and how long its job took."""

    window: Window
    bytes: int
    took: timedelta
    silent_until: Position | None = None
    """Behind the window, nothing is to be found below this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    seconds: int = 60
    density: int | None = None
    """Bytes in a second of cluster time, in the last window; None before the first."""
    silent_until: Position | None = None

    def end_of(self, start: Position, barrier: Position) -> Position:
        """Where a window from `start` ends: at the barrier unless that is too far."""
        widest = Position(ClusterTime(min(start.ts.seconds + self.seconds, _LAST_SECOND), 0))
        if self.silent_until is not None:
            widest = max(widest, self.silent_until)
        return max(start, min(barrier, widest))

    def after(self, finished: Finished, limits: WindowLimits) -> Pace:
        density = finished.bytes // max(1, span_seconds(finished.window))
        return Pace(seconds=self._seconds(finished, limits), density=density, silent_until=finished.silent_until)

    def _seconds(self, finished: Finished, limits: WindowLimits) -> int:
        """A window that was slow because its reader had silence to look through says nothing of wide ones."""
        if finished.silent_until is not None:
            return self.seconds
        heaviness = max(finished.bytes / limits.bytes, finished.took / limits.duration, _LIGHTEST)
        if heaviness < 1 and finished.window.end < self.end_of(finished.window.start, _END_OF_TIME):
            return self.seconds
        span = max(1, span_seconds(finished.window))
        seconds = min(max(span / heaviness, self.seconds * _SHRINKAGE), self.seconds * _GROWTH)
        return min(max(1, int(seconds)), _WIDEST_SECONDS)


def span_seconds(window: Window) -> int:
    return window.end.ts.seconds - window.start.ts.seconds


def slices(window: Window, limits: WindowLimits, *, capture: Capture, density: int | None) -> list[Window]:
    """Contiguous, none empty, together the window; an empty window has none."""
    if window.empty:
        return []
    count = min(limits.slices, span_seconds(window) // limits.slice_seconds)
    if capture is not Capture.OPLOG:
        count = min(count, (density or 0) * span_seconds(window) // _SLICE_BYTES)
    elif density is not None:
        count = min(count, density * span_seconds(window) // _OPLOG_SLICE_BYTES)
    count = max(1, count)
    first, span = window.start.ts.seconds, span_seconds(window)
    inner = [Position(ClusterTime(first + span * number // count, 0)) for number in range(1, count)]
    cuts = [window.start, *(cut for cut in inner if window.start < cut < window.end), window.end]
    return [Window(start, end) for start, end in pairwise(cuts)]
