"""`run_copy_steps`: the task that carries out steps of initial copies in a Spark worker, since they need the source or the target and a permit.

One task gets many steps of small tables, since a task costs more than such a step. Of brief ones it does some at once, as each mostly waits
for the target's disk. After one second it starts no further step. A chunk is copied so:

    clear the range (a whole table: create it again)  removes rows of an earlier attempt, whose deletes are not applied again; not if there was none
    read at one cluster time, load                    the next reply is read while one is loaded
    after a limit of time: leave the rest             the next reply, not loaded, begins the next chunk
    answer with the times, documents and bytes        the driver records them

A worked example of why the range is cleared: an attempt reads document 7 at 100.4, loads it, and dies. Document 7 is deleted at 100.6.
The next attempt reads at 100.9 and does not see it. The delete is before the chunk's time, so it is never applied. Without the clearing,
document 7 would stay at the target for good.

Nothing is recorded here. A chunk counts once its driver has recorded it, and the next attempt removes everything that an unrecorded
attempt has left. Where several tables share one target name, or rows from before are kept, nothing can be removed. There, all changes
since the start of the copy are replayed on the chunk, and deletes are applied though the chunk is missing (docs/why/copy.md).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from itertools import filterfalse, groupby

import structlog

from changefeed.config.configuration import OnOccupied
from changefeed.lifecycle import ErrorReport
from changefeed.records.copy import CopiedChunk
from changefeed.table import TableName, TableSchema
from changefeed.table_layout import TableLayout, as_shown
from coordination import failpoint
from processor.copy.steps import CopyAnswer, CopyAnswers, CopyChunk, CopyStep, IndexTable, MakeEmpty, Prepare, ReadChunk
from processor.copy.target_table import Creation, build_indexes, make_anew, make_empty, prepare
from processor.task.changefeed_resources import ChangefeedResources
from processor.task.limiter import UNLIMITED, Limiter
from processor.task.window_task import report_of
from processor.task.worker_resources import Shared, worker_resources
from sink.ddl import DdlApplier
from sink.receipt import CopyEnd
from sink.sink import DocumentLoader
from source.columns import Columns
from source.source import TaskSource
from source.tables.chunk_reader import ReadWay, SnapshotLost
from source.tables.chunks import bound_at

_log = structlog.get_logger(__name__)

_LONG_ENOUGH = timedelta(seconds=1)
_AT_ONCE = 4
_TOGETHER = 32
"""Brief steps that begin before the time is looked at. Their tables are observed by one look."""


def run_copy_steps(shared: Shared, steps: Sequence[CopyStep], attempt: str) -> CopyAnswers:
    try:
        with worker_resources.task(shared, attempt) as resources:
            return list(_answers(resources, steps))
    except Exception as error:  # noqa: BLE001 - the edge of a task: the error is returned as a report
        return [report_of(error)]


def _answers(resources: ChangefeedResources, steps: Sequence[CopyStep]) -> Iterator[CopyAnswer | ErrorReport]:
    """After an error of one table it goes on with the other steps."""
    begun_at = time.monotonic()
    with ThreadPoolExecutor(_AT_ONCE, "steps") as threads:
        for together in slices(steps, most=1 if resources.copy_log is not None else _TOGETHER):
            try:
                seen = _observed(resources, together)
            except Exception as error:  # noqa: BLE001 - as above
                yield report_of(error)
                return
            yield from threads.map(partial(_answer, resources), seen)
            if time.monotonic() > begun_at + _LONG_ENOUGH.total_seconds():
                return


def slices(steps: Sequence[CopyStep], most: int) -> Iterator[Sequence[CopyStep]]:
    """Brief steps of one kind together, any other step alone."""
    for (_, brief), run in groupby(steps, lambda step: (type(step), step.brief)):
        alike, size = list(run), most if brief else 1
        yield from (alike[first : first + size] for first in range(0, len(alike), size))


def _observed(resources: ChangefeedResources, steps: Sequence[CopyStep]) -> Sequence[CopyStep]:
    names = [_creation(resources, step.schema, None).name for step in steps if isinstance(step, Prepare)]
    if not names:
        return steps
    before = resources.ddl.observe(names)
    return [replace(step, before=before) if isinstance(step, Prepare) else step for step in steps]


def _answer(resources: ChangefeedResources, step: CopyStep) -> CopyAnswer | ErrorReport:
    try:
        return _done(resources, step)
    except Exception as error:  # noqa: BLE001 - as above
        return report_of(error)


def _done(resources: ChangefeedResources, step: CopyStep) -> CopyAnswer:
    configuration, layout = resources.context.configuration, None
    if isinstance(step, Prepare | MakeEmpty) and configuration.shard_target:
        layout = as_shown(resources.source.layout(step.schema), configuration.columns_of(step.schema.name))
    creation = _creation(resources, step.schema, layout)
    match step:
        case Prepare():
            if resources.copy_log is not None:
                resources.copy_log.begin([(step.schema, creation.name)])
            ours = step.ours or configuration.on_occupied is OnOccupied.DROP
            loader = resources.loader(step.schema, once=False)
            prepare(creation, resources.ddl, loader, step.before, ours=ours)
            resources.sink.forget_letters(step.schema.id)
            return resources.source.divide(step.schema)
        case CopyChunk():
            return _copy(resources, step, creation)
        case IndexTable():
            if resources.copy_log is not None:
                end = CopyEnd(table=step.schema.id, name=creation.name, start=step.copied_from, at=step.at)
                resources.copy_log.copied(end)
            build_indexes(creation, resources.ddl)
        case MakeEmpty():
            if resources.copy_log is not None:
                if step.first_from is not None:
                    resources.copy_log.begin([(replace(step.schema, valid_from=step.first_from), creation.name)])
                resources.copy_log.emptied(step.schema.id, creation.name, step.at)
            make_empty(creation, resources.ddl, _others(resources, step, creation.name))
    return None


def _copy(resources: ChangefeedResources, step: CopyChunk, creation: Creation) -> ReadChunk:
    place = CopyPlace(
        source=resources.source,
        loader=resources.loader(step.schema, once=step.whole),
        creation=creation,
        columns=resources.mounter.mounted(step.schema).columns,
        left_out=resources.row_filter.left_out(step.schema.name),
        ddl=resources.ddl,
        check_wanted=worker_resources.permit,
        limiter=resources.copy_limiter(step.limit_share),
    )
    return copy_chunk(step, place)


def _creation(resources: ChangefeedResources, schema: TableSchema, layout: TableLayout | None) -> Creation:
    configuration = resources.context.configuration
    return Creation(
        schema=schema,
        name=resources.mounter.mounted(schema).target.name.logical,
        route=configuration.routes.target,
        layout=layout,
        shared=configuration.routes.may_share(schema.name) and not schema.own_target,
        kept=configuration.on_occupied is OnOccupied.KEEP and not schema.own_target,
        logged=resources.copy_log is not None,
    )


def _others(resources: ChangefeedResources, step: MakeEmpty, target: TableName) -> list[TableName]:
    """The other tables that are in the target's table at that place. One that comes there later waits for this one first."""
    present = (resources.context.schemas.by_name(name, step.at) for name in resources.sources[target])
    return [each.name for each in present if each is not None and each.id != step.schema.id]


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyPlace:
    """What a task has open. `check_wanted` raises when the chunk is no longer wanted. `columns`: what the target sees; None: all.

    `left_out`: which documents the filter keeps from the target; None: none.
    """

    source: TaskSource
    loader: DocumentLoader
    creation: Creation
    columns: Columns | None = None
    left_out: Callable[[bytes], bool] | None = None
    ddl: DdlApplier
    check_wanted: Callable[[], object]
    limiter: Limiter = UNLIMITED


