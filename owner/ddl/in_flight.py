"""`InFlightDdl`: the short DDL calls that a sink has not answered yet.

A successor (the next owner, or the new jobs of a restarted changefeed) waits for its predecessor's calls: no UUID guards a create, so a
create that took effect after the successor's drop would bring the table back. The commands end with the session at the latest
(`sink/mongodb/command.py`), which limits the wait. Index builds, renames and sharding may take hours and are not included.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from changefeed.records.requests import ChangefeedId


class InFlightDdl:
    """The calls of one term. Thread-safe. `permit` returns how many seconds a command that is sent now may last."""

    def __init__(self, permit: Callable[[], float]) -> None:
        self._permit = permit
        self._changed = threading.Condition()
        self._calls: list[tuple[ChangefeedId, object]] = []

    @contextmanager
    def call(self, changefeed: ChangefeedId, jobs: object) -> Iterator[None]:
        """A call of `jobs`. It starts when the calls of the changefeed's earlier jobs have ended or can no longer have an effect."""
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
        """Waits until no call is left, but at most `seconds`."""
        with self._changed:
            self._changed.wait_for(lambda: not self._calls, timeout=max(0.0, seconds))
