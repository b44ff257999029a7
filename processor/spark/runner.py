"""`SparkRunner`: the node's one Spark session. It starts when first needed, is shared by all changefeeds, and stops with the node.

A dead JVM (out of memory, killed) and an application that its cluster has ended are noticed when the next job starts, and replaced. Their
jobs count as lost: the Python workers may outlive them (`Attempts`). On a cluster, jobs do not wait for executors without end
(`ExecutorWatch`).

Nothing is sent to executors but pickles: they import our packages, of the same release, from the interpreter that `spark.pyspark.python`
names there.

PySpark pins each Python thread to a JVM thread, so a job's group and pool are those of the thread that runs it. Jobs of one changefeed
share a pool, and pools share the cores fairly.

Spark never repeats a task: a lane tries its window again, and then knows that it replays. Speculation stays off, since two copies of a
task would write the same rows.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from importlib import import_module
from importlib.metadata import version
from typing import Any, TypeVar, cast

import structlog
from py4j.clientserver import ClientServer
from py4j.protocol import Py4JError
from pyspark import RDD, Broadcast, SparkConf, SparkContext, TaskContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway

from changefeed.errors import PipelineUnavailable, SluiceError
from credentials.logging import VARIABLE
from processor.spark.cause import cause_of
from processor.spark.jvm import ExecutorWatch, JvmLog, SparkHealth, health_of, java_of
from processor.spark.settings import SparkSettings
from processor.task.channel import Switchboard

_RELEASE = version("sluice")

_DIVIDING_SLOTS = 4
_ANSWER_SECONDS = 2.0
_LOG_FORMAT = f"spark.executorEnv.{VARIABLE}"

_FAILURES = (Py4JError, PySparkException, ConnectionError, EOFError)

T = TypeVar("T")
U = TypeVar("U")

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Group:
    """The changefeed and the lane that a job is for. The jobs of a group are cancelled together."""

    changefeed: str
    lane: str

    def __str__(self) -> str:
        return f"{self.changefeed}/{self.lane}"


class SparkRunner(AbstractContextManager["SparkRunner"]):
    """Thread-safe. `stop` may be called twice, and nothing runs after it."""

    def __init__(self, settings: SparkSettings | None = None, *, patience: timedelta | None = None) -> None:
        """`patience`: how long jobs wait on a cluster that has no executor for them; by default `SparkSettings.patience`."""
        self._settings = settings or SparkSettings()
        self._lock = threading.Lock()
        self._context: SparkContext | None = None
        self._patience = patience or self._settings.patience
        self._watch = ExecutorWatch(self.slots, self._give_up, patience=self._patience)
        self._given_up: SparkContext | None = None
        self._one: RDD[int] | None = None
        self._stopped = False
        self._asking = ThreadPoolExecutor(1, thread_name_prefix="spark-health")

    def __exit__(self, *_: object) -> None:
        self.stop()

    def probe(self) -> None:
        """Starts Spark and a worker if there is none, and runs a job that does nothing. This takes seconds at first."""
        self.run_one(Group("sluice", "probe"), _nothing)

    def stop(self) -> None:
        self._watch.stop()
        self._asking.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            self._stopped = True
            context, self._context = self._context, None
        if context is not None:
            context.stop()

    def run_one(self, group: Group, task: Callable[[], T]) -> T:
        """Runs one task in one stage: the fastest kind of Spark job."""
        with self._job(group):
            assert self._one is not None
            [answer] = self._one.mapPartitions(partial(_alone, _RELEASE, task)).collect()
            return answer

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
        with self._job(group) as context:
            records = context.parallelize(items, len(items)).flatMap(partial(_read, _RELEASE, read))
            if divide is not None:
                records = records.repartitionAndSortWithinPartitions(buckets, _bucket).mapPartitions(divide)
            sorted_buckets = records.repartitionAndSortWithinPartitions(buckets, _bucket)
            return sorted_buckets.mapPartitions(partial(_bucketed, _RELEASE, apply)).collect()

    def broadcast(self, value: T) -> Broadcast[T]:
        with _translated("broadcast"):
            return self._started().broadcast(value)

    def cancel(self, group: Group) -> None:
        """The jobs of the group end with an error soon. Python workers may go on for a while: only a `TaskPermit` stops their writes."""
        context = self._context
        if context is None:
            return
        try:
            java_of(context).cancelJobGroup(str(group))
        except _FAILURES as error:
            _log.warning("spark_job_not_cancelled", group=str(group), error=str(error).partition("\n")[0])

    def slots(self) -> int:
        """How many tasks can run at once on the executors that Spark has now. 0: it has none, has not started, or has died."""
        context = self._context
        if context is None:
            return 0
        try:
            return _slots(context)
        except _FAILURES:
            return 0

    def executors(self) -> int:
        """Where tasks may run: at least one. This machine is one."""
        health = None if self._settings.local else self.health()
        return max(1, health.executors) if health is not None else 1

    def health(self) -> SparkHealth | None:
        """None: Spark has not started, has died, or does not answer. Its one thread asks, since the JVM keeps a thread for each of ours."""
        context = self._context
        if context is None:
            return None
        try:
            return self._asking.submit(lambda: health_of(context, _slots(context))).result(_ANSWER_SECONDS)
        except (*_FAILURES, TimeoutError, RuntimeError):
            return None

    def divides(self) -> bool:
        """Whether a shuffle makes a window faster. It costs each event as much again, and without one a task that reads while the target
        writes already keeps two cores busy. Where executors come with the load, only many tasks bring them.
        """
        if self._settings.grows:
            return True
        with _translated("slots"):
            return _slots(self._started()) >= _DIVIDING_SLOTS

    def switchboard(self) -> Switchboard:
        """Opens the port where tasks reach this driver. Starts Spark if needed."""
        with _translated("hand-over"):
            conf = self._started().getConf()
        host = conf.get("spark.driver.host") or "127.0.0.1"
        return Switchboard(conf.get("spark.driver.bindAddress") or host, host, self._settings.hand_over_port)

    @contextmanager
    def _job(self, group: Group) -> Iterator[SparkContext]:
        with _translated(group):
            context = self._started()
            context.setJobGroup(str(group), str(group), interruptOnCancel=True)
            context.setLocalProperty("spark.scheduler.pool", group.changefeed)
            try:
                with self._watch.job():
                    yield context
            except _FAILURES as error:
                if self._given_up is context:
                    raise self._without_executors(group) from error
                if not self._settings.local and _stopped(context):
                    raise PipelineUnavailable(
                        f"Spark, {group}: {self._settings.master} cannot be reached, or has ended this node's application: {cause_of(error)}"
                    ) from error
                raise

    def _without_executors(self, group: Group) -> PipelineUnavailable:
        return PipelineUnavailable(
            f"Spark, {group}: {self._settings.master} gave this node no executor within {self._patience.total_seconds():g} s; "
            "check that its workers run, and that they have the free cores and the memory that one executor asks for "
            "(spark.executor.cores, spark.executor.memory, and spark.cores.max of all nodes together)"
        )

    def _started(self) -> SparkContext:
        with self._lock:
            if self._stopped:
                raise PipelineUnavailable("Spark has been stopped with its node")
            if self._context is not None and (_dead(self._context) or _stopped(self._context)):
                _log.error("spark_died", jvm="dead" if _dead(self._context) else "alive")
                _bury(self._context)
                self._context = None
            if self._context is None:
                self._context = self._start()
                self._one = self._context.parallelize([0], 1)
                if not self._settings.local:
                    self._watch.start()
            return self._context

    def _start(self) -> SparkContext:
        settings = self._settings.all()
        try:
            conf = SparkConf().setAll(list(settings.items()))
            context = SparkContext(conf=conf, gateway=_gateway(conf) if _LOG_FORMAT in settings else None)
        except _FAILURES as error:
            raise PipelineUnavailable(f"Spark, start: {self._not_started()}: {cause_of(error)}") from error
        context.pythonExec = self._settings.python
        context.setLogLevel(settings["spark.log.level"])
        _log.info("spark_started", master=context.master, version=context.version, application=context.applicationId)
        return context

    def _not_started(self) -> str:
        if not self._settings.local:
            return f"{self._settings.master} cannot be reached, or refuses this node's application"
        home = os.environ.get("JAVA_HOME")
        where = f"JAVA_HOME ({home})" if home else "the PATH"
        return f"it cannot start on this machine; check that {where} has a JDK 17 or newer, and that spark.driver.memory fits"

    def _give_up(self) -> None:
        """The jobs of the application end with an error, and the next job starts another application."""
        with self._lock:  # until it has stopped: a process has one context at a time
            context, self._context = self._context, None
            self._given_up = context
            if context is not None:
                _log.error("spark_without_executors", master=self._settings.master)
                _bury(context)


def _gateway(conf: SparkConf) -> ClientServer | None:
    """A JVM whose standard error goes into the node's log. None: there is one already, which PySpark takes."""
    if SparkContext._gateway is not None:  # noqa: SLF001 - there is no public attribute for it
        return None
    log = JvmLog()
    try:
        return cast("ClientServer", launch_gateway(conf, {"stderr": log.stderr}))  # type: ignore[no-untyped-call]
    finally:
        log.close()


