"""`Stride`, `BatchSize`: how much the next read asks for, learned from how long the last one took. Pure.

A read of the oplog whose filter matches few entries has a stride (`Stride`). It returns nothing until it ends. So it is kept short: its caller must be able to stop, and to report progress. The cost of
scanning one second of cluster time is not known in advance, and varies by a factor of 100,000.

    stride    took     next
    10 s      0.1 s    20 s
    20 s      3 s      10 s
    10 s      10 s, ended by the server    1 s, from the same place

A reader of a change stream requests a number of events (`BatchSize`). The server answers only when it has found that many, or at the end of its oplog. If few entries match, a reader that requests many gets no
answer for minutes, and has no place to stop at. If all match, a reader that requests few pays for each reply. The time of the replies
shows which is the case:

    requested   answered after      then
    16384       0.2 s               the same
    16384       3 s, no answer      killed, and read in steps, first of one event
    1           0.5 s               1: a heartbeat, a place to stop at
    1           0.01 s              2, 4, ... up to 16384
    2           15 s, no answer     killed, and read in one go to the end: there are no heartbeats here
"""

from __future__ import annotations

from dataclasses import dataclass

from changefeed.cluster_time import ClusterTime

_SHORT, _LONG = 0.5, 2.0
_WIDEST_SECONDS = 6 * 3600
_LAST_SECOND = 2**32 - 1


@dataclass(frozen=True, slots=True)
class Stride:
    seconds: int = 10

    def end_of(self, start_ts: ClusterTime, end_ts: ClusterTime) -> ClusterTime:
        return min(end_ts, ClusterTime(min(start_ts.seconds + self.seconds, _LAST_SECOND), 0))

    def after(self, took_seconds: float) -> Stride:
        if took_seconds < _SHORT:
            return Stride(min(2 * self.seconds, _WIDEST_SECONDS))
        return Stride(max(1, self.seconds // 2)) if took_seconds > _LONG else self

    def given_up(self) -> Stride:
        return Stride(max(1, self.seconds // 8))


_MOST = 1 << 14
_QUICK_SECONDS = 0.25
_SLOW_SECONDS = 1.0
_PATIENCE_SECONDS = 3.0
_STEP_SECONDS = 15.0


class BatchSize:
    """For one reader, which keeps it from stream to stream."""

    def __init__(self) -> None:
        self.events = _MOST
        self._in_one_go = False

    @property
    def in_steps(self) -> bool:
        return self.events < _MOST

    def opened(self) -> None:
        """Another stream, which may find heartbeats again."""
        self._in_one_go = False

    def answered(self, after_seconds: float) -> None:
        """After an answer with events. An answer without events only says that the oplog has ended."""
        if after_seconds < _QUICK_SECONDS:
            self.events = min(2 * self.events, _MOST)
        elif after_seconds > _SLOW_SECONDS and self.in_steps:
            self.events = max(self.events // 4, 1)

    def too_slow(self, waited_seconds: float) -> bool:
        """Whether to change the way of reading. True at most twice for a stream: a read in one go is awaited as long as the server works on it."""
        if self._in_one_go or waited_seconds < (_STEP_SECONDS if self.in_steps else _PATIENCE_SECONDS):
            return False
        self._in_one_go, self.events = (True, _MOST) if self.in_steps else (False, 1)
        return True
