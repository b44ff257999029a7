"""`FixedWork`: how much CPU time the same small computation takes meanwhile. The machine is shared: a phase in which it takes more is not comparable."""

from __future__ import annotations

import statistics
import threading
import time
from types import TracebackType
from typing import Self

_EVERY_SECONDS = 0.1
_ROUNDS = 5_000


class FixedWork:
    """Takes a hundredth of a core."""

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, name="fixed work", daemon=True)
        self._took: list[int] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    @property
    def micros(self) -> float:
        """The median."""
        return statistics.median(self._took) / 1e3

    def _work(self) -> None:
        while not self._ended.wait(_EVERY_SECONDS):
            begun_ns = time.thread_time_ns()
            sum(number * number for number in range(_ROUNDS))
            self._took.append(time.thread_time_ns() - begun_ns)
