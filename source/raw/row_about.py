"""`RowAbout`: when, by the source's clock, and in which transaction a row was written. Pure.

Only messages show it, so it is looked for only where they are written. A retryable write has a session and a number at the source, too,
and is no transaction.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

_INT64 = Struct("<q").unpack_from
WALL_SIZE = 8
_SESSION = b"\x05id\0\x10\0\0\0\x04"


class RowAbout(NamedTuple):
    wall_ms: int | None = None
    transaction: tuple[str, int] | None = None
    """The session's UUID in hex, and the number of the transaction within it."""


def milliseconds(raw: bytes, at: int) -> int:
    """Of a raw date."""
    found: int = _INT64(raw, at)[0]
    return found


def transaction_of(lsid: bytes, number: bytes) -> tuple[str, int] | None:
    """Of raw values."""
    at = lsid.find(_SESSION)
    if at < 0:
        return None
    at += len(_SESSION)
    return lsid[at : at + 16].hex(), int.from_bytes(number, "little")
