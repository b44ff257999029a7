"""`run_copy_steps`: the steps of initial copies that run in Spark's workers, since they need the source or the target and a task's permit.

    step         what it does                                                       answer
    Prepare      creates the target's table without indexes, divides the source's   Division
    CopyChunk    reads and loads one chunk, or as much as a limit of time allows    ReadChunk
    IndexTable   builds the table's indexes                                         None
    MakeEmpty    creates the table again, with its indexes and without rows         None

One task gets many steps of small tables, since a task costs more than such a step. After one second it starts no further step.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeAlias

from changefeed.config.configuration import OnOccupied
from changefeed.documents.key_range import KeyRange
from changefeed.lifecycle import ErrorReport
from changefeed.position import Position
from changefeed.table import TableSchema
from changefeed.table_layout import TableLayout, as_shown
from processor.copy.chunk_copy import CopyOrder, CopyPlace, ReadChunk, copy_chunk
from processor.copy.target_table import Creation, build_indexes, creation_of, make_empty, prepare
from processor.task.window_task import report_of
from processor.task.worker_resources import ChangefeedResources, Shared, worker_resources
from sink.ddl import Routing
from sink.receipt import CopyEnd
from source.tables.chunk_reader import Chunk
from source.tables.chunks import Division


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepare:
    schema: TableSchema
    ours: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyChunk:
    """`not_before`: the table's checkpoint. `copied_from`: where its copy began. `divide_after`: seconds, if the chunk may be divided."""

    schema: TableSchema
    range: KeyRange
    whole: bool
    not_before: Position
    copied_from: Position
    divide_after: int | None
    limit_share: float = 1.0
    """Of the changefeed's `copy_limit`, for the executor that runs it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexTable:
    """`copied_from`: where the copy began that ends with it, `at`: where it is complete."""

    schema: TableSchema
    copied_from: Position
    at: Position


@dataclass(frozen=True, slots=True, kw_only=True)
class MakeEmpty:
    """`at`: where its copy begins again."""

    schema: TableSchema
    at: Position


CopyStep: TypeAlias = Prepare | CopyChunk | IndexTable | MakeEmpty
CopyAnswer: TypeAlias = Division | ReadChunk | None
CopyAnswers: TypeAlias = Sequence[CopyAnswer | ErrorReport]
"""One answer for each of a task's first steps, in order. The remaining steps were not started."""

_LONG_ENOUGH = timedelta(seconds=1)


def run_copy_steps(shared: Shared, steps: Sequence[CopyStep], attempt: str) -> CopyAnswers:
    try:
        with worker_resources.task(shared, attempt) as resources:
            return list(_answers(resources, steps))
    except Exception as error:  # noqa: BLE001 - the edge of a task: the error is returned as a report
        return [report_of(error)]


def _answers(resources: ChangefeedResources, steps: Sequence[CopyStep]) -> Iterator[CopyAnswer | ErrorReport]:
    """Runs the steps one after another. After an error of one table it goes on with the next step."""
    begun_at = time.monotonic()
    for step in steps:
        try:
            yield _done(resources, step)
        except Exception as error:  # noqa: BLE001 - as above
            yield report_of(error)
        if time.monotonic() > begun_at + _LONG_ENOUGH.total_seconds():
            return


def _done(resources: ChangefeedResources, step: CopyStep) -> CopyAnswer:
    made = isinstance(step, Prepare | MakeEmpty) and resources.context.configuration.shard_target
    creation = _creation(resources, step.schema, _layout(resources, step.schema) if made else None)
    match step:
        case Prepare():
            if resources.event_ddl is not None:
                resources.event_ddl.begin([(step.schema, creation.name)])
            ours = step.ours or resources.context.configuration.on_occupied is OnOccupied.DROP
            prepare(creation, resources.ddl, resources.loader(step.schema, once=False), ours=ours)
            resources.forget_letters(step.schema.id)
            return resources.source.divide(step.schema)
        case CopyChunk():
            return _copy(resources, step, creation)
        case IndexTable():
            if resources.event_ddl is not None:
                end = CopyEnd(table=step.schema.id, name=creation.name, start=step.copied_from, at=step.at)
                resources.event_ddl.copied(end)
            build_indexes(creation, resources.ddl)
        case MakeEmpty():
            if resources.event_ddl is not None:
                resources.event_ddl.recopy(step.schema.id, creation.name, step.at)
            make_empty(creation, resources.ddl)
    return None


def _copy(resources: ChangefeedResources, step: CopyChunk, creation: Creation) -> ReadChunk:
    schema = step.schema
    chunk = Chunk(table=schema.rows_at(schema.name), range=step.range, whole=step.whole, not_before=step.not_before)
    order = CopyOrder(
        chunk=chunk,
        creation=creation,
        copied_from=step.copied_from,
        divide_after=step.divide_after,
    )
    loader = resources.loader(schema, once=step.whole)
    return copy_chunk(
        order,
        CopyPlace(
            source=resources.source,
            loader=loader,
            columns=resources.mounter.mounted(schema).columns,
            left_out=resources.row_filter.left_out(schema.name),
            ddl=resources.ddl,
            check_wanted=worker_resources.permit,
            limiter=resources.copy_limiter(step.limit_share),
        ),
    )


def _layout(resources: ChangefeedResources, schema: TableSchema) -> TableLayout | None:
    return as_shown(resources.source.layout(schema), resources.context.configuration.columns_of(schema.name))


def _creation(resources: ChangefeedResources, schema: TableSchema, layout: TableLayout | None) -> Creation:
    target = resources.mounter.mounted(schema).target.name.logical
    present = (resources.context.schemas.by_name(name, schema.valid_from) for name in resources.sources[target])
    tables = {each.id: each.name for each in present if each is not None}
    routing = Routing(route=resources.context.configuration.routes.target, tables=tables)
    kept = resources.context.configuration.on_occupied is OnOccupied.KEEP and schema.beside is None
    logged = resources.context.configuration.sink_can.keeps_messages
    return creation_of(schema, target, routing, kept=kept, logged=logged, layout=layout)
