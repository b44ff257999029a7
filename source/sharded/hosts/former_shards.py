"""`FormerShards`: whether a shard that was removed from the cluster can still be read.

    in config.shards                     it is away at most, however long it is silent
    not there any more: it answers       its last entries are read
    it is silent, for less than 10 min   it is waited for, and the source's error says how long still
    it is silent for 10 min              it is gone: what it would have to tell is lost

An answer ends a silence. Each owner begins to count anew.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from changefeed.errors import SourceUnavailable

GONE_AFTER = timedelta(minutes=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """It does not answer. `left`: how long it is still waited for."""

    error: SourceUnavailable
    left: timedelta

    @property
    def over(self) -> bool:
        """Whether the shard is gone."""
        return self.left <= timedelta()

    def told(self, why: str) -> SourceUnavailable:
        minutes = max(1, round(self.left.total_seconds() / 60))
        return SourceUnavailable(
            f"{why}, and it does not answer: {self.error}; start it again until the changefeed is past that time. In {minutes} min it counts as "
            "gone for good: the tables that it may have had are then lost, and have to be copied anew"
        )


class FormerShards:
    """For all threads."""

    def __init__(self, gone_after: timedelta | None = None) -> None:
        self._gone_after = gone_after if gone_after is not None else GONE_AFTER
        self._silent_since: dict[str, float] = {}
        self._lock = threading.Lock()

    def ask(self, shard: str, ping: Callable[[], object]) -> Silence | None:
        """None: it answers."""
        try:
            ping()
        except SourceUnavailable as error:
            with self._lock:
                since = self._silent_since.setdefault(shard, time.monotonic())
            silent = timedelta(seconds=time.monotonic() - since)
            return Silence(error=error, left=self._gone_after - silent)
        with self._lock:
            self._silent_since.pop(shard, None)
        return None
