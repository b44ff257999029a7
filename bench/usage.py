"""`Usage`: wall-clock time, CPU time and peak memory of some processes and all their children while a block runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self

import psutil

_SAMPLE_SECONDS = 0.1


class Usage:
    """CPU time counts children that ended and were waited for meanwhile. Peak memory is the largest sum of resident sets seen."""

    def __init__(self, *pids: int) -> None:
        """Without pids: this process."""
        self._roots = [psutil.Process(pid) for pid in pids] or [psutil.Process()]
        self._ended = threading.Event()
        self._sampler = threading.Thread(target=self._sample, name="usage", daemon=True)
        self.seconds = 0.0
        self.cpu_seconds = 0.0
        self.peak_bytes = 0

    def __enter__(self) -> Self:
        self._begun_at = time.perf_counter()
        self._cpu_before = self._cpu()
        self._sampler.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.seconds = time.perf_counter() - self._begun_at
        self.cpu_seconds = self._cpu() - self._cpu_before
        self._ended.set()
        self._sampler.join()

    def _sample(self) -> None:
        while True:
            self.peak_bytes = max(self.peak_bytes, int(sum(self._each(lambda process: process.memory_info().rss))))
            if self._ended.wait(_SAMPLE_SECONDS):
                return

    def _cpu(self) -> float:
        return sum(self._each(lambda process: sum(process.cpu_times()[:4])))

    def _each(self, measure: Callable[[psutil.Process], float]) -> Iterator[float]:
        for process in {child for root in self._roots for child in (root, *root.children(recursive=True))}:
            try:
                yield measure(process)
            except psutil.NoSuchProcess:
                continue
