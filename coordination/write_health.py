"""`EtcdWrites`: observes whether etcd accepts this process's writes.

etcd keeps leases alive and serves watches even while it refuses writes: when it is out of space, or when the right to write was
revoked. A node then keeps its session and sees every change, but can record nothing. So every few seconds a write is sent that changes
nothing: a put behind a compare that never holds. etcd refuses it for the same reasons as any other write, and it makes no new revision.

    accepted ──refused or unanswered──▶ failing ──PATIENCE──▶ in trouble: reported and logged
      ▲                                    │                      │
      └───────────── accepted ─────────────┴───── accepted ───────┘  logged if it was in trouble

An election of etcd's own leader takes a second or two, less than PATIENCE.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import structlog

from changefeed.errors import CoordinationRefused, CoordinationUnavailable, SluiceError
from changefeed.lifecycle import ErrorReport
from coordination.etcd.protocol import CreateRevIs, Etcd, Put

PATIENCE = timedelta(seconds=2)
PROBE_EVERY = timedelta(seconds=3)
_LOOK_EVERY = timedelta(seconds=1)
"""And how soon a write that failed is tried again."""

_NEVER = 1
"""The revision of an empty etcd: no key was created at it."""

_log = structlog.get_logger()


class EtcdWrites:
    """Between `start` and `stop` its own thread sends the writes; a test calls `look` instead."""

    def __init__(self, etcd: Etcd, probe_key: str, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._etcd = etcd
        self._probe_key = probe_key
        self._monotonic = monotonic
        self._sent_at = float("-inf")
        self._failing_since: float | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="etcd-writes", daemon=True)
        self.trouble: ErrorReport | None = None
        """Why this process cannot write, and since when. None if it can."""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """May be called twice."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def look(self) -> None:
        now = self._monotonic()
        if self._failing_since is None and now - self._sent_at < PROBE_EVERY.total_seconds():
            return
        self._sent_at = now
        try:
            self._etcd.txn((CreateRevIs(self._probe_key, _NEVER),), (Put(self._probe_key, b""),))
        except (CoordinationUnavailable, CoordinationRefused) as error:
            self._failed(error, now)
        else:
            self._accepted()

    def _failed(self, error: SluiceError, sent_at: float) -> None:
        since = self._failing_since = sent_at if self._failing_since is None else self._failing_since
        lasts = self._monotonic() - since
        if self.trouble is None and lasts >= PATIENCE.total_seconds():
            self.trouble = ErrorReport.of(error, datetime.now(UTC) - timedelta(seconds=lasts))
            _log.error("etcd_takes_no_writes", code=error.code, error=str(error))

    def _accepted(self) -> None:
        self._failing_since = None
        if self.trouble is not None:
            seconds = (datetime.now(UTC) - self.trouble.at).total_seconds()
            self.trouble = None
            _log.info("etcd_takes_writes_again", seconds=round(seconds, 1))

    def _run(self) -> None:
        while not self._stopping.wait(_LOOK_EVERY.total_seconds()):
            self.look()
