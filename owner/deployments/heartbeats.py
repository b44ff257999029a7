"""`Heartbeats`: writes the heartbeat of a changefeed that reads change streams, and removes it with the changefeed."""

from __future__ import annotations

import time
from typing import Protocol

import structlog

from changefeed.cluster_time import ClusterTime
from changefeed.errors import RetryableError, SluiceError
from changefeed.position import Position
from owner.background import Background

_EVERY_SECONDS = 10.0

_log = structlog.get_logger()


class HeartbeatWriter(Protocol):
    """Its methods wait for the source."""

    def beat(self, name: str, *, checkpoint: Position, last_ts: ClusterTime | None) -> ClusterTime | None: ...
    def end_heartbeats(self, name: str) -> None: ...


class Heartbeats:
    """Never waits. A changefeed that is not allowed to write heartbeats goes on without them."""

    def __init__(self, name: str, background: Background, source: HeartbeatWriter) -> None:
        self._name = name
        self._background = background
        self._source = source
        self._next_at = float("-inf")
        self._last_ts: ClusterTime | None = None
        self._log = _log.bind(heartbeat=name)

    def tick(self, checkpoint: Position) -> None:
        if time.monotonic() < self._next_at:
            return
        try:
            answer = self._background.take("heartbeat", lambda: (self._beat(checkpoint),))
            if answer is not None:
                [self._last_ts] = answer
                self._next_at = time.monotonic() + _EVERY_SECONDS
        except RetryableError as error:
            self._next_at = time.monotonic() + _EVERY_SECONDS
            self._log.info("heartbeat_not_written", error=str(error))
        except SluiceError as error:
            self._next_at = float("inf")
            self._log.warning("heartbeat_refused", error=str(error))

    def ended(self) -> bool:
        """Whether the heartbeat is removed, or cannot be removed. A failure does not delay the changefeed's removal."""
        try:
            return self._background.take("end of heartbeats", self._end) is not None
        except SluiceError as error:
            self._log.info("heartbeat_left", error=str(error))
            return True

    def _beat(self, checkpoint: Position) -> ClusterTime | None:
        return self._source.beat(self._name, checkpoint=checkpoint, last_ts=self._last_ts)

    def _end(self) -> bool:
        self._source.end_heartbeats(self._name)
        return True
