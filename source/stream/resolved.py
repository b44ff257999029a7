"""`resolved_after`, `note_wanted`: the resolved position of a stream, and when it needs a note to move. Pure.

The post-batch resume token promises that all later events sort after it. As `resolved` (exclusive):

    batch                                   token               resolved
    nothing, newest entry at 463.1          high water mark 463.2   Position(463.2)     the next event may come *at* 463.2
    events at 470.1 and 470.2               event 470.2/E       Position(470.2/E)   E was shown; more events at 470.2 may follow
    nothing, nothing newer was written      event 470.2/E       Position(470.2/E)   so E stays unresolved
    nothing, a note was written at 470.3    high water mark 470.3   Position(470.3)     E is resolved

The same is true through mongos, whose token is the minimum of its shards' tokens: the promise is about the merged stream. So the
last event of a burst is resolved only by a later entry. At a quiet source Sluice writes one, a note: an entry in the oplog without
content.
"""

from __future__ import annotations

from dataclasses import dataclass

from changefeed.cluster_time import ClusterTime
from changefeed.position import Position
from source.ddl.resume_token import position_of


def resolved_after(previous: Position, *, token: str | None, last_event: Position | None = None) -> Position:
    """`resolved` after a batch with this post-batch token. It never goes back, even if the stream was reopened at an earlier time."""
    candidates = [previous]
    if token is not None:
        candidates.append(position_of(token))
    if last_event is not None:
        candidates.append(last_event)
    return max(candidates)


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
