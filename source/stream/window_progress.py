"""`WindowProgress`: how much of a window was read, and what the next reply adds to it. Pure: replies in, batches out.

It keeps an event if it is in the window and after the last yielded one, so a stream may be opened again at any earlier time. Events
of one stream are sorted by position, so only the ends of a reply need to be checked.

Fragments of a split event are held back until the last one arrives. A stream that breaks off between them shows the event again from
its first fragment. The fragments of an event are few, and together larger than 16 MB. So a reply without any large event contains no
fragment, except as its last event or as the continuation of an earlier reply.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from changefeed.cluster_time import ClusterTime
from changefeed.position import Position, Window
from source.raw.raw_batch import RawBatch
from source.stream.events.raw_event import MalformedEvent, assemble, scan
from source.stream.events.raw_reply import StreamReply
from source.stream.resolved import resolved_after

_LARGE_BYTES = 1024 * 1024
_FAR_SECONDS = 10


class WindowProgress:
    """Invariants: `start <= reached <= end`, and `reached` never goes back; `complete` only if no event of the window can follow.

    While fragments are held back no resume token counts, so neither the end nor a restart can come between them.
    """

    def __init__(self, window: Window) -> None:
        self.window = window
        self.resolved = window.start
        self.complete = window.empty
        self.seen: Position | None = None
        """The last event that was shown whole, also outside the window."""
        self._last: Position | None = None
        self._fragments: list[bytes] = []

    @property
    def start_ts(self) -> ClusterTime:
        """Where to open the stream, inclusive."""
        return self.resolved.ts

    @property
    def reached(self) -> Position:
        return self.window.end if self.complete else min(self.resolved, self.window.end)

    def reopened(self) -> None:
        self._fragments.clear()

    def silence(self) -> RawBatch:
        """The batch for a time without a reply."""
        return RawBatch([], self.reached)

    def take(self, reply: StreamReply) -> RawBatch:
        events = self._whole(reply.events)
        last = _position(events[-1]) if events else None
        self.seen = last or self.seen
        kept = self._kept(events, last)
        if kept:
            self._last = _position(kept[-1])
        token = None if self._fragments else reply.resume_token
        self.resolved = resolved_after(self.resolved, token=token, last_event=last)
        self.complete = self.resolved >= self.window.end
        return RawBatch(kept, self.reached, silent_until=self._silent_until(events))

    def _silent_until(self, events: list[bytes]) -> Position | None:
        """Up to the first event after the window, or up to where the stream is."""
        if self.resolved.ts.seconds - self.window.end.ts.seconds < _FAR_SECONDS:
            return None
        after = bisect_left(events, self.window.end, key=_position)
        until = _position(events[after]) if after < len(events) else self.resolved
        return until if until.ts.seconds - self.window.end.ts.seconds >= _FAR_SECONDS else None

    def _kept(self, events: list[bytes], last: Position | None) -> list[bytes]:
        if last is None:
            return events
        first = _position(events[0])
        begin, end = 0, len(events)
        if first < self.window.start:
            begin = bisect_left(events, self.window.start, key=_position)
        if self._last is not None and first <= self._last:
            begin = max(begin, bisect_right(events, self._last, key=_position))
        if last >= self.window.end:
            end = bisect_left(events, self.window.end, key=_position)
        return events[begin:end] if (begin, end) != (0, len(events)) else events

    def _whole(self, events: list[bytes]) -> list[bytes]:
        """The events, with split ones assembled."""
        if not events or not (self._fragments or max(map(len, events)) > _LARGE_BYTES or scan(events[-1]).split):
            return events
        whole: list[bytes] = []
        for event in events:
            split = scan(event).split
            if split is None:
                if self._fragments:
                    raise MalformedEvent(
                        f"{len(self._fragments)} fragments of a split event are followed by another event"
                    )
                whole.append(event)
                continue
            self._fragments.append(event)
            if split[0] == split[1]:
                whole.append(assemble(self._fragments))
                self._fragments.clear()
        return whole


def _position(event: bytes) -> Position:
    return scan(event).position
