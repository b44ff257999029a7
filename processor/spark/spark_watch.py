"""`SparkWatch`: finds out whether the node's Spark can run jobs: from its windows and copies, and by probes where these say nothing (`Fitness`)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import structlog

from changefeed.errors import PipelineUnavailable, SluiceError
from changefeed.lifecycle import ErrorReport
from changefeed.records.node import NodeHealth
from processor.spark.fitness import Fitness

_LOOK_EVERY = timedelta(milliseconds=500)
_CALM = timedelta(minutes=1)

_log = structlog.get_logger()


class SparkWatch:
    """Probes between `start` and `stop`, one at a time. Thread-safe."""

    def __init__(self, probe: Callable[[], None]) -> None:
        """`probe` runs a job that does nothing, or raises. It may take minutes."""
        self._probe = probe
        self._lock = threading.Lock()
        self._fitness = Fitness(probe_at=time.monotonic())
        self._probing = False
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="spark-watch", daemon=True)

    @property
    def health(self) -> NodeHealth:
        return self._fitness.health

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """May be called twice. A probe that is running ends with Spark."""
        self._stopping.set()
        self._wake.set()

    @contextmanager
    def job(self) -> Iterator[None]:
        """A job runs. The errors of its tasks say nothing about Spark."""
        try:
            yield
        except PipelineUnavailable as error:
            self.failed(error)
            raise
        self.ran()

    def ran(self) -> None:
        """A job has ended well."""
        self._change(lambda fitness, now: fitness.ran(now))

    def failed(self, error: SluiceError) -> None:
        """A job has failed in Spark."""
        report = ErrorReport.of(error, datetime.now(UTC))
        self._change(lambda fitness, now: fitness.failed(report, now))

    def _change(self, step: Callable[[Fitness, float], Fitness]) -> None:
        with self._lock:
            before, self._fitness = self._fitness, step(self._fitness, time.monotonic())
            after = self._fitness
        if after.ready and not before.ready:
            _log.info("spark_ready")
        elif before.ready and not after.ready:
            _log.error("spark_unfit", error=after.error and after.error.message)
        if after.probe_at != before.probe_at:
            self._wake.set()

    def _watch(self) -> None:
        while not self._stopping.is_set():
            self._wake.clear()
            self._change(lambda fitness, now: fitness.looked(now))
            if self._due():
                self._probing = True
                threading.Thread(target=self._run_probe, name="spark-probe", daemon=True).start()
            calm = self._fitness.ready and self._fitness.probe_at is None
            self._wake.wait((_CALM if calm else _LOOK_EVERY).total_seconds())

    def _due(self) -> bool:
        at = self._fitness.probe_at
        return not self._probing and at is not None and time.monotonic() >= at

    def _run_probe(self) -> None:
        try:
            self._probe()
        except SluiceError as error:
            if not self._stopping.is_set():
                _log.warning("spark_probe_failed", error=str(error))
                report = ErrorReport.of(error, datetime.now(UTC))
                self._change(lambda fitness, now: fitness.probe_failed(report, now))
        else:
            self.ran()
        finally:
            self._probing = False
            self._wake.set()
