"""`Pace`: how wide the next window of a lane is; `slices`: how a window is cut.

A lane that follows runs a window for each move of the barrier, and these windows are small. A lane that is behind is limited by its
`Pace`: the number of seconds of cluster time that one window may span. After each window the pace is corrected by the bytes, the events and
the duration of that window, so that windows stay within the limits of a job:

    window    spans   held      took    pace before -> after      (limits: 256 MiB, 20 s)
    1         60 s    4 MiB     1 s     60 s  -> 240 s            full width and light: four times wider, not more
    2         240 s   512 MiB   12 s    240 s -> 120 s            twice the bytes: half the span
    3         120 s   200 MiB   8 s     120 s -> 153 s            towards the limits; bytes are the nearer limit
    4         2 s     1 MiB     0.2 s   153 s -> 153 s            ended early at the barrier: says nothing about wide windows

Cuts are at whole seconds, so that none falls inside a transaction, whose events share one cluster time.

A change stream does not stop at the end of a window: it searches for matches until a reply is full. So
- its window is cut into slices only if each slice has several replies of matches, judged by the lane's last window: each cursor scans to
  the end of the oplog, so several cursors would cost the source several scans;
- when a stream has found no match for a long range after a window, the next window covers that range: narrow windows would each scan it.

A pace is a forecast. A window that holds more than the limits allow, or takes too long, ends early (`processor/task/rows/gate.py`). Each slice may
hold as much as a window. One that is full ends the window, and what later slices have read is dropped: the next slices are as long as this one was.

A wide window that has failed is narrower when it is tried again: it may have been too much, and what fails is found sooner.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import pairwise

from changefeed.capture import Capture
from changefeed.cluster_time import ClusterTime
from changefeed.position import Position, Window

_GROWTH = 4.0
_SHRINKAGE = 1 / 16
_LIGHTEST = 1e-6
_SHORT_SECONDS = 60
_LAST_SECOND = 2**32 - 1
_SLICE_BYTES = 32 * 1024 * 1024
"""Two replies. A slice reads up to one reply beyond its end."""
_OPLOG_SLICE_BYTES = 2 * 1024 * 1024
"""The least that is worth a task of its own. An idle source still writes a no-op every ten seconds, which makes no wide window."""
_END_OF_TIME = Position(ClusterTime(_LAST_SECOND, 2**32 - 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowLimits:
    bytes: int = 256 * 1024 * 1024
    events: int = 500_000
    seconds: int = 6 * 3600
    """Of cluster time."""
    duration: timedelta = timedelta(seconds=20)
    """How long the job of one window should run. The lane's checkpoint does not move until the job ends."""
    slices: int = 4
    slice_seconds: int = 2
    """The least span of a slice: opening a change stream costs more than reading one second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """What a window contained, and how long its job took. `asked`: what it was to contain, in so many slices."""

    window: Window
    asked: Window
    slices: int = 1
    bytes: int
    took: timedelta
    events: int = 0
    silent_until: Position | None = None
    """There is no match between the window's end and this position."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    seconds: int = 60
    density: int | None = None
    """Bytes per second of cluster time in the last window. None before the first window."""
    silent_until: Position | None = None

    def end_of(self, start: Position, barrier: Position) -> Position:
        """Where a window from `start` ends: at the barrier, unless that is too far."""
        widest = Position(ClusterTime(min(start.ts.seconds + self.seconds, _LAST_SECOND), 0))
        if self.silent_until is not None:
            widest = max(widest, self.silent_until)
        return max(start, min(barrier, widest))

    def after(self, finished: Finished, limits: WindowLimits) -> Pace:
        density = finished.bytes // max(1, span_seconds(finished.window))
        return Pace(seconds=self._seconds(finished, limits), density=density, silent_until=finished.silent_until)

    def after_failure(self, window: Window) -> Pace:
        """A short window is tried again as it is: without its last rows it would succeed, and seem to be progress."""
        narrower = max(_SHORT_SECONDS, span_seconds(window) // 4)
        return replace(self, seconds=min(self.seconds, narrower), silent_until=None)

    def _seconds(self, finished: Finished, limits: WindowLimits) -> int:
        """A window with `silent_until` leaves the pace unchanged: its time went into scanning a range without matches."""
        if finished.silent_until is not None:
            return self.seconds
        if finished.slices > 1 and finished.window.end < finished.asked.end:
            of_a_slice = max(1, span_seconds(finished.asked) // finished.slices)
            return min(self.seconds, finished.slices * max(1, span_seconds(finished.window) % of_a_slice))
        fullness = max(finished.bytes / limits.bytes, finished.events / limits.events)
        heaviness = max(fullness, finished.took / limits.duration, _LIGHTEST)
        if heaviness < 1 and finished.window.end < self.end_of(finished.window.start, _END_OF_TIME):
            return self.seconds
        span = max(1, span_seconds(finished.window))
        seconds = min(max(span / heaviness, self.seconds * _SHRINKAGE), self.seconds * _GROWTH)
        return min(max(1, int(seconds)), limits.seconds)


def span_seconds(window: Window) -> int:
    return window.end.ts.seconds - window.start.ts.seconds


def slices(window: Window, limits: WindowLimits, *, capture: Capture, density: int | None) -> list[Window]:
    """Contiguous non-empty windows that together make up the window. An empty window has none."""
    if window.empty:
        return []
    count = min(limits.slices, span_seconds(window) // limits.slice_seconds)
    if capture is Capture.CHANGE_STREAM:
        count = min(count, (density or 0) * span_seconds(window) // _SLICE_BYTES)
    elif density is not None:
        count = min(count, density * span_seconds(window) // _OPLOG_SLICE_BYTES)
    count = max(1, count)
    first, span = window.start.ts.seconds, span_seconds(window)
    inner = [Position(ClusterTime(first + span * number // count, 0)) for number in range(1, count)]
    cuts = [window.start, *(cut for cut in inner if window.start < cut < window.end), window.end]
    return [Window(start, end) for start, end in pairwise(cuts)]
