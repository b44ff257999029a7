"""`Rate`, `TokenBucket`: when the next write may begin, so that a rate holds over time. Pure.

A write begins when everything before it is paid for, and is paid for afterwards: `paid_until` is the moment at which the rate allows what was
written by then. An example, 10 MB a second, at most a quarter of a second saved:

    at 0.0    1 MB    begins at once, paid until 0.1
    at 0.05   2 MB    waits 0.05 s, paid until 0.3
    at 5.0    4 MB    idle in between: paid until 5.15, a quarter of a second before the rest

So in any span no more is written than the rate allows, what was saved, and one write for each task that was waiting. A write is a small part of a
second (`Rate.part`), except for a document that is larger than that.
"""

from __future__ import annotations

from dataclasses import dataclass

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

    def times(self, share: float) -> Rate:
        return Rate(
            documents=None if self.documents is None else self.documents * share,
            bytes=None if self.bytes is None else self.bytes * share,
        )


@dataclass(frozen=True, slots=True)
class TokenBucket:
    """`told_at`: when the task began that knows the newest `share`: tasks that began before follow it."""

    paid_until: float = 0.0
    told_at: float = 0.0
    share: float = 1.0

    def told(self, share: float, at: float, now: float) -> TokenBucket:
        known = self.told_at <= now and self.told_at >= at
        return self if known else TokenBucket(self.paid_until, at, share)

    def take(self, cost_seconds: float, now: float) -> tuple[TokenBucket, float]:
        """Returns the bucket afterwards, and how many seconds to wait before the write begins. `cost_seconds`: at the whole rate."""
        begins = max(self.paid_until, now - SAVED_SECONDS)
        if begins > now + _LONGEST_DEBT:
            begins = now
        paid_until = begins + min(cost_seconds / self.share, _LONGEST_DEBT)
        return TokenBucket(paid_until, self.told_at, self.share), max(0.0, begins - now)
