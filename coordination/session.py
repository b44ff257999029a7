"""`Session`: a node's lease in etcd, and how long the lease is certainly valid.

The node's key has the lease. Its loss is final: the node goes on only in a new session, under a new id.

`lost` is set before the lease can expire at the server. etcd counts a lease's time from when it handled a keep-alive, which is after
the node sent it. So the lease is valid at least until the *send* time of the last answered keep-alive plus TTL. `lost` is set a margin
earlier, which is the time to stop all writes downstream.

    sent          answered                                    lost        expired at the earliest
    ├────────────────┤                                         │                │
    0                                                       TTL - margin       TTL          (monotonic clock of this machine)

Only durations are compared, never clocks of two machines. `alive` reads the clock itself: in a process that was stopped and continued
it is False at once, even if no thread has set `lost` yet.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta

import structlog

from changefeed.errors import InvariantError, RetryableError
from changefeed.records.node import NodeId, NodeRecord
from coordination.etcd.protocol import CreateRevIs, Etcd, Put, Refused
from coordination.fenced import FencedStore
from coordination.layout import Layout, encode
from credentials.logging import Interruption

DEFAULT_TTL = timedelta(seconds=10)

Monotonic = Callable[[], float]

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionClock:
    """When to send a keep-alive, and from when the lease may have expired. All moments are monotonic seconds."""

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
        """`ttl` is the server's, which may differ from the requested one."""
        return replace(self, renewed_at=max(self.renewed_at, sent_at), ttl=ttl)

    def timeout(self, now: float) -> timedelta:
        """How long one keep-alive may take: short enough that another one fits in before the end."""
        return timedelta(seconds=max(min(self.ttl.total_seconds() / 4, self.lost_at - now), 0.0))


class Session:
    """Opened by `open_session`. It ends by `close` or by itself: `lost` is then set, and stays set.

    `start` starts a thread that keeps it alive; a simulation calls `tick` instead.
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
        """Once False, it stays False, even if the answer to a keep-alive still arrives."""
        with self._lock:
            if not self._clock.alive(self._monotonic()):
                self._lose("no keep-alive was answered in time")
            return not self.lost.is_set()

    @property
    def lost_at(self) -> float:
        """The monotonic moment until which the session is alive, as known now."""
        return self._clock.lost_at

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name=f"session {self.node}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """May be called twice. Sets `lost` first, so that this node has stopped writing when others see it gone; then revokes the lease."""
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
        """Send a keep-alive if one is due."""
        now = self._monotonic()
        if not self.alive or now < self._clock.keep_alive_at:
            return
        try:
            ttl = self._etcd.keep_alive(self.lease, self._clock.timeout(now))
        except RetryableError as error:
            self._trouble.occurred(error, seconds_left=self._clock.lost_at - self._monotonic())
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

    If it fails halfway, its keys in etcd expire by themselves: open another session.
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
