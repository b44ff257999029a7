"""How far a change stream is proven to be complete: its resolved position (`resolved_after`), and how much of a window was read (`WindowProgress`). Pure.

The post-batch resume token promises that all later events sort after it. As `resolved` (exclusive):

    batch                                   token               resolved
    nothing, newest entry at 463.1          high water mark 463.2   Position(463.2)     the next event may come *at* 463.2
    events at 470.1 and 470.2               event 470.2/E       Position(470.2/E)   E was shown; more events at 470.2 may follow
    nothing, nothing newer was written      event 470.2/E       Position(470.2/E)   so E stays unresolved
    nothing, a note was written at 470.3    high water mark 470.3   Position(470.3)     E is resolved

The same is true through mongos, whose token is the minimum of its shards' tokens: the promise is about the merged stream. So the
last event of a burst is resolved only by a later entry. At a quiet source Sluice writes one, a note: an entry in the oplog without
content.

**A window** (`WindowProgress`): replies in, batches out. It keeps an event if it is in the window and after the last yielded one, so a stream may be opened again at any earlier time. Events
of one stream are sorted by position, so only the ends of a reply need to be checked.

Fragments of a split event are held back until the last one arrives. A stream that breaks off between them shows the event again from
its first fragment. The fragments of an event are few, and together larger than 16 MB. So a reply without any large event contains no
fragment, except as its last event or as the continuation of an earlier reply.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass

from changefeed.cluster_time import ClusterTime
from changefeed.position import Position, Window
from source.raw_row import RawBatch
from source.resume_token import position_of
from source.stream.change_event import MalformedEvent, StreamReply, assemble, scan


def resolved_after(previous: Position, *, token: str | None, last_event: Position | None = None) -> Position:
    """`resolved` after a batch with this post-batch token. It never goes back, even if the stream was reopened at an earlier time."""
    shown = position_of(token) if token is not None else None
    return max(each for each in (previous, shown, last_event) if each is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A note of Sluice: the newest time known before it was written, and the time of the reply to it."""

    after_ts: ClusterTime
    written_ts: ClusterTime
    second: bool = False
    """It was written because the note before may not have been alone."""

    @property
    def alone(self) -> bool:
        """No other write can be between the two times, so the note resolves everything before it."""
        first_of_a_second = ClusterTime(self.written_ts.seconds, 1)
        return self.written_ts == self.after_ts.next() or (
            self.written_ts == first_of_a_second and self.after_ts < first_of_a_second
        )


def end_of_source(committed_ts: ClusterTime, last_note: Note | None) -> Position:
    """Everything committed by then is below it, except a note of Sluice that is certainly alone at its time.

    Through mongos no note is alone, and the second one counts as if it were.
    """
    ours = last_note is not None and last_note.written_ts == committed_ts and (last_note.alone or last_note.second)
    return Position(committed_ts if ours else committed_ts.next())


def note_wanted(
    *, resolved: Position, committed_ts: ClusterTime, previous_committed_ts: ClusterTime | None, last_note: Note | None
) -> bool:
    """Whether to write a note now: something is unresolved, nothing newer arrives, and it is not merely the last note itself.

    `committed_ts` is the majority-committed time of the last reply, `previous_committed_ts` that of the one before. While they
    differ, the source is busy and its own writes resolve the earlier ones. A note is unresolved too, but that does no harm: the next
    one is written only after another write, or, once, if another write may have happened beside the note. Once, because through
    mongos a note is one entry on each shard and so never alone.
    """
    if committed_ts < resolved.ts or committed_ts != previous_committed_ts:
        return False
    if last_note is None or committed_ts > last_note.written_ts:
        return True
    return committed_ts == last_note.written_ts and not last_note.alone and not last_note.second


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
