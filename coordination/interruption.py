"""`Interruption`: an error that recurs at every tick is logged once when it begins, and once when it is over."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


class Interruption:
    """For one thread. `begins` and `ends` are the names of the two events in the log."""

    def __init__(self, log: Any, begins: str, ends: str, monotonic: Callable[[], float] | None = None) -> None:
        self._log = log
        self._begins = begins
        self._ends = ends
        self._monotonic = monotonic or time.monotonic
        self._since: float | None = None

    def occurred(self, error: Exception, **facts: object) -> None:
        if self._since is None:
            self._since = self._monotonic()
            self._log.warning(self._begins, error=str(error), **facts)

    def over(self) -> None:
        if self._since is not None:
            seconds, self._since = self._monotonic() - self._since, None
            self._log.info(self._ends, seconds=round(seconds, 1))
