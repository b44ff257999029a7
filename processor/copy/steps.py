"""The steps of initial copies: what tasks are asked for, what they answer, and which steps an action of `plan.py` means.

step         what it does                                                       answer
Prepare      creates the target's table without indexes, divides the source's   Division
CopyChunk    reads and loads one chunk, or as much as a limit of time allows    ReadChunk
IndexTable   builds the table's indexes                                         None
MakeEmpty    creates the table again, with its indexes and without rows         None
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from changefeed.cluster_time import ClusterTime
from changefeed.documents.row_key import KeyRange
from changefeed.errors import InvariantError
from changefeed.lifecycle import ErrorReport
from changefeed.position import Position
from changefeed.records.copy import CopiedChunk, CopyStage
from changefeed.records.ddl import Observation
from changefeed.table import TableId, TableSchema
from processor.copy.plan import Begin, BuildIndexes, CopyAction, CopyChunks, CopyInputs, Empty, read_not_before
from processor.copy.table_copy import TableCopy
from processor.copy.task_sharing import StepSize
from schema_store.versions import SchemaVersions
from sink.receipt import Receipt
from source.tables.chunk_reader import Chunk
from source.tables.chunks import Division

NOTHING_SEEN = Observation(tables={})


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStep:
    """`size`: how it shares a task."""

    schema: TableSchema
    size: StepSize = StepSize.BRIEF


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepare(TableStep):
    """Its schema begins where the copy does. `before`: what the task sees at the target."""

    ours: bool
    before: Observation = NOTHING_SEEN
    brief: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyChunk(TableStep):
    """`not_before`: the table's checkpoint. `copied_from`: where its copy began. `divide_after`: seconds, if the chunk may be divided. `fresh`:
    nothing was ever loaded for the table since it was prepared.
    """

    range: KeyRange
    whole: bool
    not_before: Position
    copied_from: Position
    divide_after: int | None
    limit_share: float = 1.0
    """Of the changefeed's `copy_limit`, for the executor that runs it."""
    brief: bool = False
    fresh: bool = False

    def chunk(self, *, only: TableId | None = None) -> Chunk:
        """What to read. `only`: of the table with this id."""
        table = self.schema.rows_at(self.schema.name)
        return Chunk(table=table, range=self.range, whole=self.whole, not_before=self.not_before, only=only)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexTable(TableStep):
    """`copied_from`: where the copy began that ends with it, `at`: where it is complete."""

    copied_from: Position
    at: Position
    brief: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MakeEmpty(TableStep):
    """`at`: where its copy begins again. `first_from`: where its first copy would have begun, if no step has been carried out for that."""

    at: Position
    first_from: Position | None = None
    brief: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadChunk:
    """`range`: the chunk, or the part of it from its beginning that was read."""

    range: KeyRange
    copied: CopiedChunk
    receipts: tuple[Receipt, ...] = ()
    read_after: ClusterTime | None = None
    """What the documents contain at least. `copied.after` is earlier where changes are replayed since the copy's start."""


CopyStep: TypeAlias = Prepare | CopyChunk | IndexTable | MakeEmpty
CopyAnswer: TypeAlias = Division | ReadChunk | None
CopyAnswers: TypeAlias = Sequence[CopyAnswer | ErrorReport]
"""One answer for each of a task's first steps, in order. The remaining steps were not started."""


def steps_of(
    action: CopyAction,
    copy: TableCopy | None,
    inputs: CopyInputs,
    schemas: SchemaVersions,
    divide_after: int,
    *,
    fresh: bool,
) -> Iterator[CopyStep]:
    """`divide_after`: seconds after which a chunk is divided where it has been read to. `fresh`: nothing was loaded since the table was prepared."""
    table = inputs.table
    match action:
        case Begin(at):
            schema = _schema(schemas, table, at)
            yield Prepare(schema=schema, ours=copy is not None or schema.own_target)
        case CopyChunks(numbers) if copy is not None:
            for number in numbers:
                yield CopyChunk(
                    schema=_schema(schemas, table, inputs.checkpoint),
                    size=size_of_next(copy) if copy.may_divide(number) else StepSize.ANY,
                    range=copy.chunks[number],
                    whole=copy.record.whole,
                    not_before=read_not_before(inputs),
                    copied_from=copy.start,
                    divide_after=divide_after if copy.may_divide(number) else None,
                    brief=copy.brief,
                    fresh=fresh and copy.small,
                )
        case BuildIndexes(at) if copy is not None:
            schema, size = _schema(schemas, table, at), StepSize.SMALL if copy.small else StepSize.ANY
            yield IndexTable(schema=schema, size=size, copied_from=copy.start, at=at, brief=copy.brief)
        case Empty(at):
            first_from = max(inputs.checkpoint, inputs.start) if copy is None else None
            yield MakeEmpty(schema=_before(schemas, table, at), at=at, first_from=first_from)
        case _:
            return


def size_of_next(copy: TableCopy | None) -> StepSize:
    if copy is None or copy.stage is CopyStage.RESTART or copy.brief:
        return StepSize.BRIEF
    return StepSize.SMALL if copy.small else StepSize.CHUNK


def copy_after(copy: TableCopy | None, step: CopyStep, answer: CopyAnswer) -> TableCopy:
    match step, answer:
        case Prepare(), Division():
            before = copy if copy is not None and copy.stage is not CopyStage.DONE else None
            return TableCopy.planned(
                step.schema.valid_from, answer.bounds, whole=answer.whole, size=answer.size, before=before
            )
        case CopyChunk(), ReadChunk() if copy is not None:
            return copy.with_chunk(answer.range, answer.copied)
        case IndexTable(), None if copy is not None:
            return copy.done()
        case MakeEmpty(), None:
            return TableCopy.restarting(step.at, copy)
        case _:
            raise InvariantError(
                f"copy step {type(step).__name__}: expected the answer of its kind, observed {answer!r}"
            )


def _schema(schemas: SchemaVersions, table: TableId, position: Position) -> TableSchema:
    """The schema at a position. Its `valid_from` is set to that position, where messages say that the copy begins."""
    schema = schemas.at(table, position)
    if schema is None:
        raise InvariantError(
            f"copy of table {table} at {position}: expected a schema in the schema store, observed none"
        )
    return replace(schema, valid_from=position)


def _before(schemas: SchemaVersions, table: TableId, position: Position) -> TableSchema:
    schema = schemas.before(table, position)
    if schema is None:
        raise InvariantError(
            f"copy of table {table}, emptied for a DDL at {position}: expected a schema before that position, observed none"
        )
    return schema
