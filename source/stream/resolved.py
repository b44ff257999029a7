"""What a stream has proven, and when the source must be made to prove more.

The post-batch resume token promises that what comes later sorts after it. Read as `resolved` (exclusive):

    batch                                   token               resolved
    nothing, newest entry at 463.1          high water mark 463.2   Position(463.2)     the next event may come *at* 463.2
    events at 470.1 and 470.2               event 470.2/E       Position(470.2/E)   E was shown; what follows it at 470.2 may not be
    nothing, nothing newer was written      event 470.2/E       Position(470.2/E)   so E stays unresolved
    nothing, a note was written at 470.3    high water mark 470.3   Position(470.3)     E is resolved

It is the same on a replica set and through mongos, whose token is the minimum of its shards': the promise is made
of the merged stream. So the last event of a burst is resolved only by something later, and a quiet source is made to write
a note: an entry in its oplog that says nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from changefeed.cluster_time import ClusterTime
from changefeed.position import Position
from source.ddl.resume_token import position_of


def resolved_after(previous: Position, *, token: str | None, last_event: Position | None = None) -> Position:
    """`resolved` after a batch that ended in this post-batch token. It never goes back, also when a stream was reopened lower."""
    candidates = [previous]
    if token is not None:
        candidates.append(position_of(token))
    if last_event is not None:
        candidates.append(last_event)
    return max(candidates)


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A note of ours: the newest time known before it was written, and the time of the reply to it."""

    after_ts: ClusterTime
    written_ts: ClusterTime
    second: bool = False
    """It was written because the one before may not have been alone."""

    @property
    def alone(self) -> bool:
        """Nobody else can have written between the two times, so everything before the note is resolved by it."""
        first_of_a_second = ClusterTime(self.written_ts.seconds, 1)
        return self.written_ts == self.after_ts.next() or (
            self.written_ts == first_of_a_second and self.after_ts < first_of_a_second
        )


def end_of_source(committed_ts: ClusterTime, last_note: Note | None) -> Position:
    """Below it lies all that was committed by then, but for a note of ours that nobody can have written beside.

    Through mongos no note is alone, and the second one counts.
    """
    ours = last_note is not None and last_note.written_ts == committed_ts and (last_note.alone or last_note.second)
    return Position(committed_ts if ours else committed_ts.next())


def note_wanted(
    *, resolved: Position, committed_ts: ClusterTime, previous_committed_ts: ClusterTime | None, last_note: Note | None
) -> bool:
    """Whether to write a note now: something is unresolved, nothing newer is coming, and it is not just our own note.

    `committed_ts` is the majority-committed time of the last reply, `previous_committed_ts` that of the one before. While they
    differ the source is busy and resolves itself. A note is unresolved too, but nobody waits for it: the next one is written only
    when somebody else wrote after it, or, once, when somebody may have written beside it. Once, because through mongos a note
    is one entry on each shard and so never alone.
    """
    if committed_ts < resolved.ts or committed_ts != previous_committed_ts:
        return False
    if last_note is None or committed_ts > last_note.written_ts:
        return True
    return committed_ts == last_note.written_ts and not last_note.alone and not last_note.second
