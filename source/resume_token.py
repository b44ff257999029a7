"""The content of a resume token, which is the hex of a KeyString, and the order of tokens. Pure.

    82 6B01046A00000054 2B02 2C0100 29 6E 5A1004D8254F... 46...04
    |  |                |    |      |  |  |              the document key (v1) or the event's identity (v2)
    |  |                |    |      |  |  the collection's UUID (of system.views for a view's DDL); 14 (null) if there is none
    |  |                |    |      |  6E, or 6F if the event invalidates the stream
    |  |                |    |      place inside the transaction
    |  |                |    29 high water mark, 2C0100 event
    |  |                2B02 version 1, 2B04 version 2
    |  cluster time
    a Timestamp follows

Tokens of one version sort by their hex as their events do in the stream; a high water mark sorts before every event of its
cluster time.

A DDL that was read from the oplog has no token of the server. Sluice gives it one, `82<cluster time>2B0229FF<ordinal>`. It sorts
after the high water mark (`2B022929`) and before each event (`2B022C`, `2B042C`) of its cluster time. So two DDLs of one
transaction are ordered by their ordinals, and the rows of a transaction come after the tables that it creates.
"""

from __future__ import annotations

from changefeed.cluster_time import ClusterTime
from changefeed.position import Position

_TIMESTAMP = "82"
_OPLOG_DDL = "2B0229FF"
_MOST_OF_POSITION = 1024
"""The token of a DDL has all of its description. No two events differ behind this only: time, place in the transaction and UUID come first."""


def cluster_ts_of(token: str) -> ClusterTime:
    """Only the cluster time: cheap enough for each event."""
    if token[:2] != _TIMESTAMP or len(token) < 18:
        raise ValueError(f"{token!r} is not a resume token: it does not begin with {_TIMESTAMP} and a cluster time")
    return ClusterTime(int(token[2:10], 16), int(token[10:18], 16))


def position_of(token: str) -> Position:
    """The position of a token. A high water mark at T promises that the events *before* T were shown, so it is Position(T)."""
    cluster_ts = cluster_ts_of(token)
    return (
        Position(cluster_ts) if is_high_water_mark(token) else Position(cluster_ts, token[:_MOST_OF_POSITION].upper())
    )


def is_high_water_mark(token: str) -> bool:
    return token[22:24] == "29" and token[22:26] != "29FF"


def oplog_ddl_token(cluster_ts: ClusterTime, ordinal: int) -> str:
    """The token of DDL number `ordinal` of one oplog entry."""
    if not 0 <= ordinal <= 0xFFFF:
        raise ValueError(f"DDL number {ordinal} of cluster time {cluster_ts}: the highest number in a token is 65535")
    return f"{_TIMESTAMP}{cluster_ts.to_int():016X}{_OPLOG_DDL}{ordinal:04X}"
