"""`place_of`: places inside one cluster time of a sharded cluster. Pure.

Entries of two shards may have one time: the clocks of shards agree on causes, they do not number the cluster's writes. So a place names
the shard too, and the index of the operation among those of its entry:

    sa   drop at 458.151         458.151/7361.00000000
    sb   drop at 458.151         458.151/7362.00000000
"""

from __future__ import annotations

from changefeed.cluster_time import ClusterTime
from changefeed.position import Position


def place_of(ts: ClusterTime, stream: str, index: int) -> Position:
    """Sorts by the stream's name, then as the operations of one stream do."""
    return Position(ts, f"{stream.encode().hex().upper()}.{index:08X}")
