"""`Usage`: wall-clock time, CPU time and peak memory of processes and all their children while a block runs, by part.

A child belongs to the part of its parent, except for Spark's processes: the JVM is the part "jvm", its Python processes are "workers".
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Self

import psutil

_SAMPLE_SECONDS = 1.0
"""Rare, because reading the memory of a process stops it for some milliseconds."""
JVM, WORKERS = "jvm", "workers"


class Usage:
    """CPU time includes children that ended meanwhile and were waited for. Peak memory is the largest sum of proportional set sizes:
    pages that forked workers share count once.
    """

    def __init__(self, roots: Mapping[str, int] | None = None, *, memory: bool = True) -> None:
        """`roots` are process ids by the names of their parts; the default is this process. Without `memory` no process is disturbed."""
        self._memory = memory
        self._roots = roots or {"process": os.getpid()}
        self._ended = threading.Event()
        self._sampler = threading.Thread(target=self._sample, name="usage", daemon=True)
        self.seconds = 0.0
        self.cpu: dict[str, float] = defaultdict(float)
        """Seconds, by part."""
        self.peak: Counter[str] = Counter()
        """Bytes, by part: each part's own peak."""
        self.peak_bytes = 0

    @property
    def cpu_seconds(self) -> float:
        return sum(self.cpu.values())

    def millis(self, *parts: str) -> float:
        """CPU milliseconds per second."""
        return sum(self.cpu[part] for part in parts) / self.seconds * 1e3

    def __enter__(self) -> Self:
        self._begun_at = time.perf_counter()
        self._cpu_before = self._cpu()
        if self._memory:
            self._sampler.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.seconds = time.perf_counter() - self._begun_at
        now = self._cpu()
        for part, seconds in now.items():
            self.cpu[part] = seconds - self._cpu_before[part]
        self._ended.set()
        if self._memory:
            self._sampler.join()

    def _sample(self) -> None:
        while True:
            sizes: Counter[str] = Counter()
            for part, process in self._processes():
                try:
                    sizes[part] += process.memory_full_info().pss
                except psutil.NoSuchProcess:
                    continue
            self.peak |= sizes
            self.peak_bytes = max(self.peak_bytes, sum(sizes.values()))
            if self._ended.wait(_SAMPLE_SECONDS):
                return

    def _cpu(self) -> dict[str, float]:
        seconds: dict[str, float] = defaultdict(float)
        for part, process in self._processes():
            try:
                seconds[part] += sum(process.cpu_times()[:4])
            except psutil.NoSuchProcess:
                continue
        return seconds

    def _processes(self) -> Iterator[tuple[str, psutil.Process]]:
        for name, pid in self._roots.items():
            root = psutil.Process(pid)
            parts = {pid: name}
            for process in (root, *root.children(recursive=True)):
                try:
                    part = parts.get(process.pid) or _part(process, parts[process.ppid()])
                except (psutil.NoSuchProcess, KeyError):
                    continue
                parts[process.pid] = part
                yield part, process


def _part(process: psutil.Process, parent: str) -> str:
    if process.name() == "java":
        return JVM
    return WORKERS if parent in (JVM, WORKERS) else parent
