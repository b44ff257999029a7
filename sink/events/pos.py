"""`pos`: a position as text whose byte order is the order of the stream. Pure.

    pos     00000000 00000000 . 00 0000 00000000
            cluster time        |  |    └ the place inside the cluster time: 8 hex digits (oplog), or the resume token (change streams)
            (seconds,           |  └ the shard, since two shards may have entries of one time; 0000 on a replica set
             increment)         └ the class: 00 before everything at that time, 40 an event, 80 after all events of that time

The place is opaque to consumers: they compare, and never take it apart. With the oplog each pos has 31 characters. A resume token has
no fixed width, but tokens of one stream never begin with each other, so their byte order is that of the stream too. A copied document has
class 80 and the time at which it was read: it contains every event of that time. Classes between those named are free for later use. A rerun of a window gives each event the same pos, whatever the window's bounds are.

    1795224774.9                     6B00F4C6 00000009 . 00 0000 00000000
    1795224774.9/00000002            6B00F4C6 00000009 . 40 0000 00000002
"""

from __future__ import annotations

import re

from changefeed.cluster_time import ClusterTime
from changefeed.position import Position

_TEXT = re.compile(r"([0-9A-F]{16})\.(00|40)([0-9A-F]{4})([0-9A-F]{8,})")
_BEFORE, _EVENT, _AFTER = "00", "40", "80"
_ONLY_SHARD = "0000"
_NO_PLACE = "00000000"
BEFORE_ALL = f".{_BEFORE}{_ONLY_SHARD}{_NO_PLACE}"
"""Behind the cluster time: before each event at that time."""
AFTER_ALL = f".{_AFTER}{_ONLY_SHARD}{_NO_PLACE}"
"""After each event at that time."""
OF_EVENT = f".{_EVENT}{_ONLY_SHARD}"
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
    time, kind, _, place = match.groups()
    return Position(ClusterTime.from_int(int(time, 16)), place if kind == _EVENT else "")
