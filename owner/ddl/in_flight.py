"""`InFlightDdl`: the short DDL calls that a sink has not answered yet.

Whoever goes on in another's place waits for the other's: no UUID guards a create, so one that took effect after the successor's drop would
bring the table back. Their commands end with the session at the latest (`sink/mongodb/command.py`), so nobody waits for longer than that.
Index builds, renames and sharding, which may take hours, are not among them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from changefeed.records import ChangefeedId


class InFlightDdl:
    """Of one term, for many threads. `permit` is for how many seconds a command that is sent now may last."""

    def __init__(self, permit: Callable[[], float]) -> None:
        self._permit = permit
        self._changed = threading.Condition()
        self._calls: list[tuple[ChangefeedId, object]] = []

    @contextmanager
    def call(self, changefeed: ChangefeedId, jobs: object) -> Iterator[None]:
        """Of `jobs`; begins when those of the changefeed's earlier jobs are over, or no longer can do anything."""
        call = (changefeed, jobs)
        with self._changed:
            self._changed.wait_for(
                lambda: all(id != changefeed or other is jobs for id, other in self._calls), timeout=self._permit()
            )
            self._calls.append(call)
        try:
            yield
        finally:
            with self._changed:
                self._calls.remove(call)
                self._changed.notify_all()

    def wait(self, seconds: float) -> None:
        """Until none is left, or for as long as one may last."""
        with self._changed:
            self._changed.wait_for(lambda: not self._calls, timeout=max(0.0, seconds))
