"""`Portion`: the part of all documents that is compared at one sync point, in turn; `Budget`: how fast it is read.

    point 120    a [-, 500) [500, 900)                     its time is over: a goes on at 500 or 900
    point 180    a [900, -), b, c [-, 77)
    point 240    c [77, -)                                 through: the next point begins the next pass

A part has at least one range, so a pass ends. What a pass finds of a table is of several points, each of which is exact for its ranges.
"""

from __future__ import annotations

import threading
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cmp_to_key
from typing import Any

import bson

from changefeed.documents.bson_order import compare
from changefeed.documents.document import LOSSLESS
from changefeed.records.sync_point import PassPlace
from changefeed.table import TableName
from verify.table_reader import IdRange, nothing

_LARGEST_KEY = 64 << 10
_in_order = cmp_to_key(compare)


class Budget:
    """So many bytes a second, of both sides together. For one thread."""

    def __init__(self, bytes_per_second: int, stop: threading.Event) -> None:
        self._rate = bytes_per_second
        self._stop = stop
        self._began_at = time.monotonic()
        self.bytes = 0

    def took(self, size: int) -> None:
        self.bytes += size
        self._stop.wait(max(0.0, self._began_at + self.bytes / self._rate - time.monotonic()))


@dataclass(slots=True, kw_only=True)
class Portion:
    """Of one verification. `names`: which ones of the target it is about, as a range that may be open; `deadline`: it begins no range later."""

    names: tuple[TableName | None, TableName | None] = (None, None)
    """After the first one, up to the second one."""
    deadline: float = float("inf")
    took: Callable[[int], None] = nothing
    """That of its budget."""
    place: PassPlace | None = None
    """Where it begins."""
    ranges: Sequence[IdRange] = ()
    """Those that are left of the first table, if this process has read those before."""
    begun: int = 0
    left: PassPlace | None = None
    """Where it ended early. None: it did not."""
    left_ranges: Sequence[IdRange] = field(default=())

    def within(self, name: TableName) -> bool:
        low, high = self.names
        return (low is None or name > low) and (high is None or name <= high)

    def ends(self, table: TableName, ranges: Sequence[IdRange] = ()) -> bool:
        """Whether nothing of the table is read any more. `ranges`: those that are left of it, the last one first; none: it has not begun."""
        if self.left is not None:
            return True
        key = (ranges[-1].low or b"") if ranges else b""
        if self.begun and time.monotonic() >= self.deadline and len(key) <= _LARGEST_KEY:
            self.left, self.left_ranges = PassPlace(table=table, key=b64encode(key).decode()), tuple(ranges)
        return self.left is not None

    def of(self, table: TableName, divided: Callable[[], Sequence[IdRange]]) -> list[IdRange]:
        """The ranges of a table that are to be read, the last one first."""
        begins = self.place is not None and self.place.table == table
        if begins and self.ranges:
            return list(self.ranges)
        ranges = divided()
        if begins and self.place is not None and self.place.key:
            ranges = _from_key(ranges, b64decode(self.place.key))
        return list(reversed(ranges))


def _from_key(ranges: Sequence[IdRange], key: bytes) -> list[IdRange]:
    """Without what is below the key; they may be divided otherwise than those before."""
    least = _id_of(key)
    later = [each for each in ranges if each.high is None or _id_of(each.high) > least]
    return (
        [replace(later[0], low=key), *later[1:]]
        if later and (later[0].low is None or _id_of(later[0].low) < least)
        else later
    )


def _id_of(key: bytes) -> Any:
    return _in_order(bson.decode(key, LOSSLESS)["_id"])
