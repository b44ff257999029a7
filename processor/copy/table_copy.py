"""`TableCopy`: how far the initial copy of one table is, and how etcd records it; `CopyPace`: how fast it goes. Pure.

    snapshot/<table>            CopyRecord: the stage, the number of chunks
    snapshot/<table>/0000       CopyPart: the first chunks, each with its end and with what was copied
    snapshot/<table>/0001       ...

A chunk whose reading takes too long is divided where it is: what was read is a piece of its own, and the rest another one, which is read later
and at a later time. So a chunk may be of any size; how a table is divided beforehand only matters for balance.

    planned         [first, 5)            [5, end)
    5 to 7 read     [first, 5)            [5, 7) copied         [7, end)        both recorded as pieces of the second one

The parts of a new copy are written first and its record last, so that a record always has its parts. The parts of a copy that is done
or restarts mean nothing and are removed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Self

from changefeed.cluster_time import ClusterTime
from changefeed.documents.document import Document
from changefeed.documents.row_key import KeyRange, ranges_between
from changefeed.errors import InvariantError
from changefeed.position import Position
from changefeed.records.copy import (
    ChunkPiece,
    CopiedChunk,
    CopyFloor,
    CopyPart,
    CopyProgress,
    CopyRate,
    CopyRecord,
    CopyStage,
)
from changefeed.table import TableSize
from processor.task.copied_ranges import CopiedRanges

CHUNKS_PER_PART = 64
"""Planned ones."""
_BRIEF_BYTES = 1 << 20
_MOST_OF_A_CHUNK = 0.99
_MOST_IN_PART = 1024
"""With their pieces: a part is one value in etcd."""
_RATE_SECONDS = 60.0
_MOST_ENDS = 64
"""Ends of chunks that are remembered. Those of small tables may be hundreds a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCopy:
    record: CopyRecord
    bounds: tuple[Document, ...] = ()
    """The bounds between the chunks, ascending: one fewer than there are chunks."""
    planned_as: tuple[int, ...] = ()
    """For each chunk, the planned one that it is, or is a piece of. Ascending."""
    copied: Mapping[int, CopiedChunk]
    floor: CopyFloor | None = None

    @classmethod
    def planned(
        cls,
        start: Position,
        bounds: Iterable[Document],
        *,
        whole: bool,
        size: TableSize | None = None,
        before: TableCopy | None = None,
    ) -> Self:
        """`before`: the copy of the table that this one repeats."""
        chunk_bounds, floor = tuple(bounds), before.shown if before else None
        stage = CopyStage.COPYING
        record = CopyRecord(start=start, stage=stage, chunks=len(chunk_bounds) + 1, whole=whole, size=size, floor=floor)
        return cls(record=record, bounds=chunk_bounds, planned_as=tuple(range(record.chunks)), copied={}, floor=floor)

    @classmethod
    def restarting(cls, start: Position, before: TableCopy | None = None) -> Self:
        floor, size = (before.shown, before.record.size) if before else (None, None)
        record = CopyRecord(start=start, stage=CopyStage.RESTART, size=size, floor=floor)
        return cls(record=record, copied={}, floor=floor)

    @classmethod
    def from_records(cls, record: CopyRecord, parts: Iterable[CopyPart]) -> Self:
        """`parts` are in the order of their keys. Parts beyond the record's chunks belong to an earlier copy."""
        if record.stage is not CopyStage.COPYING:
            return cls(record=record, copied={}, floor=record.floor)
        joined = list(parts)[: _part_of(record.chunks - 1) + 1]
        planned = [pieces for part in joined for pieces in _pieces(part)]
        found = [(number, piece) for number, pieces in enumerate(planned) for piece in pieces]
        bounds = tuple(piece.upper for _, piece in found if piece.upper is not None)
        if len(planned) != record.chunks or len(bounds) != len(found) - 1:
            raise InvariantError(f"parts of a copy record: expected {record.chunks} chunks, observed {len(planned)}")
        copied = {place: piece.copied for place, (_, piece) in enumerate(found) if piece.copied is not None}
        floor = _highest(floor for floor in (record.floor, *(part.floor for part in joined)) if floor is not None)
        planned_as = tuple(number for number, _ in found)
        return cls(record=record, bounds=bounds, planned_as=planned_as, copied=copied, floor=floor)

    @property
    def stage(self) -> CopyStage:
        return self.record.stage

    @property
    def start(self) -> Position:
        return self.record.start

    @property
    def chunks(self) -> tuple[KeyRange, ...]:
        return tuple(ranges_between(self.bounds)) if self.planned_as else ()

    def missing(self) -> Iterator[int]:
        return (number for number in range(len(self.planned_as)) if number not in self.copied)

    @property
    def complete(self) -> bool:
        return len(self.copied) == len(self.planned_as)

    @property
    def stands(self) -> bool:
        """Whether the target's table exists, even if tasks of this copy were interrupted at any point."""
        return self.complete or not self.record.whole

    @property
    def small(self) -> bool:
        """A table that is read whole may be of any size."""
        return self.record.chunks == 1 and not self.record.whole

    @property
    def brief(self) -> bool:
        """So small that several in one task need no memory worth mentioning."""
        return self.small and self.record.size is not None and self.record.size.bytes <= _BRIEF_BYTES

    @property
    def upto(self) -> Position:
        """The first position of which no chunk contains a change: from here on the table is like any other."""
        if not self.complete:
            raise InvariantError("end of a copy: expected all chunks to be copied, observed missing chunks")
        return beyond(max(chunk.until for chunk in self.copied.values()))

    @property
    def ranges(self) -> CopiedRanges:
        return CopiedRanges.of(self.bounds, (self.copied.get(number) for number in range(len(self.planned_as))))

    @property
    def progress(self) -> CopyProgress:
        shown = self.shown
        return CopyProgress(
            documents=shown.copied.documents,
            bytes=shown.copied.bytes,
            chunks_done=len(self.copied),
            chunks=len(self.planned_as),
            left=(self.record.size or TableSize()).part(1.0 - self._share),
            share=shown.share,
        )

    @property
    def shown(self) -> CopyFloor:
        """What users are told to be copied."""
        present = CopyFloor(copied=self._size, share=self._share)
        return _highest([present, self.floor] if self.floor else [present]) or present

    @property
    def _size(self) -> TableSize:
        chunks = self.copied.values()
        return TableSize(documents=sum(chunk.documents for chunk in chunks), bytes=sum(chunk.bytes for chunk in chunks))

    @property
    def _share(self) -> float:
        """Of the planned chunks, which are taken to be of one size. A divided one counts by the size of its pieces, and only at its end as a whole."""
        if not self.record.chunks:
            return 0.0
        open_ = dict.fromkeys((self.planned_as[number] for number in self.missing()), 0)
        for number, chunk in self.copied.items():
            if self.planned_as[number] in open_:
                open_[self.planned_as[number]] += chunk.bytes
        expected = max(1, (self.record.size or TableSize()).bytes) / self.record.chunks
        parts = sum(min(_MOST_OF_A_CHUNK, size / expected) for size in open_.values())
        return (self.record.chunks - len(open_) + parts) / self.record.chunks

    def number_from(self, lower: Document | None) -> int:
        """The chunk that begins there. Where a chunk begins never changes, its number does."""
        if lower is None:
            return 0
        if lower not in self.bounds:
            raise InvariantError(
                f"a chunk from {lower}: expected one of {len(self.planned_as)} chunks, observed none that begins there"
            )
        return self.bounds.index(lower) + 1

    def with_chunk(self, read: KeyRange, chunk: CopiedChunk) -> Self:
        """`read`: a missing chunk, or its first part, which divides it."""
        number = self.number_from(read.lower)
        if number in self.copied:
            raise InvariantError(
                f"chunk {number} of {len(self.planned_as)}: expected a missing chunk, observed one that is copied"
            )
        divided = self if read.upper == self._upper(number) else self._divided(number, read.upper)
        return replace(divided, copied={**divided.copied, number: chunk})

    def may_divide(self, number: int) -> bool:
        if self.record.whole:
            return False
        first = self.part_of(number) * CHUNKS_PER_PART
        return len(self._planned(first, first + CHUNKS_PER_PART)) < _MOST_IN_PART

    def _divided(self, number: int, bound: Document | None) -> Self:
        if bound is None:
            raise InvariantError(
                f"chunk {number}: expected a bound inside it, observed its end, which is not the table's"
            )
        return replace(
            self,
            bounds=(*self.bounds[:number], bound, *self.bounds[number:]),
            planned_as=(*self.planned_as[:number], self.planned_as[number], *self.planned_as[number:]),
            copied={each + (each > number): chunk for each, chunk in self.copied.items()},
        )

    def _upper(self, number: int) -> Document | None:
        return self.bounds[number] if number < len(self.bounds) else None

    def _planned(self, first: int, end: int) -> range:
        """The chunks that are, or are pieces of, the planned ones from `first` to before `end`."""
        return range(bisect_left(self.planned_as, first), bisect_left(self.planned_as, end))

    def without(self, numbers: Iterable[int]) -> Self:
        forgotten = set(numbers)
        left = {number: chunk for number, chunk in self.copied.items() if number not in forgotten}
        return replace(self, copied=left, floor=self.shown)

    def read_across(self, position: Position, *, others: bool) -> tuple[int, ...]:
        """The chunks whose reading began before this position and ended after it.

        A chunk on which all changes are replayed counts as read since before the copy's start. Of a table with rows of `others` it can be read
        again, since no delete is held back for a missing chunk. A sink of messages needs nothing of that: no change of it depends on a chunk.
        """
        return tuple(
            number
            for number, chunk in sorted(self.copied.items())
            if chunk.after < position.ts <= chunk.until and (others or self.start.ts <= chunk.after)
        )

    def done(self) -> Self:
        floor = replace(self.shown, share=1.0)
        record = replace(self.record, stage=CopyStage.DONE, chunks=0, floor=floor)
        return replace(self, record=record, bounds=(), planned_as=(), copied={}, floor=floor)

    def part_of(self, number: int) -> int:
        return _part_of(self.planned_as[number])

    def part(self, number: int) -> CopyPart:
        first = number * CHUNKS_PER_PART
        planned = [
            [
                ChunkPiece(upper=self._upper(chunk), copied=self.copied.get(chunk))
                for chunk in self._planned(one, one + 1)
            ]
            for one in range(first, min(first + CHUNKS_PER_PART, self.record.chunks))
        ]
        whole = [pieces[0].copied if len(pieces) == 1 else None for pieces in planned]
        divided = {place: tuple(pieces) for place, pieces in enumerate(planned) if len(pieces) > 1}
        part = CopyPart(uppers=tuple(pieces[-1].upper for pieces in planned), copied=tuple(whole), floor=self.floor)
        return replace(part, divided=divided) if divided else part

    def parts(self) -> Iterator[CopyPart]:
        return (self.part(number) for number in range(_part_of(self.record.chunks - 1) + 1))


