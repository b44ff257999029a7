"""`Position` and `Window`: places in the change stream, and half-open ranges of them; `TableId`: whose they are. Pure.

A position is *between* events. `Position(T)` is before everything at cluster time T; `Position(T, token)` is just before the one
event at T that has that token: its resume token, or with the oplog capture its index (`source/oplog/row_entry.py`). The hex of resume
tokens of one version sorts in stream order, as the indexes do, and a missing token counts as lower than any. So the positions of
one capture are totally ordered as (cluster time, token).

A worked example. A transaction commits at 100.1 with events of the tokens 8264..2C and 8264..2D, and a drop follows at 100.2:

    place                        position                        events before it
    before the transaction       Position(100.1)                 none of these
    before its first event       Position(100.1, "8264..2C")     none of these
    inside it                    Position(100.1, "8264..2D")     the first
    after it, before the drop    Position(100.2)                 both
    at the drop (its barrier)    Position(100.2, "8264..2E")     both

The first two have the same events before them, but are not equal: a position records where its writer stopped. An
event's own position always has its token, so a range [Position(T), ...) includes every event at T.
`startAtOperationTime` takes no token: a reader starts at `position.ts` and drops the events below the position.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NewType

from sluice_client.cluster_time import ClusterTime, as_text

if TYPE_CHECKING:  # as in `cluster_time.py`
    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema

TableId = NewType("TableId", str)
"""The source's collection UUID as 32 hex digits, or `view:db.name` for a view, which has none. That of a time series is the UUID of its
buckets, as the oplog shows it; change streams show a view only."""


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A place in the change stream. Everything below it has been seen."""

    ts: ClusterTime
    token: str = ""

    @classmethod
    def parse(cls, text: str) -> Position:
        """From `1795224774.9` or `1795224774.9/8264AB...`."""
        return _parsed(text)

    @property
    def order(self) -> tuple[int, int, str]:
        """Compares as the position does, for sorting many."""
        return self.ts.seconds, self.ts.increment, self.token

    def __str__(self) -> str:
        return f"{self.ts}/{self.token}" if self.token else str(self.ts)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return as_text(cls)


@lru_cache(maxsize=4096)
def _parsed(text: str) -> Position:
    """One object for equal positions: most tables of a changefeed begin at the same few."""
    time, _, token = text.partition("/")
    return Position(ClusterTime.parse(time), token.upper())


@dataclass(frozen=True, slots=True)
class Window:
    """The half-open range `[start, end)` that one run of a pipeline replicates."""

    start: Position
    end: Position

    def __post_init__(self) -> None:
        if self.end < self.start:
            raise ValueError(f"window ends at {self.end}, before its start {self.start}")

    def __contains__(self, position: Position) -> bool:
        return self.start <= position < self.end

    @property
    def empty(self) -> bool:
        return self.start == self.end

    def __str__(self) -> str:
        return f"[{self.start}, {self.end})"
