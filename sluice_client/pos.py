"""What messages are ordered by: `pos`. Pure, and called for each change.

`pos` is a position as text whose byte order is the order of the stream.

    pos     00000000 00000000 . 00 0000 00000000
            cluster time        |  |    └ the place inside the cluster time: 8 hex digits (oplog), 24 (oplogs of shards: source/sharded/rows/row_places.py),
            (seconds,           |  |      or the resume token (change streams)
             increment)         |  └ free for later use
                                └ the class: 00 before everything at that time, 40 an event, 80 after all events of that time

The place is opaque to consumers: they compare, and never take it apart. With the oplog each pos has 31 characters, of a sharded cluster 47; a DDL may have
a number behind it, as where one operation means several. A resume token has no fixed width, but tokens of one stream never begin with each other, so
their byte order is that of the stream too. A copied document has
class 80 and the time at which it was read: it contains every event of that time. Classes between those named are free for later use. A rerun of a window gives each event the same pos, whatever the window's bounds are.

    1795224774.9                     6B00F4C6 00000009 . 00 0000 00000000
    1795224774.9/00000002            6B00F4C6 00000009 . 40 0000 00000002
"""

from __future__ import annotations

import re

from sluice_client.cluster_time import ClusterTime
from sluice_client.position import Position

_TEXT = re.compile(r"([0-9A-F]{16})\.(00|40)0000([0-9A-F]{8,}(?:\.[0-9A-F]{4})*)")
_BEFORE, _EVENT, _AFTER = "00", "40", "80"
_FREE = "0000"
_NO_PLACE = "00000000"
BEFORE_ALL = f".{_BEFORE}{_FREE}{_NO_PLACE}"
"""Behind the cluster time: before each event at that time."""
AFTER_ALL = f".{_AFTER}{_FREE}{_NO_PLACE}"
"""After each event at that time."""
OF_EVENT = f".{_EVENT}{_FREE}"
"""Behind the cluster time, and before the place of an event."""


def pos_of(position: Position) -> str:
    time = f"{position.ts.to_int():016X}"
    return f"{time}{OF_EVENT}{position.token}" if position.token else f"{time}{BEFORE_ALL}"


def pos_after(ts: ClusterTime) -> str:
    """Of a document that was read at this time."""
    return f"{ts.to_int():016X}{AFTER_ALL}"


def position_of(pos: str) -> Position:
    """Of an event or a time; a copied document has no position between events."""
    match = _TEXT.fullmatch(pos)
    if match is None:
        raise ValueError(f"{pos!r} is not a pos; expected 16 hex digits, a dot, and a place of at least 14 hex digits")
    time, kind, place = match.groups()
    return Position(ClusterTime.from_int(int(time, 16)), place if kind == _EVENT else "")
