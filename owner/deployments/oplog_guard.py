"""`OplogGuard`: whether the source's oplog still has what has not been replicated, and for how much longer."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

import structlog

from changefeed.errors import HistoryLost, SluiceError
from changefeed.position import Position
from owner.background import Background
from source.oplog.window import OplogWindow

_SMALL_SHARE = 0.25
_EVERY_SECONDS = 10.0

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class OplogLeft:
    """`left`: how long the changefeed may stop before the oplog loses the events that it needs next."""

    left: timedelta
    scarce: bool
    shards: Mapping[str, timedelta | None] = field(default_factory=dict)
    """Of a cluster: by each shard's own oplog, and that of the config servers. None: it did not answer."""


def check(changefeed: str, checkpoint: Position, window: OplogWindow) -> OplogLeft:
    """`scarce`: less than a quarter of the oplog's span is left. Raises `HistoryLost` if the checkpoint is no longer in the oplog."""
    if not window.holds(checkpoint):
        raise HistoryLost(
            f"changefeed {changefeed!r}: checkpoint {checkpoint} is no longer in the source's oplog {window.of}(oldest is {window.oldest_ts}, "
            f"{window.oldest_ts.to_iso()}); remove it and create it again with --start initial, and give the source a larger oplog"
        )
    left = window.remaining(checkpoint)
    shards = {
        name: timedelta(seconds=checkpoint.ts.seconds - oldest_ts.seconds) if oldest_ts is not None else None
        for name, oldest_ts in window.parts.items()
    }
    return OplogLeft(left=left, scarce=left < window.span * _SMALL_SHARE, shards=shards)


class OplogGuard:
    """Looks every ten seconds. An error of looking is only logged: the changefeed itself does not need the bounds of the oplog."""

    def __init__(self, changefeed: str, background: Background, read: Callable[[], OplogWindow | None]) -> None:
        self._changefeed = changefeed
        self._background = background
        self._read = read
        self._log = _log.bind(changefeed=changefeed)
        self._looked_at = float("-inf")
        self.left: OplogLeft | None = None
        self.window: OplogWindow | None = None
        """The oplog as it was last seen."""

    def look(self, checkpoint: Position) -> HistoryLost | None:
        """Never waits: reads in the background, and checks the last answer."""
        if time.monotonic() - self._looked_at < _EVERY_SECONDS:
            return None
        try:
            answer = self._background.take("oplog", lambda: (self._read(),))
            if answer is not None:
                self._looked_at = time.monotonic()
                self._judge(checkpoint, *answer)
        except HistoryLost as lost:
            return lost
        except SluiceError as error:
            self._looked_at = time.monotonic()
            self._log.warning("oplog_window_unknown", error=str(error))
        return None

    def _judge(self, checkpoint: Position, window: OplogWindow | None) -> None:
        """`window` is None behind mongos."""
        if window is None:
            return
        self.window = window
        self.left = check(self._changefeed, checkpoint, window)
        if self.left.scarce:
            self._log.warning("oplog_window_scarce", left_seconds=self.left.left.total_seconds())
