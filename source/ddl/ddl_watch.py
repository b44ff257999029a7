"""The DDL watch: every DDL of a source in order, and up to where that is proven.

`DdlWatch` is what the owner sees. It reads by change streams, or by ranges of the oplog:

    owner ── DdlWatch ─┬─ ResumingDdlWatch ── ChangeStreamCursor   6.0 and later
                       └─ oplog.OplogDdlWatch                      replica sets
"""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

from changefeed.errors import SourceMajorityStalled
from changefeed.event import DdlEvent
from changefeed.position import Position


@dataclass(frozen=True, slots=True, kw_only=True)
class DdlBatch:
    """New DDLs in stream order, possibly none; every DDL before `resolved` has been in this batch or an earlier one."""

    events: tuple[DdlEvent, ...] = ()
    resolved: Position
    end: Position
    """Below it lies all that the source had committed when it answered: what is replicated up to here lags behind nothing."""
    trouble: SourceMajorityStalled | None = None
    """Why `resolved` does not move, though the source answers."""


class DdlWatch(Protocol):
    """For one thread at a time. `poll` waits for the source, at most a fraction of a second while it is well."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def poll(self) -> DdlBatch:
        """The next batch. After a retryable error, poll again: nothing is lost or repeated."""
        ...

    def close(self) -> None: ...