def _bury(context: SparkContext) -> None:
    """Asks a dead JVM nothing. PySpark keeps one gateway for the life of the process. This makes it forget a dead one."""
    try:
        context.stop()
    except _FAILURES:
        context.stop()  # the first call fails since the JVM is dead, the second cleans up in this process
    if _dead(context):
        SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001 - there is no other way to get another JVM


def _stopped(context: SparkContext) -> bool:
    """A cluster may end an application: its master cannot be reached, or too many of its executors have failed."""
    try:
        return bool(java_of(context).isStopped())  # Python does not learn of it
    except _FAILURES:
        return False  # the JVM is about to die


def _dead(context: SparkContext) -> bool:
    """The JVM is a child process of this process."""
    gateway = context._gateway  # noqa: SLF001 - there is no public attribute for it
    return gateway is not None and gateway.proc.poll() is not None


def _slots(context: SparkContext) -> int:
    """`defaultParallelism` says 2 where an executor has one core, or where there is no executor."""
    java = java_of(context)
    return int(java.maxNumConcurrentTasks(java.resourceProfileManager().defaultResourceProfile()))


def _alone(release: str, task: Callable[[], T], numbers: Iterable[int]) -> Iterator[T]:
    """Reads all of its input: Spark discards a worker that leaves some unread."""
    _check(release)
    for _ in numbers:
        yield task()


