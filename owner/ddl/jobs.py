"""`DdlJobs`: looks at the sink and applies DDLs to it in worker threads, so that the owner's tick never waits.

A job's outcome is a `DdlProgress` that the next tick reads. A job that outlives the owner's term is harmless: its outcome is not read,
and the new owner compares the target with the DDL's record, so that the DDL is applied once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime
from functools import partial
from typing import assert_never

import structlog

from changefeed.errors import FencedError, InvariantError, RetryableError, SluiceError
from changefeed.position import Position
from changefeed.records.ddl import DdlRecord, Observation
from changefeed.records.requests import ChangefeedId
from coordination import failpoint
from credentials.redaction import redacted
from owner.background import Workers
from owner.ddl.execution import Applied, Apply, DdlProgress, Failed, Observe, Observed, Running
from sink.ddl import CreateIndexes, DdlApplier, DownstreamDdl, RenameTable, ShardTable, names_of

_log = structlog.get_logger()

_THREADS = 64
"""The most DDLs without overlapping scopes that run side by side. The threads are idle most of the time."""

_MAY_TAKE_LONG = (CreateIndexes, RenameTable, ShardTable)
_BACKGROUND_THREADS = 16
"""Separate threads, so that index builds, however many and long, do not delay a DDL that holds rows."""


class DdlJobs:
    """`open_sink` connects at the first job. `translate` gives a record's DDL in the sink's names. `enter` surrounds each short call."""

    def __init__(
        self,
        open_sink: Callable[[], DdlApplier],
        translate: Callable[[DdlRecord], DownstreamDdl],
        wake: Callable[[], None],
        enter: Callable[[DdlJobs], AbstractContextManager[None]],
    ) -> None:
        self._open_sink = open_sink
        self._translate = translate
        self._wake = wake
        self._enter = enter
        self._lock = threading.Lock()
        self._progress: dict[Position, DdlProgress] = {}
        self._sink: DdlApplier | None = None
        self._workers = Workers("ddl", _THREADS)
        self._background = Workers("background-ddl", _BACKGROUND_THREADS)
        self._closed = False

    @property
    def progress(self) -> Mapping[Position, DdlProgress]:
        with self._lock:
            return dict(self._progress)

    def start(self, job: Observe | Apply) -> None:
        """A DDL that cannot be translated to the sink's names fails at once."""
        try:
            ddl = self._translate(job.record)
        except Exception as error:  # noqa: BLE001  # what one DDL says concerns its tables
            self._end(job, self._failed(job, _as_ours(error, job)))
            return
        with self._lock:
            self._progress[job.record.position] = Running()
        workers = self._background if job.record.background else self._workers
        workers.submit(partial(self._run, job, ddl))

    def fail(self, record: DdlRecord, error: SluiceError) -> None:
        """It cannot be begun."""
        job = Apply(record)
        self._end(job, self._failed(job, error))

    def forget(self, positions: Iterable[Position]) -> None:
        with self._lock:
            for position in positions:
                self._progress.pop(position, None)

    def forget_failures(self) -> None:
        """A resumed changefeed tries again."""
        with self._lock:
            failed = [position for position, progress in self._progress.items() if isinstance(progress, Failed)]
        self.forget(failed)

    def close(self) -> None:
        """Starts no further job. A running command cannot be cancelled: the successor waits for it (`InFlightDdl`)."""
        self._workers.close()
        self._background.close()
        with self._lock:
            self._closed = True
            sink, self._sink = self._sink, None
        if sink is not None:
            sink.close()

    def _run(self, job: Observe | Apply, ddl: DownstreamDdl) -> None:
        try:
            outcome = self._outcome(job, ddl)
        except Exception as error:  # noqa: BLE001  # the edge of a thread
            if self._closed and not isinstance(error, SluiceError):
                return
            outcome = self._failed(job, _as_ours(error, job))
        self._end(job, outcome)

    def _end(self, job: Observe | Apply, outcome: DdlProgress) -> None:
        with self._lock:
            self._progress[job.record.position] = outcome
        self._wake()

    def _outcome(self, job: Observe | Apply, ddl: DownstreamDdl) -> DdlProgress:
        sink = self._connected()
        match job:
            case Observe(record):
                failpoint.reach("ddl_due", record.event.type, record.event.db)
                return Observed(sink.observe(names_of(ddl)))
            case Apply(record):
                failpoint.reach("ddl_executing", record.event.type, record.event.db)
                with nullcontext() if isinstance(ddl, _MAY_TAKE_LONG) else self._enter(self):
                    note = sink.apply(ddl, _recorded(record), record)
                failpoint.reach("ddl_applied", record.event.type, record.event.db)
                return Applied(note)
            case never:
                assert_never(never)

    def _failed(self, job: Observe | Apply, error: SluiceError) -> Failed:
        _log.warning("ddl_failed", ddl=str(job.record.event), code=error.code, error=str(error))
        delay = error.retry_after.total_seconds() if isinstance(error, RetryableError) else 0.0
        return Failed(error, datetime.now(UTC), time.monotonic() + delay)

    def _connected(self) -> DdlApplier:
        with self._lock:
            if self._closed:
                raise FencedError("these DDL jobs are closed; nothing more is sent to the sink")
            if self._sink is None:
                self._sink = self._open_sink()
            return self._sink


def _as_ours(error: Exception, job: Observe | Apply) -> SluiceError:
    if isinstance(error, SluiceError):
        return error
    _log.error("ddl_job_broke", ddl=str(job.record.event), exc_info=error)
    return InvariantError(
        f"{job.record.event}: {redacted(repr(error))}; leave its table out (filter.tables) by `sluice changefeed update`, drop it at the target, and take it in again: then it "
        "is copied as it is by then"
    )


def _recorded(record: DdlRecord) -> Observation:
    if record.before is None:
        raise InvariantError(f"{record.event} is executing: expected a recorded observation of the target, found none")
    return record.before


class InFlightDdl:
    """The short DDL calls of one term that a sink has not answered yet. Thread-safe. `permit` returns how many seconds a command may last.

    A successor (the next owner, or the new jobs of a restarted changefeed) waits for its predecessor's calls: no UUID guards a create, so a
    create that took effect after the successor's drop would bring the table back. The commands end with the session at the latest
    (`sink/mongodb/ddl/ddl_commands.py`), which limits the wait. Index builds, renames and sharding may take hours and are not included.
    """

    def __init__(self, permit: Callable[[], float]) -> None:
        self._permit = permit
        self._changed = threading.Condition()
        self._calls: list[tuple[ChangefeedId, object]] = []

    @contextmanager
    def call(self, changefeed: ChangefeedId, jobs: object) -> Iterator[None]:
        """A call of `jobs`. It starts when the calls of the changefeed's earlier jobs have ended or can no longer have an effect."""
        call = (changefeed, jobs)
        with self._changed:
            self._changed.wait_for(
                lambda: all(id != changefeed or other is jobs for id, other in self._calls), timeout=self._permit()
            )
            self._calls.append(call)
        try:
            yield
        finally:
            with self._changed:
                self._calls.remove(call)
                self._changed.notify_all()

    def wait(self, seconds: float) -> None:
        """Waits until no call is left, but at most `seconds`."""
        with self._changed:
            self._changed.wait_for(lambda: not self._calls, timeout=max(0.0, seconds))
