"""`ResumeToken`: the content of a resume token, which is the hex of a KeyString, and the order of tokens. Pure.

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

from dataclasses import dataclass
from enum import StrEnum

from changefeed.cluster_time import ClusterTime
from changefeed.position import Position
from changefeed.table import TableId

_TIMESTAMP = "82"
_NUMBER_ZERO = 0x29
_NUMBER_ONE_BYTE = 0x2B
_NUMBER_EIGHT_BYTES = 0x32
_EVENT = 128
_OPLOG_DDL = "2B0229FF"
_UUID = bytes((0x5A, 16, 4))
_TRUE = 0x6F
_MOST_OF_POSITION = 1024
"""The token of a DDL has all of its description. No two events differ behind this only: time, place in the transaction and UUID come first."""


class TokenType(StrEnum):
    HIGH_WATER_MARK = "high_water_mark"
    EVENT = "event"
    OPLOG_DDL = "oplog_ddl"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeToken:
    cluster_ts: ClusterTime
    version: int
    type: TokenType
    table: TableId | None = None
    from_invalidate: bool = False


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


def decode_token(token: str) -> ResumeToken:
    """The content of a token of version 1 or 2, except the document key."""
    cluster_ts = cluster_ts_of(token)
    if token[18:26].upper() == _OPLOG_DDL:
        return ResumeToken(cluster_ts=cluster_ts, version=1, type=TokenType.OPLOG_DDL)
    rest = bytes.fromhex(token[18:])
    try:
        version, rest = _number(rest)
        kind, rest = _number(rest)
        _, rest = _number(rest)
        from_invalidate, rest = rest[0] == _TRUE, rest[1:]
    except IndexError:
        raise ValueError(f"resume token {token!r} ends too early") from None
    if version not in (1, 2) or kind not in (0, _EVENT):
        raise ValueError(f"resume token {token!r} has version {version} and type {kind}; versions 1 and 2 are known")
    return ResumeToken(
        cluster_ts=cluster_ts,
        version=version,
        type=TokenType.EVENT if kind == _EVENT else TokenType.HIGH_WATER_MARK,
        table=TableId(rest[3:19].hex()) if rest.startswith(_UUID) else None,
        from_invalidate=from_invalidate,
    )


def _number(data: bytes) -> tuple[int, bytes]:
    """A KeyString integer: its length in the type byte, its value shifted left by one."""
    kind = data[0]
    if kind == _NUMBER_ZERO:
        return 0, data[1:]
    if not _NUMBER_ONE_BYTE <= kind <= _NUMBER_EIGHT_BYTES:
        raise ValueError(f"type byte 0x{kind:02X} in a resume token where a whole number is expected")
    end = 2 + kind - _NUMBER_ONE_BYTE
    if end > len(data):
        raise IndexError
    return int.from_bytes(data[1:end], "big") >> 1, data[end:]
