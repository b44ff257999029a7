"""`Rate`: how fast tasks may write. `TokenBucket`: when the next write may begin. `LimitShares`: a node's part of the rate. Pure.

A write begins when everything before it is paid for, and is paid for afterwards: `paid_until` is the moment at which the rate allows what was
written by then. An example, 10 MB a second, at most a quarter of a second saved:

    at 0.0    1 MB    begins at once, paid until 0.1
    at 0.05   2 MB    waits 0.05 s, paid until 0.3
    at 5.0    4 MB    idle in between: paid until 5.15, a quarter of a second before the rest

So in any span no more is written than the rate allows, what was saved, and one write for each task that was waiting. A write is a small part of a
second (`Rate.part`), except for a document that is larger than that.

A node has an equal part among the nodes that have something to write now:


    n1 copies, n2 has nothing left to copy       n1 the whole copy limit
    n1 and n2 copy                               each a half
    n2 begins a run and has not reported yet     each a half: it may be about to copy

Who copies, and where rows flow, is in the nodes' reports. A node that begins has its share at once, and the others take notice with its next
report: for that moment the limit may be exceeded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from changefeed.records.node import NodeId, PositionReport

SAVED_SECONDS = 0.25
_LONGEST_DEBT = 3600.0
"""No write costs more. A moment that is further away was stored under another clock."""
_MOST = 2**62


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    documents: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """Each second. None: not limited in that."""

    documents: float | None = None
    bytes: float | None = None

    def seconds(self, written: Amount) -> float:
        """What a write costs."""
        by_documents = written.documents / self.documents if self.documents else 0.0
        by_bytes = written.bytes / self.bytes if self.bytes else 0.0
        return max(by_documents, by_bytes)

    def part(self, seconds: float) -> Amount:
        """How much may be written at once, so that it costs about so many seconds; at least one document."""
        documents = _MOST if self.documents is None else max(1, int(self.documents * seconds))
        return Amount(documents=documents, bytes=_MOST if self.bytes is None else max(1, int(self.bytes * seconds)))


@dataclass(frozen=True, slots=True)
class TokenBucket:
    """`told_at`: when the task began that knows the newest `share`: tasks that began before follow it."""

    paid_until: float = 0.0
    told_at: float = 0.0
    share: float = 1.0

    def told(self, share: float, at: float, now: float) -> TokenBucket:
        newer = self.told_at <= now and self.told_at >= at
        return self if newer else TokenBucket(self.paid_until, at, share)

    def take(self, cost_seconds: float, now: float) -> tuple[TokenBucket, float]:
        """Returns the bucket afterwards, and how many seconds to wait before the write begins. `cost_seconds`: at the whole rate."""
        begins = max(self.paid_until, now - SAVED_SECONDS)
        if begins > now + _LONGEST_DEBT:
            begins = now
        paid_until = begins + min(cost_seconds / self.share, _LONGEST_DEBT)
        return TokenBucket(paid_until, self.told_at, self.share), max(0.0, begins - now)


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitShares:
    copy: float = 1.0
    apply: float = 1.0

    @classmethod
    def among(cls, others: Mapping[NodeId, PositionReport | None], run: int) -> LimitShares:
        """`others`: the other nodes with tables, with their reports."""
        present = [None if report is not None and report.run != run else report for report in others.values()]
        return cls(
            copy=_share(report is None or report.copying or bool(report.copies) for report in present),
            apply=_share(report is not None and report.flowing for report in present),
        )


def _share(busy: Iterable[bool]) -> float:
    return 1.0 / (1 + sum(busy))
