"""`CopyPace`: how fast documents are copied, from the chunks that have ended. Pure.

The rate is that of the last minute in which chunks ended, and changes only when one ends: a report that is written then anyway carries it.
What a node knows ends with it: its successor has a rate once a chunk has ended there. Time in which nothing is copied counts.

    begun at 0, chunks of 64 MB end at 10, 20, 30                   6.4 MB/s
    ... and the next one at 200, after a DDL has held the table     64 MB in 170 s: 0.4 MB/s
    ... and the next ones at 210, 220 ... 260                       6.4 MB/s again
"""

from __future__ import annotations

from dataclasses import dataclass

from changefeed.records.copy import CopyRate
from changefeed.table import TableSize

_SECONDS = 60.0
_MOST = 64
"""Ends of chunks that are remembered. Those of small tables may be hundreds a second."""


@dataclass(frozen=True, slots=True)
class CopyPace:
    ends: tuple[tuple[float, TableSize], ...]
    """What was copied by then: `begun` first, in the order of time."""

    @classmethod
    def begun(cls, at: float) -> CopyPace:
        return cls(((at, TableSize()),))

    def after(self, copied: TableSize, at: float) -> CopyPace:
        """More was copied by then."""
        total = self.ends[-1][1] + copied
        if len(self.ends) > 1 and at - self.ends[-2][0] < _SECONDS / _MOST:
            return CopyPace((*self.ends[:-1], (at, total)))
        within = tuple(end for end in self.ends[:-1] if end[0] >= at - _SECONDS)
        return CopyPace((*within, self.ends[-1], (at, total)))

    @property
    def rate(self) -> CopyRate | None:
        """None until a chunk has ended."""
        (first_at, first), (last_at, last) = self.ends[0], self.ends[-1]
        seconds = last_at - first_at
        if seconds <= 0:
            return None
        return CopyRate(
            documents=round((last.documents - first.documents) / seconds, 1),
            bytes=round((last.bytes - first.bytes) / seconds, 1),
        )
