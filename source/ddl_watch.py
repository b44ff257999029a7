"""`DdlWatch`: every DDL of a source in order, and the position up to which all of them were shown.

The owner uses only this protocol:

    owner ── DdlWatch ─┬─ OplogDdlWatch                            ranges of the oplog of a replica set
                       ├─ ResumingDdlWatch ── ChangeStreamCursor   change streams, 6.0 and later
                       └─ ShardedDdlWatch ── ClusterWatch          ranges of the oplogs of shards and config servers
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from changefeed.errors import SluiceError
from changefeed.event import DdlEvent
from changefeed.position import Position
from changefeed.source_history import SourceHistory


@dataclass(frozen=True, slots=True, kw_only=True)
class DdlBatch:
    """New DDLs in stream order, possibly none. Every DDL before `resolved` is in this batch or an earlier one."""

    events: tuple[DdlEvent, ...] = ()
    resolved: Position
    end: Position
    """Everything that the source had committed when it answered is below it: a table replicated up to here has no lag."""
    history: SourceHistory | None = None
    """Where the rows below `resolved` stand. None: in one place, at their own times."""
    trouble: SluiceError | None = None
    """Why `resolved` does not move although the source answers."""


class DdlWatch(Protocol):
    """For one thread at a time. `poll` waits for the source: a fraction of a second while the source is healthy."""

    def poll(self) -> DdlBatch:
        """The next batch. After a retryable error, poll again: nothing is lost or repeated."""
        ...

    def close(self) -> None: ...
