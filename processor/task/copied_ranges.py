"""`CopiedRanges`: which of a table's changes its copy already contains, by key. Pure.

Each chunk was read at a time of its own. Only changes of its keys after that time are applied. Earlier ones must not be replayed on the
copied documents: the values would be right in the end, but the order of fields would not.

    document at the start       {f: 1}
    unset f, set f, set g       {f: 2, g: 3}        copied here
    the three replayed on it    {g: 3}, {g: 3, f: 2}, {g: 3, f: 2}

A worked example, chunks (-inf, 10) read at 100.4 and [10, inf) not read yet; `upto` is then unknown, and the lane stops before it:

    insert 3 at 100.2       HELD: the copy contains the document in this state or a later one
    update 3 at 100.4       HELD: a snapshot contains everything at its time
    update 3 at 100.5       NEW
    delete 12 at 100.5      HELD: the chunk will be read later than any change that a lane may apply now

A chunk read without a snapshot has two times. It may or may not contain the changes after the first time and up to the second. They are
REPLAYED: an insert that finds its document replaces it, an update that does not fit is skipped, and later changes of the same span make
the values right. Only the order of fields may differ, if a field was removed and set again while the chunk was read.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from functools import cmp_to_key
from typing import Any, Self

from changefeed.documents.bson_order import compare
from changefeed.documents.document import Document, raw_document
from changefeed.event import RowType
from changefeed.records.copy import CopiedChunk
from sink.row import RowChange

_NEVER = 2**64 - 1

_in_order = cmp_to_key(compare)


class Overlap(Enum):
    HELD = "held"
    """The copy contains the change, or will contain it: drop the change."""
    REPLAYED = "replayed"
    """The copy may contain the change."""
    NEW = "new"


@dataclass(frozen=True, slots=True)
class CopiedRanges:
    """`times`: the two times of each chunk, as 64-bit cluster times. `bounds`: the raw `{_id: value}` documents between the chunks.

    `uncleared`: the target's table may hold rows of others, so nothing is cleared before a chunk is read. A delete is then never held for a chunk
    that is missing: no later attempt would see that the document has gone.
    """

    bounds: tuple[bytes, ...]
    times: tuple[tuple[int, int], ...]
    uncleared: bool = False

    @classmethod
    def of(cls, uppers: Iterable[Document | None], copied: Iterable[CopiedChunk | None]) -> Self:
        """A chunk not copied yet counts as read at the end of time."""
        bounds = tuple(upper.raw for upper in uppers if upper is not None)
        times = tuple(
            (_NEVER, _NEVER) if chunk is None else (chunk.after.to_int(), chunk.until.to_int()) for chunk in copied
        )
        return cls(bounds, times)

    @property
    def first(self) -> int:
        return min(after for after, _ in self.times)

    @property
    def last(self) -> int:
        return max(until for _, until in self.times)


class CopiedFilter:
    """`CopiedRanges`, prepared for looking up many changes. It stays in one task, since its keys cannot be pickled."""

    def __init__(self, ranges: CopiedRanges) -> None:
        self._bounds = [_in_order(key_of(bound)) for bound in ranges.bounds]
        self._times = ranges.times
        self._first, self._last = ranges.first, ranges.last
        self._uncleared = ranges.uncleared

    def of(self, change: RowChange) -> Overlap:
        overlap = self.overlap(change.key, change.time)
        gone = self._uncleared and overlap is Overlap.HELD and change.type is RowType.DELETE
        return Overlap.REPLAYED if gone and self._missing(change.key) else overlap

    def _missing(self, document_key: bytes) -> bool:
        return self._times[bisect_right(self._bounds, _in_order(key_of(document_key)))][0] == _NEVER

    def overlap(self, document_key: bytes, time: int) -> Overlap:
        if time > self._last:
            return Overlap.NEW
        if time <= self._first:
            return Overlap.HELD
        after, until = self._times[bisect_right(self._bounds, _in_order(key_of(document_key)))]
        if time <= after:
            return Overlap.HELD
        return Overlap.REPLAYED if time <= until else Overlap.NEW


def key_of(document: bytes) -> Any:
    """The `_id`, decoded without loss: no date is out of range and no document becomes a DBRef."""
    return raw_document(document)["_id"]
