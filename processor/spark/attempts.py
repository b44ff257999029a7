"""`Attempts`: an attempt that Spark has lost counts as ended only when none of its tasks can write any more.

Spark reports a job as failed while its tasks may still be running: in an executor that was cut off, in a Python worker that outlives its
Spark task, or after the JVM died. Their node lives and their run goes on, so their permits would stay valid, and they could write after
the next attempt. So each attempt has a key of its own in etcd that revokes it, and its tasks look for that key whenever they look at etcd
(`TaskPermit`). The thread that runs the attempt goes on waiting:

    100.0  executor lost: the attempt's key is written, acknowledged at 100.1
           its task looked last at 100.05 and did not see the key: it may write until 110.05
    110.1  the attempt has ended with its error; its tables are free, and the window is tried again as a replay

Until then the job counts as running in every respect: no other job has its tables, they are not released, and the run does not end. The
key lasts as long as the node's lease: a task that wakes up late must find it as long as it finds its node's key.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

import structlog

from changefeed.errors import RetryableError
from changefeed.records.node import NodeId
from coordination.etcd.protocol import Put
from coordination.fenced import FencedStore
from coordination.layout import Layout
from coordination.task_fence import BUDGET

_RETRY = timedelta(milliseconds=500)

T = TypeVar("T")

_log = structlog.get_logger()


class Attempts:
    """The attempts of one node in one session. Thread-safe."""

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
        """`over`: the session has ended, and everything that it allowed with it. No thread waits for an attempt after that."""
        self._store = store
        self._layout = layout
        self._node = node
        self._lease = lease
        self._over = over
        self._budget = budget
        self._numbers = itertools.count(1)

    def new(self) -> str:
        """The key of a new attempt. The key exists in etcd only if the attempt is lost."""
        return self._layout.revoked(self._node, next(self._numbers))

    def until_over(self, attempt: str, work: Callable[[], T]) -> T:
        """Runs `work`. Returns or raises once none of its tasks can write any more."""
        try:
            return work()
        except (
            Exception
        ) as error:  # tasks return their own errors, so an exception does not say whether they have ended
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
