"""`Capture`: how a changefeed reads the history of its source."""

from __future__ import annotations

from enum import StrEnum


class Capture(StrEnum):
    """What a user may ask for. `auto` is decided when the changefeed is created (`config/capture_choice.py`)."""

    AUTO = "auto"
    OPLOG = "oplog"
    """Bounded ranges of the oplog of a replica set."""
    CHANGE_STREAM = "change_stream"
    SHARD_OPLOGS = "shard_oplogs"
    """What `oplog` is decided to be for a sharded cluster: ranges of the oplogs of all its shards."""


ASKED_FOR = (Capture.AUTO, Capture.OPLOG, Capture.CHANGE_STREAM)
"""What a user may write."""

DECIDED = frozenset({Capture.OPLOG, Capture.CHANGE_STREAM, Capture.SHARD_OPLOGS})
"""The possible decisions."""

_DIGITS_OF_A_PLACE = 8
"""The length of a place in the oplog. Resume tokens are longer."""
OF_A_SHARD = "-"
"""Begins the token of a DDL of a sharded cluster, so that it sorts before all rows of its cluster time."""


def names_place(capture: Capture, token: str) -> bool:
    """Whether a position's token is valid for this capture: inside a cluster time, each capture names places in its own way."""
    if not token:
        return True
    short = len(token) == _DIGITS_OF_A_PLACE
    match capture:
        case Capture.OPLOG:
            return short
        case Capture.SHARD_OPLOGS:
            return short or token.startswith(OF_A_SHARD)
        case _:
            return not short and not token.startswith(OF_A_SHARD)