def _nothing() -> None:
    """The task of a probe: loads the modules that a window's task needs."""
    import_module("processor.task.window_task")


def _read(release: str, read: Callable[[T], Iterator[tuple[Any, Any]]], item: T) -> Iterator[tuple[Any, Any]]:
    _check(release)
    return read(item)


def _bucketed(release: str, apply: Callable[[Iterator[Any]], U], records: Iterator[Any]) -> Iterator[U]:
    _check(release)
    yield apply(records)


def _check(release: str) -> None:
    """Refuses a task of another release: it would be understood in part. Refuses a repeated task: Spark repeats the tasks of a lost executor,
    which may still be writing, and a table would have two writers.
    """
    if release != _RELEASE:
        raise PipelineUnavailable(
            f"{socket.gethostname()} has release {_RELEASE} of Sluice for Spark's Python workers, and the node has {release}; install the "
            "node's release there"
        )
    context = TaskContext.get()
    if context is not None and context.attemptNumber():
        raise PipelineUnavailable(
            "Spark repeats a task whose first attempt may still be running; its job has to start again"
        )


def _bucket(key: tuple[int, ...]) -> int:
    return key[0]


@contextmanager
def _translated(doing: Group | str) -> Iterator[None]:
    """Translates errors of Spark itself to `PipelineUnavailable`. Tasks return their own errors.

    Every exception is translated, since PySpark raises unexpected ones when a JVM dies: even an UnboundLocalError was seen.
    """
    try:
        yield
    except SluiceError:
        raise
    except Exception as error:
        if not isinstance(error, _FAILURES):
            _log.exception("spark_stumbled", doing=str(doing))
        raise PipelineUnavailable(f"Spark, {doing}: {cause_of(error)}") from error