@dataclass(frozen=True, slots=True)
class CopyPace:
    """How fast documents are copied, from the chunks that have ended.

    The rate is that of the last minute in which chunks ended, and changes only when one ends: a report that is written then anyway carries it.
    What a node knows ends with it: its successor has a rate once a chunk has ended there. Time in which nothing is copied counts.

        begun at 0, chunks of 64 MB end at 10, 20, 30                   6.4 MB/s
        ... and the next one at 200, after a DDL has held the table     64 MB in 170 s: 0.4 MB/s
        ... and the next ones at 210, 220 ... 260                       6.4 MB/s again
    """

    ends: tuple[tuple[float, TableSize], ...]
    """What was copied by then: `begun` first, in the order of time."""

    @classmethod
    def begun(cls, at: float) -> CopyPace:
        return cls(((at, TableSize()),))

    def after(self, copied: TableSize, at: float) -> CopyPace:
        """More was copied by then."""
        total = self.ends[-1][1] + copied
        if len(self.ends) > 1 and at - self.ends[-2][0] < _RATE_SECONDS / _MOST_ENDS:
            return CopyPace((*self.ends[:-1], (at, total)))
        within = tuple(end for end in self.ends[:-1] if end[0] >= at - _RATE_SECONDS)
        return CopyPace((*within, self.ends[-1], (at, total)))

    @property
    def rate(self) -> CopyRate | None:
        """None until a chunk has ended."""
        (first_at, first), (last_at, last) = self.ends[0], self.ends[-1]
        seconds = last_at - first_at
        if seconds <= 0:
            return None
        return CopyRate(
            documents=round((last.documents - first.documents) / seconds, 1),
            bytes=round((last.bytes - first.bytes) / seconds, 1),
        )


def _highest(floors: Iterable[CopyFloor]) -> CopyFloor | None:
    highest: CopyFloor | None = None
    for floor in floors:
        highest = highest or floor
        share = max(highest.share, floor.share)
        highest = CopyFloor(copied=highest.copied.at_least(floor.copied), share=share)
    return highest


def _part_of(planned: int) -> int:
    return planned // CHUNKS_PER_PART


def _pieces(part: CopyPart) -> Iterator[tuple[ChunkPiece, ...]]:
    for place, (upper, copied) in enumerate(zip(part.uppers, part.copied, strict=True)):
        yield part.divided.get(place) or (ChunkPiece(upper=upper, copied=copied),)


def beyond(ts: ClusterTime) -> Position:
    return Position(ts.next())
