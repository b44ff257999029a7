"""The driver's JVM: `ExecutorWatch` finds out that jobs wait for executors in vain, `JvmLog` takes over its log, `SparkHealth` says what it takes.

Spark itself waits for executors without end: for workers that are down, for cores that other applications have, and, after a restart of a
standalone master that keeps no state, for executors of an application that the master has forgotten. Only a new application ends the last of
these, and it does no harm in the others. Until then nothing of the jobs has begun.

What Spark's driver writes to standard error becomes lines of the node's own log:

    26/11/23 04:10:00 WARN Utils: Your hostname    Spark        an event spark_logged, with level, logger and text
    WARNING: Using incubator modules               Java         an event spark_wrote, with the text; a line of a stack trace too
    {"event": "row_deviated", ...}                 a worker     as it is: the lines of workers go through Spark's driver, in the node's form
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from resource import getpagesize
from typing import IO, Any

import structlog
from pyspark import SparkContext
from pyspark.accumulators import AccumulatorTCPServer

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


_SPARKS = re.compile(r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d (?P<level>[A-Z]+) (?P<logger>[^:]+): (?P<text>.*)")
_LEVELS = {"FATAL": "critical", "ERROR": "error", "WARN": "warning"}

_log = structlog.get_logger()


class JvmLog:
    """`stderr` is for the process of the JVM. Its reader ends when the JVM and all its children have closed it."""

    def __init__(self) -> None:
        AccumulatorTCPServer.handle_error = _lost  # type: ignore[assignment,method-assign]  # it writes a traceback to standard error
        read_from, self.stderr = os.pipe()
        lines = os.fdopen(read_from, encoding="utf-8", errors="replace")
        threading.Thread(target=_follow, args=(lines,), name="spark-log", daemon=True).start()

    def close(self) -> None:
        """This process's copy, once the JVM has its own."""
        os.close(self.stderr)


def _lost(_server: object, _request: object, _client: object) -> None:
    """Of PySpark's own server: the JVM has ended in the middle of a message, as when a node stops."""
    _log.warning("spark_connection_lost", error=repr(sys.exception()))


def _follow(lines: IO[str]) -> None:
    with lines:
        for line in lines:
            tell(line.rstrip())


def tell(line: str) -> None:
    if not line:
        return
    if _of_a_worker(line):
        sys.stderr.write(f"{line}\n")
    elif (match := _SPARKS.fullmatch(line)) is not None:
        write = getattr(_log, _LEVELS.get(match["level"], "info"))
        write("spark_logged", logger=match["logger"], text=match["text"])
    else:
        _log.info("spark_wrote", text=line)


_FOR_PEOPLE = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z \[[a-z]+ *\] ")


def _of_a_worker(line: str) -> bool:
    if _FOR_PEOPLE.match(line):
        return True
    try:
        entry = json.loads(line)
    except ValueError:
        return False
    return isinstance(entry, dict) and "event" in entry


_PROCESSES = Path("/proc")


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkHealth:
    """`executors` is 0 where tasks run on this machine. Memory is in bytes."""

    executors: int
    slots: int
    heap_used: int
    heap_most: int
    jvm_resident: int
    workers: int
    workers_resident: int


def java_of(context: SparkContext) -> Any:
    """Raises `ConnectionError` once another thread has stopped the context."""
    java = context._jsc  # noqa: SLF001 - there is no public attribute for it
    if java is None:
        raise ConnectionError("Spark has stopped meanwhile")
    return java.sc()


def health_of(context: SparkContext, slots: int) -> SparkHealth:
    """Asks the JVM. Errors are py4j's own."""
    java, machine, gateway = java_of(context), context._jvm, context._gateway  # noqa: SLF001 - there are no public attributes for them
    assert machine is not None
    assert gateway is not None
    runtime, jvm = machine.java.lang.Runtime.getRuntime(), gateway.proc.pid
    workers = list(_descendants(jvm))
    return SparkHealth(
        executors=0 if java.isLocal() else max(0, java.getExecutorMemoryStatus().size() - 1),
        slots=slots,
        heap_used=runtime.totalMemory() - runtime.freeMemory(),
        heap_most=runtime.maxMemory(),
        jvm_resident=_resident(jvm),
        workers=len(workers),
        workers_resident=sum(map(_resident, workers)),
    )


def _descendants(process: int) -> Iterator[int]:
    """Spark's Python daemon and its workers. A process may end meanwhile."""
    for thread in (_PROCESSES / str(process) / "task").glob("*"):
        with suppress(OSError):
            for child in map(int, (thread / "children").read_text().split()):
                yield child
                yield from _descendants(child)


def _resident(process: int) -> int:
    """Shared pages count for each process that has them."""
    with suppress(OSError):
        return int((_PROCESSES / str(process) / "statm").read_text().split()[1]) * getpagesize()
    return 0
