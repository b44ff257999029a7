"""`Changes`: wakes a stream of the admin API when something in etcd has changed, some times a second at most."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from coordination.mirror import Mirror

_EVERY = 0.25


class Changes:
    """For one call. It ends with the call, and when the server stops."""

    def __init__(self, mirror: Mirror, context: Any, stopping: threading.Event, ended: Callable[[], None]) -> None:
        self._mirror = mirror
        self._context = context
        self._stopping = stopping
        self._ended = ended
        self._seen = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended()

    def wait(self) -> bool:
        """At once the first time, then after the next change; False when nobody listens any more."""
        if self._seen >= 0 and self._stopping.wait(_EVERY):
            return False
        while self._context.is_active() and not self._stopping.is_set():
            revision = self._mirror.view().revision
            if revision != self._seen:
                self._seen = revision
                return True
            self._stopping.wait(_EVERY)
        return False
