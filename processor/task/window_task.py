"""`replicate_window`, `read_slice`, `apply_bucket`: the tasks of a window's job, as they run in Spark's Python workers.

    narrow window     replicate_window          reads, mounts, folds and applies, all in one task
    wide window       read_slice, in parallel   reads its slice and packs its events by bucket
                      ──shuffle: sorted by (slice, chunk) within a bucket──▶
                      apply_bucket, in parallel mounts, folds and applies a bucket in order
    with divided tables                         each divided table gets a bucket of its own, above the others
                      divide_tables             a stage between the two: spreads each table's components over the other buckets

A task never raises one of our errors: Spark would turn it into text. It returns an outcome that contains a report. An error of a slice
is sent to each bucket at its place in the order, so that no event after it is applied. In the same way a slice that holds too much tells
each bucket where it stopped: the window ends there, and what later slices have read is dropped.

    slice 1 [100, 110)    complete                   1: all events                  2: all events
    slice 2 [110, 120)    full, stopped at 114.3     1: those before 114.3, end     2: those before 114.3, end
    slice 3 [120, 130)    complete                   dropped                        dropped
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from itertools import count, groupby, takewhile
from typing import TypeAlias

import structlog

from changefeed.errors import EventTooLarge, InvariantError, SluiceError
from changefeed.lifecycle import ErrorReport
from changefeed.position import Position, Window
from changefeed.table import TableId
from coordination import failpoint
from credentials.redaction import redacted
from processor.task.changefeed_resources import ChangefeedResources
from processor.task.job import JobOutcome, JobSpec
from processor.task.rows.applier import Applier
from processor.task.rows.division import UNKNOWN, UniqueValues, divide, linked
from processor.task.rows.gate import UNBOUNDED, EarlyEnd, Enough, Gate
from processor.task.rows.mounter import MountedTable
from processor.task.rows.shuffle import BLOB_BYTES, pieces, unpacked, whole
from processor.task.worker_resources import Shared, worker_resources
from source.raw_row import Header
from source.source import RowCapture
from source.stream.change_event import without_images

ChunkKey: TypeAlias = tuple[int, int, int, int]
"""Bucket, slice, the bucket of the divided table that the chunk comes from (0: none), and the chunk's number within these."""
ShuffledBlob: TypeAlias = tuple[ChunkKey, "bytes | ErrorReport | Position"]
"""A position: the slice stopped there, before its end."""

_LAST_ORIGIN = 1 << 31

_log = structlog.get_logger()


def replicate_window(shared: Shared, spec: JobSpec) -> JobOutcome:
    """The one stage of a narrow window."""
    with worker_resources.sharing_the_sink(spec.sink_share):
        return _answered(shared, spec, lambda resources: replicate(resources, spec))


def replicate(resources: ChangefeedResources, spec: JobSpec) -> JobOutcome:
    """Replicates a narrow window with the resources of the running task.

    A window that holds too much, or for which the sink is too slow, ends early: checkpoints move sooner, and a slow table is found.
    """
    job, resources.source_rows.held = spec.whole(resources.context.tables), spec.held
    sole = partial(resources.sole, job, spec.copied)
    asked = resources.asked(job, spec)
    limiter = resources.apply_limiter(spec.limit_share)
    with Applier(
        resources.writer,
        job,
        worker_resources.beside,
        spec.copied,
        sole,
        asked,
        limiter,
        folds=resources.folds,
        shares=spec.sink_share < 1,
        settled=spec.settled,
    ) as applier:
        mount, add = resources.mounter.mount, applier.add
        early = EarlyEnd(_enough(resources), _least(resources, spec), lambda: applier.overdue)
        with closing(_events(resources, spec, job.scan, resources.rows, applier.outcome)) as events:
            for event, header in early.before(events):
                add(mount(event, header))
        if early.at is not None:
            applier.end_at(early.at)
        failpoint.reach("window_read", resources.context.changefeed)
        applier.finish()
        failpoint.reach("window_applied", resources.context.changefeed)
        applier.outcome.repaired = {spec.repairs[each.place.table.id].id for each in asked}
        return applier.outcome


