"""`Retries`: how often this process has sent a request to a store again. For metrics."""

from __future__ import annotations

import threading


class Retries:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0

    def add(self, count: int) -> None:
        with self._lock:
            self._count += count

    @property
    def count(self) -> int:
        return self._count


RETRIES = Retries()
