"""`MajorityWatch`: detects that the source's majority does not move while its primary goes on.

No read fails then: each is answered, but shows nothing new. So the watch observes the time of the replies. While that time does not
move, it asks the primary whether the majority lacks any write.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import structlog

from changefeed.cluster_time import ClusterTime, MajorityPoint
from changefeed.errors import SourceMajorityStalled
from source.connection import HELLO, Client, read_command
from source.errors import translated

_ASK_EVERY = 2.0
_BEHIND_FOR = 4.0
"""Long enough to ignore a secondary that stops for a moment."""

log = structlog.get_logger(__name__)


class MajorityWatch:
    """For one thread."""

    def __init__(
        self, client: Client, *, of: str = "the source", monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._client = client
        self._of = of
        self._monotonic = monotonic
        self._committed_ts: ClusterTime | None = None
        self._asked_at = 0.0
        self._behind_since: float | None = None
        self._trouble: SourceMajorityStalled | None = None

    def look_at(self, committed_ts: ClusterTime) -> SourceMajorityStalled | None:
        """`committed_ts` is the majority's time in the newest reply. The source is asked only while that time does not move."""
        now = self._monotonic()
        if committed_ts != self._committed_ts:
            self._moved(committed_ts, now)
        elif now - self._asked_at >= _ASK_EVERY:
            self._asked_at = now
            self._judge(majority_point(self._client), now)
        return self._trouble

    def _moved(self, committed_ts: ClusterTime, now: float) -> None:
        if self._trouble is not None:
            log.info("source_majority_moves_again", committed=str(committed_ts))
        self._committed_ts, self._asked_at, self._behind_since, self._trouble = committed_ts, now, None, None

    def _judge(self, point: MajorityPoint | None, now: float) -> None:
        if point is None or not point.behind or point.majority_ts != self._committed_ts:
            self._behind_since = None
        elif self._behind_since is None:
            self._behind_since = now
        elif now - self._behind_since >= _BEHIND_FOR and self._trouble is None:
            self._trouble = SourceMajorityStalled(f"{self._of}: {point}")
            log.warning(
                "source_majority_stands_still", of=self._of, since=str(point.majority_ts), primary=point.primary
            )


def majority_point(client: Client) -> MajorityPoint | None:
    """None through a router."""
    with translated("reading the majority commit point of the source"):
        return MajorityPoint.of_hello(read_command(client, "admin", {HELLO: 1}))
