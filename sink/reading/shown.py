"""`Shown`: what a reader of messages shows, in one order; `FeedReader`: the protocol of readers. Pure.

At one position the order is

    recopy, which empties a table     `CopyBegins`     the schema of a table that begins     DDL     changes     copied documents     `Copied`

A copied document stands at the time at which it was read, among the table's changes. Changes before it may not fit the document, or find
none: the copy has their effect. `Copied` says from where on each change fits.

    schema u1 @100     change 7 @100.5, fits nothing     copied 7 @101     Copied u1 @101     change 7 @102
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, Protocol, TypeAlias

from changefeed.table import TableId
from sink.reading.stored_message import StoredMessage, Watermark


@dataclass(frozen=True, slots=True)
class Copied:
    """The table's copy is complete: from here on it is as it was at the source."""

    table: TableId


@dataclass(frozen=True, slots=True)
class CopyBegins:
    """Up to `Copied`, changes of the table may not fit."""

    table: TableId


Content: TypeAlias = StoredMessage | CopyBegins | Copied


class Rank(IntEnum):
    RECOPY = 0
    BEGINS = 1
    SCHEMA = 2
    DDL = 3
    ROW = 4
    COPIED = 5


class Shown(NamedTuple):
    """They come in the order of these fields; but for rows, no two are alike in the first three."""

    at: str
    rank: Rank
    table: str
    number: int
    content: Content


class Round(NamedTuple):
    """What stands between two watermarks."""

    before: Watermark
    now: Watermark


class FeedReader(Protocol):
    @property
    def mark(self) -> Watermark:
        """Everything before it was shown."""
        ...

    @property
    def bookmark(self) -> str:
        """From where another reader finds everything that was not shown yet. Opaque, and may be empty."""
        ...

    @property
    def more(self) -> bool:
        """The newest watermark that it has found is more than one round away."""
        ...

    def look(self) -> Round | None:
        """None if there is nothing new."""
        ...

    def read(self, round: Round) -> Iterator[Shown]:
        """A round that was read before shows the same, but for the ends of copies that are known only now."""
        ...

    def skim(self, mark: Watermark, bookmark: str) -> Iterator[Shown]:
        """Everything before the mark but rows and copies, for a reader that goes on there."""
        ...
