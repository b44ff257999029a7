"""`copy_chunk`: copies one chunk, inside a Spark task.

    clear the range (a whole table: create it again)  removes rows of an earlier attempt, whose deletes are not applied again
    read at one cluster time, load                    the next reply is read while one is loaded
    after a limit of time: leave the rest             the next reply, not loaded, begins the next chunk
    answer with the times, documents and bytes        the driver records them

A worked example of why the range is cleared: an attempt reads document 7 at 100.4, loads it, and dies. Document 7 is deleted at 100.6.
The next attempt reads at 100.9 and does not see it. The delete is before the chunk's time, so it is never applied. Without the clearing,
document 7 would stay at the target for good.

Nothing is recorded here. A chunk counts once its driver has recorded it, and the next attempt removes everything that an unrecorded
attempt has left. Where several tables share one target name, or rows from before are kept, nothing can be removed. There, all changes
since the start of the copy are replayed on the chunk, and deletes are applied though the chunk is missing (docs/decisions/0107).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import filterfalse

import structlog

from changefeed.cluster_time import ClusterTime
from changefeed.documents.key_range import KeyRange
from changefeed.position import Position
from changefeed.records.copy import CopiedChunk
from coordination import failpoint
from processor.copy.target_table import Creation, make_anew
from processor.limits.limiter import UNLIMITED, Limiter
from sink.ddl import DdlApplier
from sink.load import DocumentLoader
from sink.receipt import Receipt
from source.raw.columns import Columns
from source.source import TaskSource
from source.tables.chunk_reader import Chunk, ReadWay, SnapshotLost
from source.tables.chunks import bound_at

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyOrder:
    """`copied_from`: where the table's copy began."""

    chunk: Chunk
    creation: Creation
    copied_from: Position
    divide_after: int | None = None
    """Seconds, if the chunk may be divided."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyPlace:
    """What a task has open. `check_wanted` raises when the chunk is no longer wanted. `columns`: what the target sees; None: all.

    `left_out`: which documents the filter keeps from the target; None: none.
    """

    source: TaskSource
    loader: DocumentLoader
    columns: Columns | None = None
    left_out: Callable[[bytes], bool] | None = None
    ddl: DdlApplier
    check_wanted: Callable[[], object]
    limiter: Limiter = UNLIMITED


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadChunk:
    """`range`: the chunk, or the part of it from its beginning that was read."""

    range: KeyRange
    copied: CopiedChunk
    receipts: tuple[Receipt, ...] = ()
    read_after: ClusterTime | None = None
    """What the documents contain at least. `copied.after` is earlier where changes are replayed since the copy's start."""


def copy_chunk(order: CopyOrder, place: CopyPlace) -> ReadChunk:
    if place.source.snapshots:
        try:
            return _attempt(order, place, ReadWay.SNAPSHOT)
        except SnapshotLost as error:
            _log.info("chunk_read_without_snapshot", chunk=str(order.chunk), reason=str(error))
    return _attempt(order, place, ReadWay.WATERMARK)


def _attempt(order: CopyOrder, place: CopyPlace, way: ReadWay) -> ReadChunk:
    place.check_wanted()
    if order.chunk.whole:
        make_anew(order.creation, place.ddl)
    elif not order.creation.filled_in_place:
        place.loader.clear(order.chunk.range)
    reader = place.source.chunk(order.chunk, way)
    read, begun_at, documents, size, last = order.chunk.range, time.monotonic(), 0, 0, b""
    for batch in _ahead(reader.batches()):
        place.check_wanted()
        if reader.ended:
            continue
        long = order.divide_after is not None and time.monotonic() >= begun_at + order.divide_after
        bound = bound_at(last, batch[0]) if long and last and batch else None
        if bound is not None:
            reader.end()
            read = replace(read, upper=bound)
            continue
        wanted = batch if place.left_out is None else list(filterfalse(place.left_out, batch))
        shown = wanted if place.columns is None else list(map(place.columns.document, wanted))
        for part in place.limiter.parts(shown):
            place.loader.load(part, reader.after)
        last = batch[-1] if batch else last
        documents += len(batch)
        size += sum(map(len, batch))
    after = _before(order.copied_from) if order.creation.filled_in_place else reader.after
    copied = CopiedChunk(after=after, until=reader.until, documents=documents, bytes=size)
    failpoint.reach("chunk_loaded", order.chunk.table.db)
    return ReadChunk(range=read, copied=copied, receipts=place.loader.finish(), read_after=reader.after)


def _before(position: Position) -> ClusterTime:
    return position.ts.previous()


def _ahead(batches: Iterator[list[bytes]]) -> Iterator[list[bytes]]:
    """Reads the next batch while one is loaded, so that the times of the two servers do not add up. Two replies are in memory."""
    with ThreadPoolExecutor(1, "chunk") as thread:
        upcoming = thread.submit(next, batches, None)
        while (batch := upcoming.result()) is not None:
            upcoming = thread.submit(next, batches, None)
            yield batch
