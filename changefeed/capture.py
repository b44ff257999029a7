"""`Capture`: how a changefeed reads the history of its source."""

from __future__ import annotations

from enum import StrEnum


class Capture(StrEnum):
    """What a user may ask for. It is decided once, when the changefeed is created; what is recorded is never `auto`."""

    AUTO = "auto"
    OPLOG = "oplog"
    """Bounded ranges of the oplog of a replica set."""
    CHANGE_STREAM = "change_stream"


DECIDED = frozenset({Capture.OPLOG, Capture.CHANGE_STREAM})
"""What may be decided on."""

_DIGITS_OF_A_PLACE = 8
"""Of an operation in the oplog; resume tokens are longer."""


def names_place(capture: Capture, token: str) -> bool:
    """Whether a position's token is one of this capture: inside a cluster time each names places in its own way."""
    return not token or (len(token) == _DIGITS_OF_A_PLACE) is (capture is Capture.OPLOG)
