"""`TableCopy`: how far the initial copy of one table is, and how etcd records it. Pure.

    snapshot/<table>            CopyRecord: the stage, the number of chunks
    snapshot/<table>/0000       CopyPart: the first chunks, each with its end and with what was copied
    snapshot/<table>/0001       ...

The parts of a new copy are written first and its record last, so that a record always has its parts. The parts of a copy that is done
or restarts mean nothing and are removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Self

from changefeed.cluster_time import ClusterTime
from changefeed.documents.document import Document
from changefeed.documents.key_range import KeyRange, ranges_between
from changefeed.errors import InvariantError
from changefeed.position import Position
from changefeed.records import CopiedChunk, CopyPart, CopyProgress, CopyRecord, CopyStage
from processor.task.copied_ranges import CopiedRanges

CHUNKS_PER_PART = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCopy:
    record: CopyRecord
    bounds: tuple[Document, ...] = ()
    """The bounds between the chunks, ascending: one fewer than there are chunks."""
    copied: Mapping[int, CopiedChunk]

    @classmethod
    def planned(cls, start: Position, bounds: Iterable[Document], *, whole: bool) -> Self:
        found = tuple(bounds)
        record = CopyRecord(start=start, stage=CopyStage.COPYING, chunks=len(found) + 1, whole=whole)
        return cls(record=record, bounds=found, copied={})

    @classmethod
    def restarting(cls, start: Position) -> Self:
        return cls(record=CopyRecord(start=start, stage=CopyStage.RESTART), copied={})

    @classmethod
    def from_records(cls, record: CopyRecord, parts: Iterable[CopyPart]) -> Self:
        """`parts` are in the order of their keys. Parts beyond the record's chunks belong to an earlier copy."""
        if record.stage is not CopyStage.COPYING:
            return cls(record=record, copied={})
        joined = list(parts)[: part_of(record.chunks - 1) + 1]
        uppers = [upper for part in joined for upper in part.uppers]
        chunks = [chunk for part in joined for chunk in part.copied]
        bounds = tuple(upper for upper in uppers if upper is not None)
        if len(uppers) != record.chunks or len(chunks) != record.chunks or len(bounds) != record.chunks - 1:
            raise InvariantError(f"parts of a copy record: expected {record.chunks} chunks, observed {len(uppers)}")
        copied = {number: chunk for number, chunk in enumerate(chunks) if chunk is not None}
        return cls(record=record, bounds=bounds, copied=copied)

    @property
    def stage(self) -> CopyStage:
        return self.record.stage

    @property
    def start(self) -> Position:
        return self.record.start

    @property
    def chunks(self) -> tuple[KeyRange, ...]:
        return tuple(ranges_between(self.bounds)) if self.record.chunks else ()

    def missing(self) -> Iterator[int]:
        return (number for number in range(self.record.chunks) if number not in self.copied)

    @property
    def complete(self) -> bool:
        return len(self.copied) == self.record.chunks

    @property
    def stands(self) -> bool:
        """Whether the target's table exists, even if tasks of this copy were interrupted at any point."""
        return self.complete or not self.record.whole

    @property
    def upto(self) -> Position:
        """The first position of which no chunk contains a change: from here on the table is like any other."""
        if not self.complete:
            raise InvariantError("end of a copy: expected all chunks to be copied, observed missing chunks")
        return beyond(max(chunk.until for chunk in self.copied.values()))

    @property
    def ranges(self) -> CopiedRanges:
        return CopiedRanges.of(self.bounds, (self.copied.get(number) for number in range(self.record.chunks)))

    @property
    def progress(self) -> CopyProgress:
        chunks = self.copied.values()
        return CopyProgress(
            documents=sum(chunk.documents for chunk in chunks),
            bytes=sum(chunk.bytes for chunk in chunks),
            chunks_done=len(chunks),
            chunks=self.record.chunks,
        )

    def with_chunk(self, number: int, chunk: CopiedChunk) -> Self:
        if number in self.copied or not 0 <= number < self.record.chunks:
            raise InvariantError(
                f"chunk {number} of {self.record.chunks}: expected a missing chunk, observed one that is copied or does not exist"
            )
        return replace(self, copied={**self.copied, number: chunk})

    def without(self, numbers: Iterable[int]) -> Self:
        forgotten = set(numbers)
        return replace(self, copied={number: chunk for number, chunk in self.copied.items() if number not in forgotten})

    def read_across(self, position: Position) -> tuple[int, ...]:
        """The chunks whose reading began after the copy's start and before this position, and ended after it.

        A chunk of a shared table counts as read since before the copy's start: all changes are replayed on it, and it cannot be read again.
        """
        return tuple(
            number
            for number, chunk in sorted(self.copied.items())
            if self.start.ts <= chunk.after < position.ts <= chunk.until
        )

    def done(self) -> Self:
        record = replace(self.record, stage=CopyStage.DONE, chunks=0)
        return replace(self, record=record, bounds=(), copied={})

    def part(self, number: int) -> CopyPart:
        first = number * CHUNKS_PER_PART
        chunks = range(first, min(first + CHUNKS_PER_PART, self.record.chunks))
        uppers = tuple(self.bounds[chunk] if chunk < len(self.bounds) else None for chunk in chunks)
        return CopyPart(uppers=uppers, copied=tuple(self.copied.get(chunk) for chunk in chunks))

    def parts(self) -> Iterator[CopyPart]:
        return (self.part(number) for number in range(part_of(self.record.chunks - 1) + 1))


def part_of(chunk: int) -> int:
    return chunk // CHUNKS_PER_PART


def beyond(ts: ClusterTime) -> Position:
    return Position(ts.next())
