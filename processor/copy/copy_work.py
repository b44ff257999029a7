"""What an initial copy has done in Spark's workers: what needs the source or the target, under the task's permit.

Prepare      the target's table without its indexes, the source's divided      Division
CopyChunk    one chunk read and loaded                                          CopiedChunk
Index        the table's indexes                                                None
MakeEmpty    the table anew, with its indexes and without rows                  None

A task is given many works of small tables, since it costs more than they do. It leaves what it has not begun within a second.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeAlias

from changefeed.documents.key_range import KeyRange
from changefeed.lifecycle import ErrorReport
from changefeed.position import Position
from changefeed.records import CopiedChunk
from changefeed.table import TableSchema
from processor.copy.chunk_task import CopyOrder, CopyPlace, copy_chunk
from processor.copy.target_table import Creation, build_indexes, creation_of, make_empty, prepare
from processor.task.window_task import report_of
from processor.task.worker_resources import Bench, Shared, workplace
from sink.ddl import Routing
from source.tables.chunk_reader import Chunk
from source.tables.chunks import Division, divide


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepare:
    schema: TableSchema
    ours: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyChunk:
    """`not_before` is the table's checkpoint; `copied_from` where its copy began."""

    schema: TableSchema
    number: int
    range: KeyRange
    whole: bool
    not_before: Position
    copied_from: Position


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    schema: TableSchema


@dataclass(frozen=True, slots=True, kw_only=True)
class MakeEmpty:
    schema: TableSchema


CopyWork: TypeAlias = Prepare | CopyChunk | Index | MakeEmpty
CopyAnswer: TypeAlias = Division | CopiedChunk | None
CopyAnswers: TypeAlias = Sequence[CopyAnswer | ErrorReport]
"""Of the first works of a task, one each; it has left the others as they were."""

_LONG_ENOUGH = timedelta(seconds=1)


def do_copy_works(shared: Shared, works: Sequence[CopyWork], attempt: str) -> CopyAnswers:
    try:
        with workplace.task(shared, attempt) as bench:
            return list(_answers(bench, works))
    except Exception as error:  # noqa: BLE001 - the edge of a task: it travels on as a report
        return [report_of(error)]


def _answers(bench: Bench, works: Sequence[CopyWork]) -> Iterator[CopyAnswer | ErrorReport]:
    """One after the other: an error of one table says nothing of the next."""
    begun_at = time.monotonic()
    for work in works:
        try:
            yield _done(bench, work)
        except Exception as error:  # noqa: BLE001 - as above
            yield report_of(error)
        if time.monotonic() > begun_at + _LONG_ENOUGH.total_seconds():
            return


def _done(bench: Bench, work: CopyWork) -> CopyAnswer:
    creation = _creation(bench, work.schema)
    match work:
        case Prepare():
            prepare(creation, bench.ddl, bench.loader(work.schema, once=False), ours=work.ours)
            return divide(bench.source, work.schema)
        case CopyChunk():
            return _copy(bench, work, creation)
        case Index():
            build_indexes(creation, bench.ddl)
        case MakeEmpty():
            make_empty(creation, bench.ddl)
    return None


def _copy(bench: Bench, work: CopyChunk, creation: Creation) -> CopiedChunk:
    schema = work.schema
    chunk = Chunk(table=schema.name, kind=schema.kind, range=work.range, whole=work.whole, not_before=work.not_before)
    order = CopyOrder(
        number=work.number,
        chunk=chunk,
        creation=creation,
        copied_from=work.copied_from,
        version=bench.source_version,
    )
    loader = bench.loader(schema, once=work.whole)
    return copy_chunk(
        order, CopyPlace(source=bench.source, loader=loader, ddl=bench.ddl, still_wanted=workplace.permit)
    )


def _creation(bench: Bench, schema: TableSchema) -> Creation:
    target = bench.mounter.mounted(schema).target
    standing = (bench.context.schemas.by_name(name, schema.valid_from) for name in bench.sources[target.name])
    tables = {each.id: each.name for each in standing if each is not None}
    routing = Routing(route=bench.context.configuration.routes.target, tables=tables)
    return creation_of(schema, target.name, routing)
