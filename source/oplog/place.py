"""`place`: places inside one entry of the oplog. Pure.

The operations of an entry, or of the chain of entries of a large transaction, happen at one cluster time. The token of a position
between them is the index of the next operation, so that the positions of this capture sort as the operations do:

    entry at 100.1: one insert                         100.1/00000000
    entry at 100.2: applyOps [insert, update]          100.2/00000000, 100.2/00000001
"""

from __future__ import annotations

from changefeed.cluster_time import ClusterTime
from changefeed.position import Position

_MOST = 0xFFFF_FFFF
FIRST = "00000000"


def place(index: int) -> str:
    if not 0 <= index <= _MOST:
        raise ValueError(f"operation number {index} of one transaction: the highest number in a position is {_MOST}")
    return f"{index:08X}"


def position(ts: ClusterTime, index: int) -> Position:
    return Position(ts, place(index))


def index_of(at: Position) -> int:
    """The number of operations of its cluster time that are below the position, which may be between two of them (`owner/recording.py`)."""
    operation, between, _ = at.token.partition(".")
    return int(operation.ljust(len(FIRST), "0"), 16) + bool(between)
