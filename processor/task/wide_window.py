"""`read_slice`, `divide_tables`, `apply_bucket`: the tasks of a wide window's job, as they run in Spark's Python workers.

    read_slice, in parallel      reads its slice and packs its events by bucket
    ──shuffle: sorted by (slice, chunk) within a bucket──▶
    apply_bucket, in parallel    mounts, folds and applies a bucket in order

    with divided tables          each divided table gets a bucket of its own, above the others
    divide_tables                a stage between the two: spreads each table's components over the other buckets

An error of a slice is sent to each bucket at its place in the order, so that no event after it is applied. In the same way a slice that holds too
much tells each bucket where it stopped: the window ends there, and what later slices have read is dropped.

    slice 1 [100, 110)    complete                   1: all events                  2: all events
    slice 2 [110, 120)    full, stopped at 114.3     1: those before 114.3, end     2: those before 114.3, end
    slice 3 [120, 130)    complete                   dropped                        dropped
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import count, groupby, takewhile
from typing import TypeAlias

from changefeed.lifecycle import ErrorReport
from changefeed.position import Position, Window
from changefeed.table import TableId
from processor.task.changefeed_resources import ChangefeedResources
from processor.task.job import JobOutcome, JobSpec
from processor.task.rows.applier import Applier, SinkUse
from processor.task.rows.division import UNKNOWN, UniqueValues, divide, linked
from processor.task.rows.gate import UNBOUNDED, EarlyEnd
from processor.task.rows.mounter import MountedTable
from processor.task.rows.shuffle import BLOB_BYTES, pieces, unpacked, whole
from processor.task.window_task import answered, enough, events_of, least_end, report_of
from processor.task.worker_resources import Shared, worker_resources
from source.raw_row import Header
from source.stream.change_event import without_images

ChunkKey: TypeAlias = tuple[int, int, int, int]
"""Bucket, slice, the bucket of the divided table that the chunk comes from (0: none), and the chunk's number within these."""
ShuffledBlob: TypeAlias = tuple[ChunkKey, "bytes | ErrorReport | Position"]
"""A position: the slice stopped there, before its end."""

_LAST_ORIGIN = 1 << 31


def read_slice(
    shared: Shared, spec: JobSpec, cuts: Sequence[Window], buckets: int, divided: Sequence[TableId], number: int
) -> Iterator[ShuffledBlob]:
    """The events of a slice in order, packed. Equal keys go to one bucket, and memory holds at most one chunk for each bucket."""
    all_buckets = buckets + len(divided)
    packed: list[list[bytes]] = [[] for _ in range(all_buckets)]
    sizes, chunks = [0] * all_buckets, [0] * all_buckets

    def chunk(bucket: int, content: bytes | ErrorReport) -> ShuffledBlob:
        chunks[bucket] += 1
        return (bucket, number, 0, chunks[bucket]), content

    def chunks_of(bucket: int) -> Iterator[ShuffledBlob]:
        blob = b"".join(packed[bucket])
        for piece in pieces(blob) if bucket < buckets else (blob,):
            yield chunk(bucket, piece)

    try:
        with worker_resources.task(shared, spec.attempt) as resources:
            early = EarlyEnd(enough(resources), least_end(resources, spec))
            for bucket, event in _routed(resources, spec, cuts[number], early, buckets, divided):
                packed[bucket].append(event)
                sizes[bucket] += len(event)
                if sizes[bucket] >= BLOB_BYTES:
                    yield from chunks_of(bucket)
                    packed[bucket], sizes[bucket] = [], 0
            for bucket in range(all_buckets):
                if packed[bucket]:
                    yield from chunks_of(bucket)
                if early.at is not None:
                    yield (bucket, number, _LAST_ORIGIN, 0), early.at
    except Exception as error:  # noqa: BLE001 - the edge of a task: the error is returned as a report
        report = report_of(error)
        yield from (chunk(bucket, report) for bucket in range(all_buckets))


