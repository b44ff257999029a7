"""`SparkRunner`: the node's one Spark session. It starts when first needed, is shared by all changefeeds, and stops with the node.

A dead JVM (out of memory, killed) is noticed when the next job starts, and a new one is started. The jobs of the dead JVM count as lost:
their Python workers may outlive it (`Attempts`).

PySpark pins each Python thread to a JVM thread, so a job's group and pool are those of the thread that runs it. Jobs of one changefeed
share a pool, and pools share the cores fairly.

Spark never repeats a task: a lane tries its window again, and then knows that it replays. Speculation stays off, since two copies of a
task would write the same rows.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import Any, Self, TypeVar

import structlog
from py4j.protocol import Py4JError
from pyspark import RDD, Broadcast, SparkConf, SparkContext, TaskContext
from pyspark.errors import PySparkException

from changefeed.errors import ConfigurationError, PipelineUnavailable, SluiceError
from processor.spark.cause import cause_of
from processor.task.channel import Switchboard

_DEFAULTS: Mapping[str, str] = {
    "spark.app.name": "sluice",
    "spark.master": "local[*]",
    "spark.scheduler.mode": "FAIR",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.python.worker.reuse": "true",
    "spark.python.daemon.module": "processor.spark.worker_daemon",
    "spark.python.worker.memory": "256m",
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
}
_FIXED: Mapping[str, str] = {
    "spark.task.maxFailures": "1",
    "spark.stage.maxConsecutiveAttempts": "1",
    "spark.speculation": "false",
}
_LOCAL: Mapping[str, str] = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}

_HAND_OVER_PORT = "spark.sluice.handOver.port"
"""Sluice's own option: the port where staying tasks reach their driver. The addresses are those of Spark's driver."""

_LAST_PORT = 65_535
_DIVIDING_SLOTS = 4

_FAILURES = (Py4JError, PySparkException, ConnectionError, EOFError)

T = TypeVar("T")
U = TypeVar("U")

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkSettings:
    """`options` are Spark options (`spark.*`). They override the defaults, but not the options that correctness needs."""

    master: str = "local[*]"
    options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Reports mistakes when the node starts."""
        assert self.hand_over_port >= 0

    def all(self) -> dict[str, str]:
        local = _LOCAL if self.local else {}
        return {**_DEFAULTS, **local, "spark.master": self.master, **self.options, **_FIXED}

    @property
    def local(self) -> bool:
        """Whether tasks run on this machine rather than on executors, whose number may grow with the load."""
        return self.master.startswith("local")

    @property
    def hand_over_port(self) -> int:
        """0: any free port."""
        port = self.options.get(_HAND_OVER_PORT, "0")
        if not port.isdecimal() or int(port) > _LAST_PORT:
            raise ConfigurationError(
                [f"spark.conf.{_HAND_OVER_PORT}: expected a port, found {port!r}; write for example 7080"]
            )
        return int(port)

    @property
    def python(self) -> str:
        """The interpreter of the workers: on this machine the one that has our packages, elsewhere the installed `python3`."""
        default = sys.executable if self.local else "python3"
        return self.options.get("spark.pyspark.python", default)


@dataclass(frozen=True, slots=True)
class Group:
    """The changefeed and the lane that a job is for. The jobs of a group are cancelled together."""

    changefeed: str
    lane: str

    def __str__(self) -> str:
        return f"{self.changefeed}/{self.lane}"


