"""`SparkRunner`: the node's one Spark session: started when first needed, shared by all changefeeds, stopped with the node.

A JVM that died (out of memory, killed) is noticed when the next job comes, and a new one is started. The jobs that it had count as lost:
their Python workers may outlive it (`Attempts`).

PySpark pins each Python thread to a JVM thread, so a job's group and pool are those of the thread that runs it. Jobs of one changefeed
share a pool, and pools share the cores fairly.

Tasks are never tried again by Spark: a lane tries its window again, and then knows that it replays. Speculation stays off, since two
copies of a task would write the same rows.
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
from pyspark import RDD, Broadcast, SparkConf, SparkContext
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
"""Ours: where tasks that stay reach their driver. Its addresses are those of Spark's own driver."""

_LAST_PORT = 65_535
_DIVIDING_SLOTS = 4

_FAILURES = (Py4JError, PySparkException, ConnectionError, EOFError)

T = TypeVar("T")
U = TypeVar("U")

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkSettings:
    """`options` are Spark's own (`spark.*`); they are stronger than our defaults, but not than what correctness needs."""

    master: str = "local[*]"
    options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Mistakes are told when the node starts."""
        assert self.hand_over_port >= 0

    def all(self) -> dict[str, str]:
        local = _LOCAL if self.local else {}
        return {**_DEFAULTS, **local, "spark.master": self.master, **self.options, **_FIXED}

    @property
    def local(self) -> bool:
        """In this machine, rather than on executors of which there may be more when there is more to do."""
        return self.master.startswith("local")

    @property
    def hand_over_port(self) -> int:
        """0: any that is free."""
        port = self.options.get(_HAND_OVER_PORT, "0")
        if not port.isdecimal() or int(port) > _LAST_PORT:
            raise ConfigurationError([f"spark.conf.{_HAND_OVER_PORT}: found {port!r}; write a port, for example 7080"])
        return int(port)

    @property
    def python(self) -> str:
        """What runs the workers: on this machine the interpreter that has our packages, elsewhere what is there."""
        default = sys.executable if self.local else "python3"
        return self.options.get("spark.pyspark.python", default)


@dataclass(frozen=True, slots=True)
class Group:
    """Which changefeed a job is for, and which of its lanes: what is cancelled together."""

    changefeed: str
    lane: str

    def __str__(self) -> str:
        return f"{self.changefeed}/{self.lane}"


class SparkRunner:
    """Safe to use from many threads; `stop` may be called twice, and nothing runs after it."""

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
        """Starts Spark and a worker in the background, which takes seconds that the first table need not wait for."""
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
        """One task, one stage: the shortest way through Spark."""
        with _translated(group):
            self._enter(group)
            [answer] = self._single().mapPartitions(partial(_alone, task)).collect()
            return answer

    def run_each(self, group: Group, items: Sequence[T], task: Callable[[T], U]) -> list[U]:
        """One task for each item, as many at a time as there are cores; answers in the items' order."""
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
        """Two stages. `read` gives records with keys that begin with a bucket; `apply` gets a bucket's records in key order.

        `divide` is a stage between them: it gets records of higher buckets too, in key order, and gives each its final one.
        """
        with _translated(group):
            context = self._enter(group)
            records = context.parallelize(items, len(items)).flatMap(read)
            if divide is not None:
                records = records.repartitionAndSortWithinPartitions(buckets, _bucket).mapPartitions(divide)
            sorted_buckets = records.repartitionAndSortWithinPartitions(buckets, _bucket)
            return sorted_buckets.mapPartitions(partial(_bucketed, apply)).collect()

    def broadcast(self, value: T) -> Broadcast[T]:
        with _translated("broadcast"):
            return self._started().broadcast(value)

    def cancel(self, group: Group) -> None:
        """Its jobs end with an error soon. Python workers may go on for a while: only a `TaskPermit` stops their writes."""
        context = self._context
        if context is None:
            return
        try:
            context.cancelJobGroup(str(group))
        except _FAILURES as error:
            _log.warning("spark_job_not_cancelled", group=str(group), error=str(error).partition("\n")[0])

    def slots(self) -> int:
        """How many tasks can run at once, as far as Spark knows by now; 0: it has not started, or has died."""
        context = self._context
        if context is None:
            return 0
        try:
            return context.defaultParallelism
        except _FAILURES:
            return 0

    def divides(self) -> bool:
        """Whether a shuffle makes a window quicker: one task that reads while the target writes keeps two cores at work without one."""
        if self._divides is None:
            with _translated("slots"):
                self._divides = not self._settings.local or self._started().defaultParallelism >= _DIVIDING_SLOTS
        return self._divides

    def switchboard(self) -> Switchboard:
        """Where tasks reach this driver. Spark has been started."""
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
        """PySpark keeps one gateway for the whole life of a process: it has to be made to forget a dead one."""
        _log.error("spark_died")
        try:
            context.stop()
        except _FAILURES:
            context.stop()  # the first call stumbles over the JVM that is gone, the second ends what is here
        SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001 - there is no other way to get another JVM


def _dead(context: SparkContext) -> bool:
    """Its JVM is our own child."""
    gateway = context._gateway  # noqa: SLF001 - nothing public says it
    return gateway is not None and gateway.proc.poll() is not None


def _alone(task: Callable[[], T], numbers: Iterable[int]) -> Iterator[T]:
    """Takes all of its input: Spark throws a worker away that leaves some."""
    for _ in numbers:
        yield task()


def _nothing() -> None:
    """What a warm-up does, having loaded the modules that a window's task needs."""
    import_module("processor.task.window_task")


def _each(task: Callable[[T], U], items: Iterable[T]) -> Iterator[U]:
    return map(task, items)


def _bucketed(apply: Callable[[Iterator[Any]], U], records: Iterator[Any]) -> Iterator[U]:
    yield apply(records)


def _bucket(key: tuple[int, ...]) -> int:
    return key[0]


class _translated:  # noqa: N801 - reads as a function
    """What Spark itself fails at: tasks answer with their own errors.

    Any error, since PySpark stumbles over a JVM that dies in ways of its own: even an UnboundLocalError was seen.
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