def _routed(
    resources: ChangefeedResources,
    spec: JobSpec,
    window: Window,
    early: EarlyEnd,
    buckets: int,
    divided: Sequence[TableId],
) -> Iterator[tuple[int, bytes]]:
    """The events of a slice, each with its bucket."""
    rows = resources.rows_with_images if divided else resources.rows
    events: Iterable[tuple[bytes, Header]] = early.before(events_of(resources, spec, window, rows))
    if (carried := rows.carried) is not None:
        events = ((carried(event, header), header) for event, header in events)
    if divided:
        yield from _divided(resources, events, buckets, divided)
        return
    table = resources.mounter.table
    for event, header in events:
        yield table(header).route.bucket(header.key, buckets), event


def _divided(
    resources: ChangefeedResources, events: Iterable[tuple[bytes, Header]], buckets: int, divided: Sequence[TableId]
) -> Iterator[tuple[int, bytes]]:
    table = resources.mounter.table
    own_bucket = {id_: buckets + number for number, id_ in enumerate(divided)}
    of_version: dict[TableId, tuple[MountedTable, UniqueValues | None]] = {}
    for event, header in events:
        mounted = table(header)
        bucket = own_bucket.get(mounted.target.id)
        if bucket is None:
            yield mounted.route.bucket(header.key, buckets), event
            continue
        version, values = of_version.get(mounted.target.id, (None, None))
        if version is not mounted:
            values = UniqueValues.of(mounted.schema)
            of_version[mounted.target.id] = mounted, values
        digests = values.of_change(event, header) if values else UNKNOWN
        yield bucket, linked(digests, without_images(event, header))


def divide_tables(buckets: int, chunks: Iterable[ShuffledBlob]) -> Iterator[ShuffledBlob]:
    """An error of this stage comes first in every bucket. Events of a divided table after a slice's error or early end are dropped."""
    try:
        for bucket, records in groupby(chunks, key=lambda chunk: chunk[0][0]):
            if bucket < buckets:
                yield from records
                continue
            good = takewhile(lambda chunk: isinstance(chunk[1], bytes), records)
            events = ((key[1], content) for key, content in good if isinstance(content, bytes))
            number = count()
            for final, slice_, blob in divide(events, bucket, buckets):
                for piece in pieces(blob):
                    yield (final, slice_, bucket, next(number)), piece
    except Exception as error:  # noqa: BLE001 - the edge of a task: the error is returned as a report
        report = report_of(error)
        for bucket in range(buckets):
            yield (bucket, -1, 0, 0), report


def apply_bucket(
    shared: Shared, spec: JobSpec, chunks: Iterable[ShuffledBlob], *, in_order: bool = False
) -> JobOutcome:
    """A bucket whose events are all in order, without those of divided tables, ends early if the sink is far too slow for it: earlier perhaps
    than other buckets, whose rows are then replayed, which takes a target several times as long.
    """

    def work(resources: ChangefeedResources) -> JobOutcome:
        stopped: list[ErrorReport | Position] = []
        resources.source_rows.held = spec.held

        def events() -> Iterator[tuple[bytes, Header]]:
            parts: Iterator[ShuffledBlob] = whole(chunks)
            for _, content in parts:
                if not isinstance(content, bytes):
                    stopped.append(content)
                    return
                for event in unpacked(content):
                    yield event, scan(event)

        job = spec.whole(resources.context.tables)
        use = SinkUse(limiter=resources.apply_limiter(spec.limit_share), folds=resources.folds, settled=True)
        with Applier(resources.writer, job, worker_resources.beside, spec.copied, use=use) as applier:
            mount, add, scan = resources.mounter.mount, applier.add, resources.rows.scan
            early = EarlyEnd(UNBOUNDED, least_end(resources, spec), lambda: applier.overdue and in_order)
            for event, header in early.before(events()):
                add(mount(event, header))
            applier.outcome.held = early.held
            ended = early.at or next(iter(stopped), None)
            if isinstance(ended, ErrorReport):
                applier.flush()
                applier.outcome.error = ended
                return applier.outcome
            if ended is not None:
                applier.end_at(ended)
            applier.finish()
            return applier.outcome

    return answered(shared, spec, work)
