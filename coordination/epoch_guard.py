"""`EpochGuard`: lets a Spark task write downstream only while its node's epoch is certain.

A task may outlive its driver's lease: an executor that is cut off gets no message. So the task itself checks its node's key when it
starts, and then every `LOOK_EVERY`. It writes only within a budget, counted from the *start* of the last check that found its epoch:

    check starts       answered: same epoch                     budget over
    ├───────────────────────┤                                        │
    0                                                              budget      (monotonic clock of the executor)
         the node may have lost its lease just after 0 at the earliest

After the lease is gone, the owner waits for that budget before it gives the tables to another node. Only durations are compared,
never clocks of two machines.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta

import structlog

from changefeed.errors import FencedError, RetryableError
from coordination.etcd.protocol import Etcd

BUDGET = timedelta(seconds=10)
LOOK_EVERY = timedelta(seconds=2)

_log = structlog.get_logger()


class EpochGuard:
    """For one task. Not valid before the first `demand`."""

    def __init__(
        self,
        etcd: Etcd,
        *,
        key: str,
        epoch: int,
        budget: timedelta = BUDGET,
        look_every: timedelta = LOOK_EVERY,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._etcd = etcd
        self._key = key
        self._epoch = epoch
        self._budget = budget.total_seconds()
        self._look_every = look_every.total_seconds()
        self._monotonic = monotonic
        self._looked_at: float | None = None

    def demand(self) -> timedelta:
        """How long the next write may take. Call it before each write, and limit the write to that time.

        Raises `FencedError` if the epoch is over, or if etcd has not confirmed it within the budget. If etcd has never answered, raises its
        error: an executor that does not reach etcd is no consequence of a lost lease, and its user has to learn of it.
        """
        now = self._monotonic()
        if self._looked_at is None or now >= self._looked_at + self._look_every:
            self._look(now)
        left = -1.0 if self._looked_at is None else self._looked_at + self._budget - self._monotonic()
        if left <= 0:
            raise FencedError(
                f"{self._key}: epoch {self._epoch} not confirmed by etcd within {self._budget:g} s; the task must stop at once"
            )
        return timedelta(seconds=left)

    def _look(self, now: float) -> None:
        try:
            found = self._etcd.get(self._key)
        except RetryableError as error:
            if self._looked_at is None:
                raise
            _log.warning("epoch_not_confirmed", key=self._key, epoch=self._epoch, error=str(error))
            return
        if found is None or found.create_rev != self._epoch:
            observed = found.create_rev if found else "no key"
            raise FencedError(
                f"{self._key}: expected epoch {self._epoch}, found {observed}; the task must stop at once"
            )
        self._looked_at = now
