"""The initial copy of one table, as the node that copies records it, and its progress."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from changefeed.cluster_time import ClusterTime
from changefeed.documents.document import Document
from changefeed.position import Position
from changefeed.table import TableSize


class CopyStage(StrEnum):
    """copying -> done, or copying -> restart -> copying."""

    COPYING = "copying"
    DONE = "done"
    """The table's rows are as if replicated from the beginning, and its indexes are built."""
    RESTART = "restart"
    """A DDL interrupted the copy: the target's table is empty and has its indexes. The copy restarts at `start` when that DDL is done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyFloor:
    """What was shown as copied before chunks had to be copied again. Progress that is shown does not fall below it."""

    copied: TableSize
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyRecord:
    """The progress of one table's initial copy. While it exists, the collection of that name in the target belongs to Sluice."""

    start: Position
    """Where the copy started: it reads nothing older, and the table's changes apply from here."""
    stage: CopyStage
    chunks: int = 0
    whole: bool = False
    """Read as one chunk, in natural order: for a table whose keys Sluice cannot order as the server does, or whose natural order matters."""
    size: TableSize | None = None
    """The source's table when the copy started."""
    floor: CopyFloor | None = None
    """Of a copy that is done: what was copied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedChunk:
    """The chunk holds every change up to and including `after`, and none later than `until`. It may hold some of those between.

    For a snapshot, both are equal.
    """

    after: ClusterTime
    until: ClusterTime
    documents: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkPiece:
    upper: Document | None
    copied: CopiedChunk | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyPart:
    """Successive chunks of a copy: the end of each (None for the last), and its result (None until it is copied).

    A copy of 10,000 chunks is split over several values, so that a finished chunk costs a small write.
    """

    uppers: tuple[Document | None, ...]
    copied: tuple[CopiedChunk | None, ...]
    divided: Mapping[int, tuple[ChunkPiece, ...]] = field(default_factory=dict)
    """The pieces of chunks that were divided while they were read, by the chunk's place here. As a whole such a chunk is never copied: an earlier
    release, which does not know pieces, copies it again."""
    floor: CopyFloor | None = None
    """Of the whole copy, when the part was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyRate:
    """Each second, over the last minute in which chunks ended."""

    documents: float = 0.0
    bytes: float = 0.0

    def __add__(self, other: CopyRate) -> CopyRate:
        return CopyRate(documents=self.documents + other.documents, bytes=self.bytes + other.bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyProgress:
    """Of one table. `share`, `documents` and `bytes` never fall, though chunks are copied again; what is left may grow by that."""

    documents: int = 0
    bytes: int = 0
    chunks_done: int = 0
    chunks: int = 0
    left: TableSize = field(default_factory=TableSize)
    share: float = 0.0
    """Of the chunks."""
    rate: CopyRate | None = None
