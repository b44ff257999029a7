"""`ExecutorWatch`: finds out that jobs wait for executors in vain.

Spark itself waits without end: for workers that are down, for cores that other applications have, and, after a restart of a standalone
master that keeps no state, for executors of an application that the master has forgotten. Only a new application ends the last of these,
and it does no harm in the others. Until then nothing of the jobs has begun.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

_LOOK_EVERY = timedelta(seconds=5)


class ExecutorWatch:
    """`patience`: more than an executor needs to start. `start` is called with each new application, `stop` once. `in_vain` is called in the watch's thread."""

    def __init__(
        self,
        slots: Callable[[], int],
        in_vain: Callable[[], None],
        *,
        patience: timedelta,
        look_every: timedelta = _LOOK_EVERY,
    ) -> None:
        self._slots = slots
        self._in_vain = in_vain
        self._looks = max(1, round(patience / look_every))
        self._look_every = look_every
        self._lock = threading.Lock()
        self._jobs = 0
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="executor-watch", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        self._stopping.set()

    @contextmanager
    def job(self) -> Iterator[None]:
        self._count(1)
        try:
            yield
        finally:
            self._count(-1)

    def _count(self, jobs: int) -> None:
        with self._lock:
            self._jobs += jobs

    def _watch(self) -> None:
        without = 0
        while not self._stopping.wait(self._look_every.total_seconds()):
            without = without + 1 if self._jobs and not self._slots() else 0
            if without >= self._looks:
                without = 0
                self._in_vain()
