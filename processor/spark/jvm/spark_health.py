"""`SparkHealth`: what Spark has and takes on this node: executors, slots, the JVM's heap, and the memory of its processes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from resource import getpagesize

from pyspark import SparkContext

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


def health_of(context: SparkContext, slots: int) -> SparkHealth:
    """Asks the JVM. Errors are py4j's own."""
    java, machine, gateway = context._jsc.sc(), context._jvm, context._gateway  # noqa: SLF001 - there are no public attributes for them
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
