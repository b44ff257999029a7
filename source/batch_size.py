"""`BatchSize`: how many events a change stream is asked for at once. Pure.

A server answers when it has found as many, or at the end of its oplog, and not before. So where few entries match, a reader that asks for many
hears nothing for minutes, and has no place to stop at; where all match, one that asks for few pays for each reply. The time of the replies tells which:

    asked for   answered after      then
    16384       0.2 s               the same
    16384       3 s, and nothing    killed, and asked again for 1
    1           0.5 s               1: a heartbeat, a place to stop at
    1           0.01 s              2, 4, ... up to 16384
"""

from __future__ import annotations

_MOST = 1 << 14
_QUICK_SECONDS = 0.25
_SLOW_SECONDS = 1.0
_PATIENCE_SECONDS = 3.0
"""How long many events are waited for."""


class BatchSize:
    """Of one reader, which keeps it from stream to stream."""

    def __init__(self) -> None:
        self.events = _MOST

    def answered(self, after_seconds: float) -> None:
        """With events; an answer without any says only that the oplog has ended."""
        if after_seconds < _QUICK_SECONDS:
            self.events = min(2 * self.events, _MOST)
        elif after_seconds > _SLOW_SECONDS:
            self.events = max(self.events // 4, 1)

    def too_many(self, waited_seconds: float) -> bool:
        """Whether to ask for one event only. Never said of one: it is waited for as long as the server is at work."""
        if self.events == 1 or waited_seconds < _PATIENCE_SECONDS:
            return False
        self.events = 1
        return True
