"""`TaskPermit`: how long a Spark task may still write downstream.

The driver cannot stop an executor that was cut off from it, and a Python worker may outlive its Spark task. So the task itself asks etcd,
when it starts and every few seconds, whether its node still lives, whether its changefeed is still in the task's run, and whether its
attempt was revoked (`Attempts`). Without a confirmation of all three within the budget, the permit ends (`coordination/task_fence.py` shows
from when the budget counts). So once the budget has passed after a pause, a revocation or the loss of a lease, none of the tasks concerned
writes any more, whether or not Spark could stop them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta

import structlog

from changefeed.errors import FencedError, RetryableError
from changefeed.records.status import ChangefeedStatus
from coordination.etcd.protocol import Etcd
from coordination.layout import decode
from coordination.task_fence import BUDGET, LOOK_EVERY, Fence

_log = structlog.get_logger()


class TaskPermit:
    """For one task. It is the sink's `Permit`: call it before each write, and limit the write to the seconds that it returns.

    Raises `FencedError` when the permit is over. If etcd has never answered, raises etcd's error: an executor that does not reach etcd is no
    consequence of a lost lease, and its user has to learn of it.
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
        self.fence = fence
        self._attempt = attempt
        self._budget = budget.total_seconds()
        self._look_every = look_every.total_seconds()
        self._monotonic = monotonic
        self._looked_at: float | None = None

    def __call__(self) -> float:
        now = self._monotonic()
        if self._looked_at is None or now >= self._looked_at + self._look_every:
            self._look(now)
        left = -1.0 if self._looked_at is None else self._looked_at + self._budget - self._monotonic()
        if left <= 0:
            fence = self.fence
            raise FencedError(
                f"{fence.node_key}: epoch {fence.epoch} and {fence.status_key}: run {fence.run} not confirmed by etcd within "
                f"{self._budget:g} s; the task must stop at once"
            )
        return left

    def _look(self, now: float) -> None:
        fence = self.fence
        try:
            node = self._etcd.get(fence.node_key)
            if node is None or node.create_rev != fence.epoch:
                observed = node.create_rev if node else "no key"
                raise FencedError(
                    f"{fence.node_key}: expected epoch {fence.epoch}, found {observed}; the task must stop at once"
                )
            changefeed = self._etcd.get(fence.status_key)
            revoked = self._etcd.get(self._attempt)
        except RetryableError as error:
            if self._looked_at is None:
                raise
            _log.warning(
                "permit_not_confirmed", key=fence.status_key, epoch=fence.epoch, run=fence.run, error=str(error)
            )
            return
        status = decode(ChangefeedStatus, changefeed) if changefeed else None
        if status is None or status.run != fence.run or not status.lifecycle.running:
            observed = f"{status.lifecycle.state} in run {status.run}" if status else "no changefeed"
            raise FencedError(f"{fence.status_key}: expected run {fence.run}, found {observed}")
        if revoked is not None:
            raise FencedError(
                f"{self._attempt}: Spark has lost this task, and its attempt was revoked; its job starts again"
            )
        self._looked_at = now
