"""`place_of`: places inside one cluster time of a sharded cluster. Pure.

Entries of two shards may have one time: the clocks of shards agree on causes, they do not number the cluster's writes. So a place names
the shard too, and the index of the operation among those of its entry:

    sa   drop at 458.151         458.151/-7361.00000000
    sb   drop at 458.151         458.151/-7362.00000000
    sb   another DDL of it       458.151/-7362.00000000.0001
    sb   insert at 458.151       458.151/00000000

It sorts before the rows of its time: a transaction may create the table that it fills. Rows of one time and of two shards may have equal
places: nothing stops between them.
"""

from __future__ import annotations

from changefeed.capture import OF_A_SHARD
from changefeed.cluster_time import ClusterTime
from changefeed.position import Position


def numbered(place: Position, number: int) -> Position:
    """The place of each of several DDLs that one operation means. The first one has that of the operation."""
    return Position(place.ts, f"{place.token}.{number:04X}") if number else place


def place_of(ts: ClusterTime, stream: str, index: int) -> Position:
    """Sorts by the stream's name, then as the operations of one stream do."""
    return Position(ts, f"{OF_A_SHARD}{stream.encode().hex().upper()}.{index:08X}")
