"""`RowTally`: how many row changes had which result. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from changefeed.event import RowType


@dataclass(slots=True, kw_only=True)
class RowTally:
    applied: Counter[RowType] = field(default_factory=Counter)
    """Events as the source showed them, before folding."""
    bytes: int = 0
    duplicates: int = 0
    """Inserts whose document existed already and was replaced."""
    skipped: int = 0
    """Replayed changes that did not fit a newer document."""
    repaired: int = 0
    """Rows that had diverged and were written as they are at the source."""
    rejected: int = 0
    """Rows that the sink refused; they are in the dead-letter collection."""
    retries: int = 0
    """Commands, or requests to a store, that were sent again."""
    messages: int = 0
    """What a sink of messages has durably."""
    message_bytes: int = 0
    """As they are stored or sent, compressed where the sink compresses."""
    confirm_seconds: float = 0.0
    """How long the slowest task waited at its end until the sink had all of its messages."""

    def add(self, other: RowTally) -> None:
        self.applied.update(other.applied)
        self.bytes += other.bytes
        self.duplicates += other.duplicates
        self.skipped += other.skipped
        self.repaired += other.repaired
        self.rejected += other.rejected
        self.retries += other.retries
        self.messages += other.messages
        self.message_bytes += other.message_bytes
        self.confirm_seconds = max(self.confirm_seconds, other.confirm_seconds)
