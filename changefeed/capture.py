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

_DIGITS = {Capture.OPLOG: 8, Capture.SHARD_OPLOGS: 24}
"""Of a place. Resume tokens are longer."""


def names_place(capture: Capture, token: str) -> bool:
    """Whether a position's token is valid for this capture: inside a cluster time, each capture names places in its own way."""
    if not token:
        return True
    digits = len(token.partition(".")[0])  # behind a dot is which of several DDLs of one operation it is
    return digits == _DIGITS[capture] if capture in _DIGITS else digits not in _DIGITS.values()
