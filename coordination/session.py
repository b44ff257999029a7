"""`Session`: a node's life in etcd, and the certainty of when it ends.

A lease carries the node's key. Losing it is final: a node that goes on does so in a new session, under a new id.

`lost` fires before the server can have let the lease expire. etcd counts a lease's time from when it handled a keep-alive, which is
after we sent it; so TTL from the *send* time of the last keep-alive that was answered is a moment at which the lease still lives, and
`lost` comes a margin earlier: time to stop what writes downstream.

    sent          answered                                    lost        expired at the earliest
    ├────────────────┤                                         │                │
    0                                                       TTL - margin       TTL          (monotonic clock of this machine)

Clocks are never compared, only durations. A process that was stopped and continued asks the clock before it trusts anything: `alive`
says no at once, whether or not a thread has got round to firing `lost`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta

import structlog

from changefeed.errors import InvariantError, RetryableError
from changefeed.records import NodeId, NodeRecord
from coordination.etcd.protocol import CreateRevIs, Etcd, Put, Refused
from coordination.fenced import FencedStore
from coordination.interruption import Interruption
from coordination.layout import Layout, encode

DEFAULT_TTL = timedelta(seconds=10)

Monotonic = Callable[[], float]

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionClock:
    """When to keep alive, and when the lease may no longer be trusted. All moments are monotonic seconds."""

    ttl: timedelta
    renewed_at: float

    @property
    def margin(self) -> timedelta:
        return self.ttl / 5

    @property
    def keep_alive_at(self) -> float:
        return self.renewed_at + self.ttl.total_seconds() / 4

    @property
    def retry_after(self) -> timedelta:
        return self.ttl / 20

    @property
    def lost_at(self) -> float:
        return self.renewed_at + (self.ttl - self.margin).total_seconds()

    def alive(self, now: float) -> bool:
        return now < self.lost_at

    def renewed(self, sent_at: float, ttl: timedelta) -> SessionClock:
        """`ttl` is the server's, which may not grant what was asked."""
        return replace(self, renewed_at=max(self.renewed_at, sent_at), ttl=ttl)

    def timeout(self, now: float) -> timedelta:
        """How long one keep-alive may take: short enough that another one fits in before the end."""
        return timedelta(seconds=max(min(self.ttl.total_seconds() / 4, self.lost_at - now), 0.0))


class Session:
    """Opened by `open_session`; over after `close`, or by itself: `lost` is then set, and stays set.

    `start` gives it a thread that keeps it alive; a simulation calls `tick` instead.
    """

    def __init__(
        self, etcd: Etcd, clock: SessionClock, monotonic: Monotonic, *, lease: int, node: NodeId, key: str
    ) -> None:
        self._etcd = etcd
        self._clock = clock
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._log = _log.bind(node=node)
        self._trouble = Interruption(self._log, "keep_alive_failed", "keep_alive_goes_on", monotonic)
        self.lease = lease
        self.node = node
        self.key = key
        self.lost = threading.Event()

    @property
    def alive(self) -> bool:
        """Final once it is False, even if an answer to a keep-alive is on its way."""
        with self._lock:
            if not self._clock.alive(self._monotonic()):
                self._lose("no keep-alive was answered in time")
            return not self.lost.is_set()

    @property
    def lost_at(self) -> float:
        """Monotonic moment up to which, as far as is known now, the session lives."""
        return self._clock.lost_at

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name=f"session {self.node}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """May be called twice. First `lost`, so that nobody still writes when others see the node gone; then the lease."""
        with self._lock:
            self._lose("closed")
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
        try:
            self._etcd.revoke(self.lease)
        except RetryableError as error:
            self._log.warning("lease_left_to_expire", error=str(error))

    def tick(self) -> None:
        """Keep alive if it is time to."""
        now = self._monotonic()
        if not self.alive or now < self._clock.keep_alive_at:
            return
        try:
            ttl = self._etcd.keep_alive(self.lease, self._clock.timeout(now))
        except RetryableError as error:
            self._trouble.met(error, seconds_left=self._clock.lost_at - self._monotonic())
            return
        self._trouble.over()
        if ttl is None:
            with self._lock:
                self._lose("the lease is gone")
        elif self.alive:
            with self._lock:
                self._clock = self._clock.renewed(now, ttl)

    def _run(self) -> None:
        try:
            while self.alive:
                self.tick()
                now = self._monotonic()
                late = max(self._clock.keep_alive_at - now, self._clock.retry_after.total_seconds())
                self._wake.wait(min(late, max(self._clock.lost_at - now, 0.0)))
        except Exception:
            self._log.exception("session_failed")
            with self._lock:
                self._lose("its thread failed")
            raise

    def _lose(self, reason: str) -> None:
        if not self.lost.is_set():
            self._log.info("session_over", reason=reason)
            self.lost.set()


def open_session(
    etcd: Etcd,
    layout: Layout,
    *,
    name: str,
    describe: Callable[[NodeId], NodeRecord],
    ttl: timedelta = DEFAULT_TTL,
    monotonic: Monotonic = time.monotonic,
) -> tuple[Session, FencedStore]:
    """A live session under a new node id, and the store for writes that only this node can make.

    When it fails half way, what it left in etcd expires by itself; open another.
    """
    sent_at = monotonic()
    lease = etcd.grant(ttl)
    node = NodeId(f"{name}-{lease.id:x}")
    key = layout.node(node)
    result = etcd.txn((CreateRevIs(key, 0),), (Put(key, encode(describe(node)), lease.id),))
    if isinstance(result, Refused):
        raise InvariantError(f"{key}: expected no such key before the session, found {result.found[key]}")
    clock = SessionClock(ttl=lease.ttl, renewed_at=sent_at)
    session = Session(etcd, clock, monotonic, lease=lease.id, node=node, key=key)
    return session, FencedStore(etcd, key=key, epoch=result.revision)
