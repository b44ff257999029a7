"""`Capture`: how a changefeed reads the history of its source."""

from __future__ import annotations

from enum import StrEnum


class Capture(StrEnum):
    """What a user may ask for. `auto` is decided when the changefeed is created (`config/capture_choice.py`)."""

    AUTO = "auto"
    OPLOG = "oplog"
    """Bounded ranges of the oplog of a replica set."""
    CHANGE_STREAM = "change_stream"


DECIDED = frozenset({Capture.OPLOG, Capture.CHANGE_STREAM})
"""The possible decisions."""

_DIGITS_OF_A_PLACE = 8
"""The length of a place in the oplog. Resume tokens are longer."""


def names_place(capture: Capture, token: str) -> bool:
    """Whether a position's token is valid for this capture: inside a cluster time, each capture names places in its own way."""
    return not token or (len(token) == _DIGITS_OF_A_PLACE) is (capture is Capture.OPLOG)
