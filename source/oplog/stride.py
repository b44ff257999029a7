"""`Stride`: the length of one read of the oplog whose filter matches few entries. Pure.

Such a read returns nothing until it ends. So it is kept short: its caller must be able to stop, and to report progress. The cost of
scanning one second of cluster time is not known in advance, and varies by a factor of 100,000.

    stride    took     next
    10 s      0.1 s    20 s
    20 s      3 s      10 s
    10 s      10 s, ended by the server    1 s, from the same place
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
