"""`RawBatch`: raw events of one window, as either capture yields them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from changefeed.position import Position
from source.raw.row_header import Header


@dataclass(frozen=True, slots=True)
class RawBatch:
    events: list[bytes]
    reached: Position
    """Everything in the window below this has been yielded. Only the last batch has the window's end here."""
    unreadable: str = ""
    """Why the only event of this batch lacks its content. It is an error if that event is wanted."""
    silent_until: Position | None = None
    """In the last batch: the stream shows no event from the window's end up to here. None if that is a short stretch."""
    rows: list[tuple[bytes, Header]] | None = None
    """The events with their headers, if they were scanned to be put in order."""

    def scanned(self, scan: Callable[[bytes], Header]) -> Iterable[tuple[bytes, Header]]:
        return zip(self.events, map(scan, self.events), strict=True) if self.rows is None else self.rows
