"""`ResumingDdlWatch`: a `DdlWatch` by change streams.

After any error its cursor is opened again at the cluster time of `resolved`, and events that were delivered before are dropped. The
order of positions is the order of the stream, so "at or below the last delivered one" is exact.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

from changefeed.cluster_time import ClusterTime
from changefeed.errors import HistoryLost, SluiceError, SourceMajorityStalled
from changefeed.event import DdlEvent
from changefeed.position import Position
from source.ddl.ddl_watch import DdlBatch
from source.errors import translated
from source.stream.resolved import resolved_after


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The result of one read at the source."""

    events: tuple[DdlEvent, ...] = ()
    token: str | None = None
    """Its post-batch resume token."""
    quiet: bool
    """The reply had no event at all, not even one that is no DDL."""
    committed_ts: ClusterTime


class DdlCursor(Protocol):
    """A cursor in the source's history. Errors are the driver's own."""

    def open(self, start_ts: ClusterTime) -> None:
        """Open it at the first event of this cluster time."""
        ...

    def read(self) -> Reading: ...

    def close(self) -> None: ...


class Notes(Protocol):
    """Receives each reading, and writes a note at the source if one is wanted (`note.NoteKeeper`)."""

    def look_at(self, resolved: Position, committed_ts: ClusterTime, *, quiet: bool) -> None: ...

    def end(self, committed_ts: ClusterTime) -> Position: ...


class MajorityLook(Protocol):
    """Receives each reading's time, and reports a stalled majority (`majority_watch.MajorityWatch`)."""

    def look_at(self, committed_ts: ClusterTime) -> SourceMajorityStalled | None: ...


class ResumingDdlWatch:
    """`oldest` returns the oldest time available at the source, for messages."""

    def __init__(
        self, cursor: DdlCursor, start: Position, notes: Notes, majority: MajorityLook, oldest: Callable[[], str]
    ) -> None:
        self._cursor = cursor
        self._start = start
        self._notes = notes
        self._majority = majority
        self._oldest = oldest
        self._resolved = start
        self._delivered: Position | None = None
        self._open = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def poll(self) -> DdlBatch:
        try:
            with translated("reading the DDL of the source"):
                return self._poll()
        except HistoryLost as error:
            self.close()
            raise HistoryLost(
                f"position {self._resolved} is no longer in the source's oplog: {self._oldest()}; "
                "remove the changefeed and create it again with a new initial copy"
            ) from error
        except SluiceError:
            self.close()
            raise

    def close(self) -> None:
        """May be called twice. A later poll opens the cursor again."""
        self._open = False
        with translated("closing the DDL stream of the source"):
            self._cursor.close()

    def _poll(self) -> DdlBatch:
        if not self._open:
            self._cursor.open(self._resolved.ts)
            self._open = True
        reading = self._cursor.read()
        events = tuple(event for event in reading.events if self._is_new(event.position))
        if events:
            self._delivered = events[-1].position
        self._resolved = resolved_after(self._resolved, token=reading.token, last_event=self._delivered)
        end = self._notes.end(reading.committed_ts)
        self._notes.look_at(self._resolved, reading.committed_ts, quiet=reading.quiet)
        trouble = self._majority.look_at(reading.committed_ts)
        return DdlBatch(events=events, resolved=self._resolved, end=end, trouble=trouble)

    def _is_new(self, position: Position) -> bool:
        return position >= self._start and (self._delivered is None or position > self._delivered)
