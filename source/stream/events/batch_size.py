"""`BatchSize`: how many events a change stream is asked for at once. Pure.

A server answers when it has found as many, or at the end of its oplog, and not before. So where few entries match, a reader that asks for many
hears nothing for minutes, and has no place to stop at; where all match, one that asks for few pays for each reply. The time of the replies tells which:

    asked for   answered after      then
    16384       0.2 s               the same
    16384       3 s, and nothing    killed, and read in steps, of one event first
    1           0.5 s               1: a heartbeat, a place to stop at
    1           0.01 s              2, 4, ... up to 16384
    2           15 s, and nothing   killed, and read in one go to the end: there are no heartbeats here
"""

from __future__ import annotations

_MOST = 1 << 14
_QUICK_SECONDS = 0.25
_SLOW_SECONDS = 1.0
_PATIENCE_SECONDS = 3.0
_STEP_SECONDS = 15.0


class BatchSize:
    """Of one reader, which keeps it from stream to stream."""

    def __init__(self) -> None:
        self.events = _MOST
        self._in_one_go = False

    @property
    def in_steps(self) -> bool:
        return self.events < _MOST

    def opened(self) -> None:
        """Another stream, which may find heartbeats again."""
        self._in_one_go = False

    def answered(self, after_seconds: float) -> None:
        """With events; an answer without any says only that the oplog has ended."""
        if after_seconds < _QUICK_SECONDS:
            self.events = min(2 * self.events, _MOST)
        elif after_seconds > _SLOW_SECONDS and self.in_steps:
            self.events = max(self.events // 4, 1)

    def too_slow(self, waited_seconds: float) -> bool:
        """Whether to ask in another way. Said at most twice of a stream: what is read in one go is waited for as long as the server is at work."""
        if self._in_one_go or waited_seconds < (_STEP_SECONDS if self.in_steps else _PATIENCE_SECONDS):
            return False
        self._in_one_go, self.events = (True, _MOST) if self.in_steps else (False, 1)
        return True
