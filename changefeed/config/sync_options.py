"""`SyncPointOptions`: how often a changefeed makes a point at which source and target are equal, and for which changefeeds that is possible;
`VerifyOptions`: whether both sides are compared at these points, all the time. Pure.

sync_points: {every: 60s, keep: 1h}
verify: {continuous: true, budget: 16MiB/s}
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Self

from pydantic import Field, StrictBool, model_validator

from changefeed.config.options import Mistake, Options
from changefeed.config.written_values import Delay, Limit, RateLimit, WrittenDelay

LEAST_EVERY = timedelta(seconds=10)
READABLE_FOR = timedelta(seconds=300)
"""How long a server keeps its history if nobody has told it otherwise (`minSnapshotHistoryWindowInSeconds`)."""
_MOST_KEPT = 10_000
_EVERY, _KEEP = Delay(timedelta(seconds=60)), Delay(timedelta(hours=1))


class SyncPointOptions(Options):
    every: WrittenDelay = Field(_EVERY, description="write a time such as 10s, 60s, 5m")
    """A point is a multiple of it, so that several changefeeds have the same ones."""
    keep: WrittenDelay = Field(_KEEP, description="write a time such as 1h, 1d")
    """How long a point's record stays in the target."""

    @model_validator(mode="after")
    def _is_sensible(self) -> Self:
        if self.every.span < LEAST_EVERY:
            raise Mistake(f"found every: {self.every}; write at least {int(LEAST_EVERY.total_seconds())}s")
        if not self.every.span <= self.keep.span <= self.every.span * _MOST_KEPT:
            raise Mistake(f"found keep: {self.keep}; write at least {self.every}, and at most {_MOST_KEPT} times that")
        return self

    def obstacles(self, delay: Delay | None) -> Iterator[str]:
        """Why a changefeed can have none, as far as its configuration tells."""
        if delay is not None and delay.span >= READABLE_FOR:
            yield (
                f"sync_points: with delay: {delay} a point is older than the history that the source keeps "
                f"({int(READABLE_FOR.total_seconds())} s), so nothing could be compared with it; leave one of the two out, or write a shorter delay"
            )


_BUDGET = RateLimit(bytes=16 << 20)
_LEAST_BUDGET = 1_000_000


class VerifyOptions(Options):
    continuous: StrictBool = False
    """With each sync point a part of all documents is compared, in turn."""
    budget: Limit = Field(_BUDGET, description="write a rate in bytes, such as 16MiB/s")
    """What that reads at most, from both sides together."""

    @model_validator(mode="after")
    def _is_in_bytes(self) -> Self:
        if self.budget.documents is not None or (self.budget.bytes or 0) < _LEAST_BUDGET:
            raise Mistake(f"found budget: {self.budget}; write a rate in bytes of at least 1MB/s, such as 16MiB/s")
        return self

    @property
    def bytes_per_second(self) -> int:
        assert self.budget.bytes is not None, "expected a rate in bytes"
        return self.budget.bytes