class SparkRunner:
    """Thread-safe. `stop` may be called twice, and nothing runs after it."""

    def __init__(self, settings: SparkSettings | None = None) -> None:
        self._settings = settings or SparkSettings()
        self._lock = threading.Lock()
        self._context: SparkContext | None = None
        self._one: RDD[int] | None = None
        self._divides: bool | None = None
        self._stopped = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def warm_up(self) -> None:
        """Starts Spark and a worker in the background. This takes seconds, for which the first table would otherwise wait."""
        threading.Thread(target=self._warm_up, name="spark-warm-up", daemon=True).start()

    def _warm_up(self) -> None:
        try:
            self.run_one(Group("sluice", "warm-up"), _nothing)
        except SluiceError as error:
            _log.warning("spark_not_warm", error=str(error))

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            context, self._context = self._context, None
        if context is not None:
            context.stop()

    def run_one(self, group: Group, task: Callable[[], T]) -> T:
        """Runs one task in one stage: the fastest kind of Spark job."""
        with _translated(group):
            self._enter(group)
            [answer] = self._single().mapPartitions(partial(_alone, task)).collect()
            return answer

    def run_each(self, group: Group, items: Sequence[T], task: Callable[[T], U]) -> list[U]:
        """Runs one task for each item, as many at a time as there are cores. Answers are in the order of the items."""
        with _translated(group):
            context = self._enter(group)
            return context.parallelize(items, len(items)).mapPartitions(partial(_each, task)).collect()

    def run_shuffled(
        self,
        group: Group,
        items: Sequence[T],
        read: Callable[[T], Iterator[tuple[Any, Any]]],
        buckets: int,
        apply: Callable[[Iterator[tuple[Any, Any]]], U],
        divide: Callable[[Iterable[tuple[Any, Any]]], Iterable[tuple[Any, Any]]] | None = None,
    ) -> list[U]:
        """Runs two stages. `read` returns records whose keys begin with a bucket; `apply` gets a bucket's records in key order.

        `divide` adds a stage between them. It also gets the records of higher buckets, in key order, and moves each to its final bucket.
        """
        with _translated(group):
            context = self._enter(group)
            records = context.parallelize(items, len(items)).flatMap(partial(_read, read))
            if divide is not None:
                records = records.repartitionAndSortWithinPartitions(buckets, _bucket).mapPartitions(divide)
            sorted_buckets = records.repartitionAndSortWithinPartitions(buckets, _bucket)
            return sorted_buckets.mapPartitions(partial(_bucketed, apply)).collect()

    def broadcast(self, value: T) -> Broadcast[T]:
        with _translated("broadcast"):
            return self._started().broadcast(value)

    def cancel(self, group: Group) -> None:
        """The jobs of the group end with an error soon. Python workers may go on for a while: only a `TaskPermit` stops their writes."""
        context = self._context
        if context is None:
            return
        try:
            context.cancelJobGroup(str(group))
        except _FAILURES as error:
            _log.warning("spark_job_not_cancelled", group=str(group), error=str(error).partition("\n")[0])

    def slots(self) -> int:
        """How many tasks can run at once, as far as Spark knows. 0: Spark has not started, or has died."""
        context = self._context
        if context is None:
            return 0
        try:
            return context.defaultParallelism
        except _FAILURES:
            return 0

    def divides(self) -> bool:
        """Whether a shuffle makes a window faster. Without one, a task that reads while the target writes already keeps two cores busy."""
        if self._divides is None:
            with _translated("slots"):
                self._divides = not self._settings.local or self._started().defaultParallelism >= _DIVIDING_SLOTS
        return self._divides

    def switchboard(self) -> Switchboard:
        """Opens the port where tasks reach this driver. Starts Spark if needed."""
        conf = self._started().getConf()
        host = conf.get("spark.driver.host") or "127.0.0.1"
        return Switchboard(conf.get("spark.driver.bindAddress") or host, host, self._settings.hand_over_port)

    def _enter(self, group: Group) -> SparkContext:
        context = self._started()
        context.setJobGroup(str(group), str(group), interruptOnCancel=True)
        context.setLocalProperty("spark.scheduler.pool", group.changefeed)
        return context

    def _single(self) -> RDD[int]:
        assert self._one is not None
        return self._one

    def _started(self) -> SparkContext:
        with self._lock:
            if self._stopped:
                raise PipelineUnavailable("Spark has been stopped with its node")
            if self._context is not None and _dead(self._context):
                self._bury(self._context)
                self._context = None
            if self._context is None:
                self._context = self._start()
                self._one = self._context.parallelize([0], 1)
            return self._context

    def _start(self) -> SparkContext:
        settings = self._settings.all()
        conf = SparkConf().setAll(list(settings.items()))
        context = SparkContext(conf=conf)
        context.pythonExec = self._settings.python
        context.setLogLevel(settings["spark.log.level"])
        _log.info("spark_started", master=context.master, version=context.version, application=context.applicationId)
        return context

    @staticmethod
    def _bury(context: SparkContext) -> None:
        """PySpark keeps one gateway for the life of the process. This makes it forget a dead one."""
        _log.error("spark_died")
        try:
            context.stop()
        except _FAILURES:
            context.stop()  # the first call fails since the JVM is dead, the second cleans up in this process
        SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001 - there is no other way to get another JVM


def _dead(context: SparkContext) -> bool:
    """The JVM is a child process of this process."""
    gateway = context._gateway  # noqa: SLF001 - there is no public attribute for it
    return gateway is not None and gateway.proc.poll() is not None


def _alone(task: Callable[[], T], numbers: Iterable[int]) -> Iterator[T]:
    """Reads all of its input: Spark discards a worker that leaves some unread."""
    _refuse_a_repeated_task()
    for _ in numbers:
        yield task()


def _nothing() -> None:
    """The task of a warm-up: loads the modules that a window's task needs."""
    import_module("processor.task.window_task")


def _each(task: Callable[[T], U], items: Iterable[T]) -> Iterator[U]:
    _refuse_a_repeated_task()
    return map(task, items)


def _read(read: Callable[[T], Iterator[tuple[Any, Any]]], item: T) -> Iterator[tuple[Any, Any]]:
    _refuse_a_repeated_task()
    return read(item)


def _bucketed(apply: Callable[[Iterator[Any]], U], records: Iterator[Any]) -> Iterator[U]:
    _refuse_a_repeated_task()
    yield apply(records)


def _refuse_a_repeated_task() -> None:
    """Spark repeats the tasks of a lost executor, which may still be writing: a table would have two writers."""
    context = TaskContext.get()
    if context is not None and context.attemptNumber():
        raise PipelineUnavailable(
            "Spark repeats a task whose first attempt may still be running; its job has to start again"
        )


def _bucket(key: tuple[int, ...]) -> int:
    return key[0]


class _translated:  # noqa: N801 - reads as a function
    """Translates errors of Spark itself to `PipelineUnavailable`. Tasks return their own errors.

    Every exception is translated, since PySpark raises unexpected ones when a JVM dies: even an UnboundLocalError was seen.
    """

    def __init__(self, doing: Group | str) -> None:
        self._doing = doing

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, SluiceError):
            if not isinstance(error, _FAILURES):
                _log.error("spark_stumbled", doing=str(self._doing), exc_info=error)
            raise PipelineUnavailable(f"Spark, {self._doing}: {cause_of(error)}") from error
