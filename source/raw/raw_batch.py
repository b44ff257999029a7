"""`RawBatch`: raw events of one window, as either capture yields them. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from changefeed.position import Position


@dataclass(frozen=True, slots=True)
class RawBatch:
    events: list[bytes]
    bytes: int
    reached: Position
    """Everything in the window below this has been yielded. Only the last batch says the window's end."""
    untold: str = ""
    """Why the one event of this batch lacks its content: an error for whoever wants that event."""
    silent_until: Position | None = None
    """With the window's end: how far behind it the stream shows nothing, where that is far."""
