"""`TaskPermit`: how long a Spark task may still write downstream.

The driver cannot stop an executor that was cut off from it, and a Python worker may outlive its Spark task. So the task itself asks etcd,
when it starts and every few seconds, whether its node still lives (`EpochGuard`), whether its changefeed is still in the task's run, and
whether its attempt was revoked (`Attempts`). Without a confirmation within the budget, the permit ends. So once the budget has passed
after a pause, a revocation or the loss of a lease, none of the tasks concerned writes any more, whether or not Spark could stop them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta

import structlog

from changefeed.errors import FencedError, RetryableError
from changefeed.records.status import ChangefeedStatus
from coordination.epoch_guard import BUDGET, LOOK_EVERY, EpochGuard
from coordination.etcd.protocol import Etcd
from coordination.layout import decode
from processor.task.job_context import Fence

_log = structlog.get_logger()


class TaskPermit:
    """For one task. It is the sink's `Permit`: returns the seconds for which writing is allowed; raises `FencedError` when it is over.

    If etcd has never answered, it raises etcd's error (`EpochGuard.demand`).
    """

    def __init__(
        self,
        etcd: Etcd,
        fence: Fence,
        attempt: str,
        *,
        budget: timedelta = BUDGET,
        look_every: timedelta = LOOK_EVERY,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._etcd = etcd
        self._fence = fence
        self._attempt = attempt
        self._guard = EpochGuard(
            etcd, key=fence.node_key, epoch=fence.epoch, budget=budget, look_every=look_every, monotonic=monotonic
        )
        self._budget = budget.total_seconds()
        self._look_every = look_every.total_seconds()
        self._monotonic = monotonic
        self._looked_at: float | None = None

    def __call__(self) -> float:
        node_seconds = self._guard.demand().total_seconds()
        now = self._monotonic()
        if self._looked_at is None or now >= self._looked_at + self._look_every:
            self._look(now)
        left = -1.0 if self._looked_at is None else self._looked_at + self._budget - self._monotonic()
        if left <= 0:
            raise FencedError(
                f"{self._fence.status_key}: expected etcd to confirm run {self._fence.run} within {self._budget:g} s, found no answer"
            )
        return min(node_seconds, left)

    def _look(self, now: float) -> None:
        try:
            found = self._etcd.get(self._fence.status_key)
            revoked = self._etcd.get(self._attempt)
        except RetryableError as error:
            if self._looked_at is None:
                raise
            _log.warning("run_not_confirmed", key=self._fence.status_key, run=self._fence.run, error=str(error))
            return
        status = decode(ChangefeedStatus, found) if found else None
        if status is None or status.run != self._fence.run or not status.lifecycle.running:
            observed = f"{status.lifecycle.state} in run {status.run}" if status else "no changefeed"
            raise FencedError(f"{self._fence.status_key}: expected run {self._fence.run}, found {observed}")
        if revoked is not None:
            raise FencedError(
                f"{self._attempt}: Spark has lost this task, and its attempt was revoked; its job starts again"
            )
        self._looked_at = now
