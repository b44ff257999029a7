"""`Stride`: how much of the oplog is looked through by one read that shows little of it. Pure.

Such a read is silent until it is done, so it is kept short: whoever waits for it must be able to stop, and to say how far it is. What a second of cluster
time costs to look through is not known before, and differs by a hundred thousand.

    stride    took     next
    60 s      0.1 s    120 s
    120 s     3 s      60 s
    60 s      10 s, given up by the server    7 s, from the same place
"""

from __future__ import annotations

from dataclasses import dataclass

from changefeed.cluster_time import ClusterTime

_SHORT, _LONG = 0.5, 2.0
_WIDEST_SECONDS = 6 * 3600
_LAST_SECOND = 2**32 - 1


@dataclass(frozen=True, slots=True)
class Stride:
    seconds: int = 60

    def end_of(self, start_ts: ClusterTime, end_ts: ClusterTime) -> ClusterTime:
        return min(end_ts, ClusterTime(min(start_ts.seconds + self.seconds, _LAST_SECOND), 0))

    def after(self, took_seconds: float) -> Stride:
        if took_seconds < _SHORT:
            return Stride(min(2 * self.seconds, _WIDEST_SECONDS))
        return Stride(max(1, self.seconds // 2)) if took_seconds > _LONG else self

    def given_up(self) -> Stride:
        return Stride(max(1, self.seconds // 8))
