"""`Header`: the fields of a raw event that routing and mounting need, whichever capture yields it; `RawBatch`: several such events. Pure.

`RowAbout`: when, by the source's clock, and in which transaction a row was written.

Only messages show it, so it is looked for only where they are written. A retryable write has a session and a number at the source, too,
and is no transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple

from changefeed.cluster_time import ClusterTime
from changefeed.position import Position
from changefeed.table import TableId


class Header(NamedTuple):
    """A span `(x_at, x_end)` is the place of a document in the event; (0, 0) means none."""

    type: bytes
    time: int
    token: bytes
    ns: bytes
    """The raw `ns` document. Equal bytes mean the same table; see `table_name`."""
    key: bytes
    """The raw `documentKey`."""
    uuid: bytes
    full_at: int
    full_end: int
    update_at: int
    update_end: int
    before_at: int
    before_end: int
    split: tuple[int, int] | None
    """(fragment, of) for a fragment of an event that was too large."""

    @property
    def position(self) -> Position:
        return Position(ClusterTime.from_int(self.time), self.token.decode())

    @property
    def table(self) -> TableId | None:
        return TableId(self.uuid.hex()) if self.uuid else None


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


@dataclass(frozen=True, slots=True)
class RawBatch:
    events: list[bytes]
    reached: Position
    """Everything in the window below this has been yielded. Only the last batch has the window's end here."""
    unreadable: str = ""
    """Why the only event of this batch lacks its content. It is an error if that event is wanted."""
    silent_until: Position | None = None
    """In the last batch: the stream shows no event from the window's end up to here. None if that is a short stretch."""
    headers: list[Header] | None = None
    """Those of the events, if they were scanned to be put in order."""

    def scanned(self, scan: Callable[[bytes], Header]) -> Iterable[tuple[bytes, Header]]:
        return zip(self.events, map(scan, self.events) if self.headers is None else self.headers, strict=True)
