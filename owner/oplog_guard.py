"""Whether the source still remembers what has not been replicated, and for how much longer. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from changefeed.errors import HistoryLost
from changefeed.position import Position
from source.oplog_window import OplogWindow

_SMALL_SHARE = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class OplogLeft:
    """`left`: how long the changefeed may stand still before the source forgets what it needs next."""

    left: timedelta
    scarce: bool


def check(changefeed: str, checkpoint: Position, window: OplogWindow) -> OplogLeft:
    """Scarce is less than a quarter of what the oplog holds; raises `HistoryLost` when it is gone."""
    if not window.holds(checkpoint):
        raise HistoryLost(
            f"changefeed {changefeed!r}: checkpoint {checkpoint} is no longer in the source's oplog (oldest is {window.oldest_ts}, "
            f"{window.oldest_ts.to_iso()}); remove it and create it again with --start initial, and give the source a larger oplog"
        )
    left = window.remaining(checkpoint)
    return OplogLeft(left=left, scarce=left < window.span * _SMALL_SHARE)