def read_slice(
    shared: Shared, spec: JobSpec, number: int, cuts: Sequence[Window], buckets: int, divided: Sequence[TableId] = ()
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
            early = EarlyEnd(_enough(resources).shared(len(cuts)), _least(resources, spec))
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


def _least(resources: ChangefeedResources, spec: JobSpec) -> Position:
    return spec.job.least or spec.whole(resources.context.tables).scan.start


def _enough(resources: ChangefeedResources) -> Enough:
    options = resources.context.configuration.pipeline
    return Enough(bytes=options.max_lag_batch, events=options.max_lag_events)


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
    events = early.before(_events(resources, spec, window, rows))
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
        found = values.of_change(event, header) if values else UNKNOWN
        yield bucket, linked(found, without_images(event, header))


def divide_tables(buckets: int, chunks: Iterable[ShuffledBlob]) -> Iterator[ShuffledBlob]:
    """An error of this stage comes first in every bucket. Events of a divided table after a slice's error or early end are dropped."""
    try:
        for bucket, records in groupby(chunks, key=_bucket_of):
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
    """A bucket whose events are all in order, without those of divided tables, ends early if the sink is too slow for it: earlier perhaps
    than other buckets.
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

        job, limiter = spec.whole(resources.context.tables), resources.apply_limiter(spec.limit_share)
        with Applier(
            resources.writer, job, worker_resources.beside, spec.copied, limiter=limiter, folds=resources.folds
        ) as applier:
            mount, add, scan = resources.mounter.mount, applier.add, resources.rows.scan
            early = EarlyEnd(UNBOUNDED, _least(resources, spec), lambda: applier.overdue and in_order)
            for event, header in early.before(events()):
                add(mount(event, header))
            ended = early.at or next(iter(stopped), None)
            if isinstance(ended, ErrorReport):
                applier.flush()
                applier.outcome.error = ended
                return applier.outcome
            if ended is not None:
                applier.end_at(ended)
            applier.finish()
            return applier.outcome

    return _answered(shared, spec, work)


def _answered(shared: Shared, spec: JobSpec, work: Callable[[ChangefeedResources], JobOutcome]) -> JobOutcome:
    try:
        with worker_resources.task(shared, spec.attempt) as resources:
            return work(resources)
    except Exception as error:  # noqa: BLE001 - the edge of a task: the error is returned as a report
        return JobOutcome(error=report_of(error))


def report_of(error: Exception) -> ErrorReport:
    if isinstance(error, SluiceError):
        return ErrorReport.of(error, datetime.now(UTC))
    _log.exception("task_failed")
    return ErrorReport.of(
        InvariantError(f"{type(error).__name__} in a task: {redacted(str(error))}"), datetime.now(UTC)
    )


def _events(
    resources: ChangefeedResources, spec: JobSpec, window: Window, rows: RowCapture, outcome: JobOutcome | None = None
) -> Generator[tuple[bytes, Header]]:
    """The events of a window that the job takes. The permit is checked between batches, and each second while the source is silent."""
    gate = Gate(spec.whole(resources.context.tables), resources.context.schemas, spec.held)
    takes, wants, ignores, scan = gate.takes, resources.row_filter.wants, resources.row_filter.ignores, rows.scan
    reader = rows.reader(spec.history)
    with closing(reader.read(window)) as batches:
        for batch in batches:
            worker_resources.permit()
            taken = 0
            for event, header in batch.scanned(scan):
                if wants(header) and takes(header) and not ignores(event, header):
                    if batch.unreadable:
                        raise EventTooLarge(batch.unreadable).about(resources.mounter.table(header).target.id)
                    taken += 1
                    yield event, header
            reader.took(taken, len(batch.events))
            if outcome is not None:
                outcome.silent_until = batch.silent_until


def _bucket_of(chunk: ShuffledBlob) -> int:
    return chunk[0][0]
