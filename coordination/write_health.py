"""`WatchedEtcd`: an `Etcd` that observes whether etcd accepts this process's writes.

etcd keeps leases alive and serves watches even while it refuses writes: when it is out of space, or when the right to write was
revoked. A node then keeps its session and sees every change, but can record nothing. So the result of each write is recorded, and
when none was sent for a while, a write is sent that changes nothing: a put behind a compare that never holds. etcd refuses it for the
same reasons as any other write, and it makes no new revision.

    accepted ──refused or unanswered──▶ failing ──PATIENCE──▶ in trouble: reported and logged
      ▲                                    │                      │
      └───────────── accepted ─────────────┴───── accepted ───────┘  logged if it was in trouble

An election of etcd's own leader takes a second or two, less than PATIENCE.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import structlog

from changefeed.errors import CoordinationRefused, CoordinationUnavailable, SluiceError
from changefeed.lifecycle import ErrorReport
from coordination.etcd.protocol import (
    Committed,
    Compare,
    CreateRevIs,
    Etcd,
    KeyValue,
    Lease,
    Op,
    Put,
    Refused,
    Snapshot,
    Watch,
)

PATIENCE = timedelta(seconds=2)
PROBE_EVERY = timedelta(seconds=3)
_LOOK_EVERY = timedelta(seconds=1)
"""And how soon a write that failed is tried again."""

_NEVER = 1
"""The revision of an empty etcd: no key was created at it."""

T = TypeVar("T")

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteRecord:
    """The results of the writes so far. All moments are monotonic seconds."""

    taken_at: float = float("-inf")
    """When the latest accepted write was sent."""
    failing_since: float | None = None
    error: SluiceError | None = None

    def taken(self, sent_at: float) -> WriteRecord:
        return replace(self, taken_at=max(self.taken_at, sent_at), failing_since=None, error=None)

    def failed(self, sent_at: float, error: SluiceError) -> WriteRecord:
        """A failed write does not count if a write that was sent later was accepted."""
        if sent_at < self.taken_at:
            return self
        since = sent_at if self.failing_since is None else self.failing_since
        return replace(self, failing_since=since, error=error)

    def trouble(self, now: float) -> SluiceError | None:
        lasts = self.failing_since is not None and now - self.failing_since >= PATIENCE.total_seconds()
        return self.error if lasts else None


class WatchedEtcd:
    """Between `start` and `stop` its own thread sends the writes that change nothing; a test calls `look` instead."""

    def __init__(self, etcd: Etcd, probe_key: str, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._etcd = etcd
        self._probe_key = probe_key
        self._monotonic = monotonic
        self._record = WriteRecord()
        self._reported: ErrorReport | None = None
        self._sent_at = float("-inf")
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="etcd-writes", daemon=True)

    @property
    def trouble(self) -> ErrorReport | None:
        """Why this process cannot write, and since when. None if it can."""
        return self._reported

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """May be called twice."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def look(self) -> None:
        """Send a write that changes nothing, unless a write was sent within `PROBE_EVERY`, or has just failed."""
        pause = PROBE_EVERY if self._record.error is None else _LOOK_EVERY
        if self._monotonic() - self._sent_at >= pause.total_seconds():
            with suppress(CoordinationUnavailable, CoordinationRefused):  # noted by `txn`
                self.txn((CreateRevIs(self._probe_key, _NEVER),), (Put(self._probe_key, b""),))
        self._report()

    def get(self, key: str) -> KeyValue | None:
        return self._etcd.get(key)

    def range(self, prefix: str, below: str = "", *, at_rev: int = 0) -> Snapshot:
        return self._etcd.range(prefix, below, at_rev=at_rev)

    def keys(self, prefix: str) -> Sequence[str]:
        return self._etcd.keys(prefix)

    def txn(self, compares: Sequence[Compare], ops: Sequence[Op]) -> Committed | Refused:
        """A transaction that only deletes is not counted: some releases accept it although they are out of space."""
        if not any(isinstance(op, Put) for op in ops):
            return self._etcd.txn(compares, ops)
        return self._noted(lambda: self._etcd.txn(compares, ops))

    def watch(self, prefix: str, start_rev: int, below: str = "") -> Watch:
        return self._etcd.watch(prefix, start_rev, below)

    def grant(self, ttl: timedelta) -> Lease:
        return self._noted(lambda: self._etcd.grant(ttl))

    def keep_alive(self, lease: int, timeout: timedelta) -> timedelta | None:
        return self._etcd.keep_alive(lease, timeout)

    def revoke(self, lease: int) -> None:
        self._etcd.revoke(lease)

    def time_to_live(self, lease: int) -> timedelta | None:
        return self._etcd.time_to_live(lease)

    def _noted(self, write: Callable[[], T]) -> T:
        sent_at = self._sent_at = self._monotonic()
        try:
            done = write()
        except (CoordinationUnavailable, CoordinationRefused) as error:
            with self._lock:
                self._record = self._record.failed(sent_at, error)
            raise
        with self._lock:
            self._record = self._record.taken(sent_at)
        if self._reported is not None:
            self._report()
        return done

    def _report(self) -> None:
        with self._lock:
            now, error = self._monotonic(), self._record.trouble(self._monotonic())
            if error is not None and self._reported is None:
                assert self._record.failing_since is not None
                since = datetime.now(UTC) - timedelta(seconds=now - self._record.failing_since)
                self._reported = ErrorReport.of(error, since)
                _log.error("etcd_takes_no_writes", code=error.code, error=str(error))
            elif self._record.error is None and self._reported is not None:
                seconds = (datetime.now(UTC) - self._reported.at).total_seconds()
                self._reported = None
                _log.info("etcd_takes_writes_again", seconds=round(seconds, 1))

    def _run(self) -> None:
        while not self._stopping.wait(_LOOK_EVERY.total_seconds()):
            self.look()
