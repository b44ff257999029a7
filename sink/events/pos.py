"""`pos`: a position as text whose byte order is the order of the stream. Pure.

    pos     00000000 00000000 . 00 0000 00000000
            cluster time        |  |    └ the place inside the cluster time: 8 hex digits (oplog), or the resume token (change streams)
            (seconds,           |  └ the shard, since two shards may have entries of one time; 0000 on a replica set
             increment)         └ the class: 00 before everything at that time, 40 an event

The place is opaque to consumers: they compare, and never take it apart. With the oplog each pos has 31 characters. A resume token has
no fixed width, but tokens of one stream never begin with each other, so their byte order is that of the stream too. Classes between
those named, and above them, are free for later use. A rerun of a window gives each event the same pos, whatever the window's bounds are.

    1795224774.9                     6B00F4C6 00000009 . 00 0000 00000000
    1795224774.9/00000002            6B00F4C6 00000009 . 40 0000 00000002
"""

from __future__ import annotations

import re

from changefeed.cluster_time import ClusterTime
from changefeed.position import Position

_TEXT = re.compile(r"([0-9A-F]{16})\.(00|40)([0-9A-F]{4})([0-9A-F]{8,})")
_BEFORE, _EVENT = "00", "40"
_ONLY_SHARD = "0000"
_NO_PLACE = "00000000"
BEFORE_ALL = f".{_BEFORE}{_ONLY_SHARD}{_NO_PLACE}"
"""Behind the cluster time: before each event at that time."""
OF_EVENT = f".{_EVENT}{_ONLY_SHARD}"
"""Behind the cluster time, and before the place of an event."""


def pos_of(position: Position) -> str:
    time = f"{position.ts.to_int():016X}"
    return f"{time}{OF_EVENT}{position.token}" if position.token else f"{time}{BEFORE_ALL}"


def position_of(pos: str) -> Position:
    match = _TEXT.fullmatch(pos)
    if match is None:
        raise ValueError(f"{pos!r} is not a pos; expected 16 hex digits, a dot, and a place of at least 14 hex digits")
    time, kind, _, place = match.groups()
    return Position(ClusterTime.from_int(int(time, 16)), place if kind == _EVENT else "")