def copy_chunk(step: CopyChunk, place: CopyPlace) -> ReadChunk:
    if place.source.snapshots:
        try:
            return _attempt(step, place, ReadWay.SNAPSHOT)
        except SnapshotLost as error:
            _log.info("chunk_read_without_snapshot", chunk=str(step.chunk()), reason=str(error))
            step = replace(step, fresh=False)
    return _attempt(step, place, ReadWay.WATERMARK)


def _attempt(step: CopyChunk, place: CopyPlace, way: ReadWay) -> ReadChunk:
    failpoint.reach("chunk_due", step.schema.name.db)
    place.check_wanted()
    if step.whole:
        make_anew(place.creation, place.ddl)
    elif not (step.fresh or place.creation.filled_in_place):
        place.loader.clear(step.range)
    reader = place.source.chunk(step.chunk(only=step.schema.id if place.creation.shared else None), way)
    read, begun_at, documents, size, last = step.range, time.monotonic(), 0, 0, b""
    for batch in _ahead(reader.batches()):
        place.check_wanted()
        if reader.ended:
            continue
        long = step.divide_after is not None and time.monotonic() >= begun_at + step.divide_after
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
    after = step.copied_from.ts.previous() if place.creation.filled_in_place else reader.after
    copied = CopiedChunk(after=after, until=reader.until, documents=documents, bytes=size)
    failpoint.reach("chunk_loaded", step.schema.name.db)
    return ReadChunk(range=read, copied=copied, receipts=place.loader.finish(), read_after=reader.after)


def _ahead(batches: Iterator[list[bytes]]) -> Iterator[list[bytes]]:
    """Reads the next batch while one is loaded, so that the times of the two servers do not add up. Two replies are in memory."""
    with ThreadPoolExecutor(1, "chunk") as thread:
        upcoming = thread.submit(next, batches, None)
        while (batch := upcoming.result()) is not None:
            upcoming = thread.submit(next, batches, None)
            yield batch
