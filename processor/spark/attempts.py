"""`Attempts`: an attempt that Spark lost sight of has ended only when nothing of it can write any more.

Spark says that a job failed while its tasks may still be at work: in an executor that was cut off, in a Python worker that outlives its
Spark task, behind a JVM that died. Their node lives and their run goes on, so their permits would stay good, and what they write would come
after what the next attempt writes. So each attempt has a key of its own in etcd, which revokes it, and its tasks look for that key whenever they
look at etcd (`TaskPermit`). Whoever waits for the attempt waits on:

    100.0  executor lost: the attempt's key is written, acknowledged at 100.1
           its task looked at 100.05 for the last time without seeing it: it may write until 110.05
    110.1  the attempt has ended with its error; its tables are free, and the window is tried again as a replay

Until then the job counts as running in every respect: no other job has its tables, they are not handed over, and a run does not end. The key
lasts as long as the node's lease, since a task that wakes up late must find it as long as it finds its node.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

import structlog

from changefeed.errors import RetryableError
from changefeed.records import NodeId
from coordination.epoch_guard import BUDGET
from coordination.etcd.protocol import Put
from coordination.fenced import FencedStore
from coordination.layout import Layout

_RETRY = timedelta(milliseconds=500)

T = TypeVar("T")

_log = structlog.get_logger()


class Attempts:
    """Of one node in one session; for many threads."""

    def __init__(
        self,
        store: FencedStore,
        layout: Layout,
        node: NodeId,
        lease: int,
        over: threading.Event,
        *,
        budget: timedelta = BUDGET,
    ) -> None:
        """`over`: the session has ended, and with it whatever it allowed; nobody waits for an attempt any more."""
        self._store = store
        self._layout = layout
        self._node = node
        self._lease = lease
        self._over = over
        self._budget = budget
        self._numbers = itertools.count(1)

    def new(self) -> str:
        """The key of one attempt more. Only an attempt that is lost has anything there."""
        return self._layout.revoked(self._node, next(self._numbers))

    def until_over(self, attempt: str, work: Callable[[], T]) -> T:
        """What the work answers or raises, once nothing of it can write any more."""
        try:
            return work()
        except Exception as error:  # tasks answer with their errors: whatever is raised says nothing of them
            self._revoke(attempt, str(error))
            raise

    def _revoke(self, attempt: str, reason: str) -> None:
        _log.warning("attempt_revoked", attempt=attempt, node=self._node, reason=reason)
        while not self._over.is_set():
            try:
                self._store.settle()
                self._store.commit([Put(attempt, b"{}", self._lease)])
            except RetryableError as error:
                _log.warning("attempt_not_revoked_yet", attempt=attempt, error=str(error))
                self._over.wait(_RETRY.total_seconds())
            else:
                self._over.wait(self._budget.total_seconds())
                return
