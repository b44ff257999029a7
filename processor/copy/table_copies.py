"""`TableCopies`: carries out the initial copies of one changefeed's tables on one node; `plan.py` decides what is next for each.

A tick looks at each table in copy, collects finished steps, records them in etcd, and starts the next steps in worker threads. The
records are the only memory: another node goes on with the missing chunks. A copy tells the lanes how far its table may go, and which of
the table's changes it contains already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from itertools import takewhile

from changefeed.config.configuration import OnOccupied
from changefeed.errors import InvariantError
from changefeed.lifecycle import ErrorReport
from changefeed.position import Position
from changefeed.records.copy import CopyProgress, CopyRate, CopyStage
from changefeed.records.ddl import DdlRecord, DdlState
from changefeed.records.node import AssignedTable
from changefeed.records.requests import ChangefeedId
from changefeed.shards import differing
from changefeed.table import TableId, TableSchema, TableSize
from coordination.etcd.protocol import KeyValue, Op
from coordination.key_group import KeyGroup
from coordination.layout import Layout, child
from coordination.mirror import View
from processor.copy import etcd_writes
from processor.copy.chunk_copy import ReadChunk
from processor.copy.copy_pace import CopyPace
from processor.copy.plan import (
    Begin,
    BuildIndexes,
    CatchUp,
    CopyAction,
    CopyChunks,
    CopyInputs,
    Empty,
    EndCopy,
    Finish,
    ForgetChunks,
    MoveCheckpoint,
    Wait,
    decide,
    follows_to,
    read_not_before,
)
from processor.copy.steps import CopyAnswer, CopyAnswers, CopyChunk, CopyStep, IndexTable, MakeEmpty, Prepare
from processor.copy.table_copy import TableCopy
from processor.copy.target_table import has_all_indexes
from processor.copy.task_sharing import StepSize, TaskSharing
from processor.etcd_view import ProcessorView
from processor.lanes.lane_plan import LaneLimits
from processor.lanes.lanes import Lanes
from processor.task.copied_ranges import CopiedRanges
from schema_store.versions import SchemaVersions
from source.tables.chunks import Division

Submit = Callable[[Sequence[CopyStep]], "Future[CopyAnswers]"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyTick:
    """The result of a tick. `limits`: how far the lanes may go. `moved`: checkpoints that move without a lane. `passed`: those that move
    past changes which the copy will contain. `ops`: to be written.
    """

    limits: Mapping[TableId, Position] = field(default_factory=dict)
    moved: Mapping[TableId, Position] = field(default_factory=dict)
    passed: Mapping[TableId, Position] = field(default_factory=dict)
    ops: tuple[Op, ...] = ()
    errors: tuple[ErrorReport, ...] = ()


@dataclass(frozen=True, slots=True)
class _PlannedStep:
    """A step of one table. `at`: the position that the step is for."""

    table: TableId
    step: CopyStep
    at: Position
    size: StepSize


@dataclass(frozen=True, slots=True)
class _Begun:
    """A started step. `place`: its index among the steps of its task."""

    step: _PlannedStep
    task: Future[CopyAnswers]
    place: int


@dataclass(frozen=True, slots=True)
class _KnownCopy:
    """A copy as it is recorded in etcd, decoded once per change there."""

    record: KeyValue | None
    parts: Mapping[str, KeyValue]
    copy: TableCopy | None


class TableCopies:
    """For the processor's thread."""

    def __init__(self, id: ChangefeedId, layout: Layout, limits: LaneLimits) -> None:
        self._id = id
        self._limits = limits
        self._layout = layout
        self._known: dict[TableId, _KnownCopy] = {}
        self._begun: dict[TableId, list[_Begun]] = {}
        self._given: Mapping[TableId, AssignedTable] = {}
        self._records = KeyGroup()
        self._unfinished: dict[TableId, None] = {}
        """The tables in copy, as of `_given` and `_records`."""
        self._uncleared: set[TableId] = set()
        """Those whose table at the target may hold rows of others. Their windows begin in the tick that finds this."""
        self._progress: dict[TableId, CopyProgress] = {}
        self._pace: CopyPace | None = None
        self._paces: dict[TableId, CopyPace] = {}
        """Of the tables with several chunks."""

    @property
    def tables_with_tasks(self) -> frozenset[TableId]:
        return frozenset(self._begun)

    @property
    def has_running(self) -> bool:
        return any(not task.done() for task in self._tasks())

    @property
    def progress(self) -> Mapping[TableId, CopyProgress]:
        return dict(self._progress)

    @property
    def unfinished(self) -> bool:
        return bool(self._unfinished)

    @property
    def rate(self) -> CopyRate | None:
        return self._pace.rate if self._pace is not None and self._progress else None

    @property
    def has_finished(self) -> bool:
        """Whether a finished task waits to be collected."""
        return any(task.done() for task in self._tasks())

    def ranges(self, tables: set[TableId]) -> dict[TableId, CopiedRanges]:
        copies = {table: self._known[table].copy for table in tables if table in self._known}
        return {
            table: replace(copy.ranges, uncleared=table in self._uncleared)
            for table, copy in copies.items()
            if copy is not None and copy.stage is CopyStage.COPYING
        }

    def tick(
        self,
        view: View,
        stored: ProcessorView,
        schemas: SchemaVersions,
        lanes: Lanes,
        still: AbstractSet[TableId],
        submit: Submit | None,
        now: float,
    ) -> CopyTick:
        """Without `submit` no step is started, nor for a table that stands `still`. The returned `ops` have to be written before the next tick.

        A leaving table starts no step: it is released only when no running task could create it again. A table that does not exist at
        its checkpoint is left alone until the assignment no longer names it. Copies beside the target's tables take one task at a time, so that
        the windows of the tables that follow need not wait for Spark.
        """
        self._forget_others(stored)
        limits: dict[TableId, Position] = {}
        moved: dict[TableId, Position] = {}
        passed: dict[TableId, Position] = {}
        ops: list[Op] = []
        errors: list[ErrorReport] = []
        running = sum(not task.done() for task in self._tasks())
        sharing: TaskSharing[_PlannedStep] = TaskSharing(stored.configuration.pipeline.parallelism - running)
        calmly: TaskSharing[_PlannedStep] = TaskSharing(1 - self._running_beside())
        for table in self._in_copy(view, stored):
            copy, given = self._copy(view, table), stored.orders.assignment.tables[table]
            checkpoint = limits[table] = lanes.checkpoint_of(table)
            taken = self._take(table, copy, errors, moved, now)
            if taken:
                ops += taken
                continue
            leaving = table in stored.orders.assignment.leaving
            schema = schemas.at(table, checkpoint)
            if submit is None or leaving or table in still or schema is None:
                continue
            tasks = sharing if schema.beside is None else calmly
            room = tasks.room(_size(copy))
            inputs = self._inputs(copy, schema, schemas, given.start, lanes, stored, room)
            (self._uncleared.add if inputs.others else self._uncleared.discard)(table)
            action = decide(copy, inputs)
            if isinstance(action, Wait | Begin | CopyChunks):
                _follow(copy, inputs, stored, limits, passed)
            match action:
                case CatchUp(until):
                    limits[table] = until
                case MoveCheckpoint() | EndCopy() | ForgetChunks() | Finish() if table not in self._begun:
                    ops += self._recorded(table, copy, action, moved)
                case _ if room and (isinstance(action, CopyChunks) or table not in self._begun):
                    for step in self._steps(table, copy, action, schemas, inputs):
                        tasks.add(step, step.size)
        if submit is not None:
            self._begin(sharing, submit, now)
            self._begin(calmly, submit, now)
        return CopyTick(limits=limits, moved=moved, passed=passed, ops=tuple(ops), errors=tuple(errors))

    def _recorded(
        self, table: TableId, copy: TableCopy | None, action: CopyAction, moved: dict[TableId, Position]
    ) -> list[Op]:
        """What needs no task. Chunks of one part are one write."""
        match action:
            case ForgetChunks(numbers) if copy is not None:
                left, parts = copy.without(numbers), sorted({copy.part_of(number) for number in numbers})
                return [etcd_writes.part_written(self._layout, self._id, table, left, part) for part in parts]
            case MoveCheckpoint(at):
                moved[table] = at
            case EndCopy(at):
                moved[table] = at
                return etcd_writes.forgotten(self._layout, self._id, table)
            case Finish() if copy is not None:
                return etcd_writes.written(self._layout, self._id, table, copy.done())
        return []

    def _in_copy(self, view: View, stored: ProcessorView) -> list[TableId]:
        """The tables in copy. Only those are looked at whose assignment or record has changed; parts of copies have other keys."""
        group = self._layout.copies(self._id)
        given, records = stored.orders.assignment.tables, view.group(group)
        changed = {TableId(child(key, group)) for key in records.changed_since(self._records)}
        for table in sorted(changed | differing(self._given, given)):
            entry = given.get(table)
            if entry is not None and entry.copy and not self._done(view, table):
                self._unfinished[table] = None
            else:
                self._unfinished.pop(table, None)
        self._given, self._records = given, records
        return list(self._unfinished)

    def _done(self, view: View, table: TableId) -> bool:
        copy = self._copy(view, table)
        done = copy is not None and copy.stage is CopyStage.DONE
        if done:
            self._progress.pop(table, None)
            self._paces.pop(table, None)
            self._pace = self._pace if self._progress else None
        return done

    def _copy(self, view: View, table: TableId) -> TableCopy | None:
        record = view.get(self._layout.copy(self._id, table))
        parts = view.group(self._layout.copy_parts(self._id, table))
        known = self._known.get(table)
        if known is None or known.record is not record or known.parts is not parts:
            copy = etcd_writes.read(view, self._layout, self._id, table)
            known = self._known[table] = _KnownCopy(record, parts, copy)
            if copy is not None:
                pace = self._paces.get(table)
                self._progress[table] = replace(copy.progress, rate=pace.rate if pace else None)
        return known.copy

    def _inputs(
        self,
        copy: TableCopy | None,
        schema: TableSchema,
        schemas: SchemaVersions,
        start: Position,
        lanes: Lanes,
        stored: ProcessorView,
        parallelism: int,
    ) -> CopyInputs:
        table, routes = schema.id, stored.configuration.routes
        steps = [begun.step.step for begun in self._begun.get(table, ())]
        reading = [step for step in steps if isinstance(step, CopyChunk)]
        running = {copy.number_from(step.range.lower): step.not_before for step in reading} if copy else {}
        alone = routes.origins(routes.target(schema.name)) == frozenset({schema.name})
        alone = schema.beside is not None or (alone and stored.configuration.on_occupied is not OnOccupied.KEEP)
        messages = stored.configuration.sink_can.keeps_messages
        held_at = stored.orders.barrier.held.get(table)
        meeting = [record for record in stored.ddls() if table in record.scope.tables] if held_at else []
        holding = [record.event for record in meeting if record.position == held_at]
        to_come = [record for record in meeting if record.open and held_at is not None and record.position < held_at]
        checkpoint = lanes.checkpoint_of(table)
        undisturbed = takewhile(lambda record: record.refused is None, to_come)
        begun = [record.position for record in undisturbed if _may_have_begun(record, checkpoint)]
        return CopyInputs(
            table=table,
            start=start,
            checkpoint=checkpoint,
            barrier=stored.orders.barrier.of(table),
            held_by=holding[0] if holding else None,
            index_to_come=bool(to_come),
            index_begun=max(begun, default=None),
            running=running,
            others=not alone and not messages,
            follow_after=self._limits.copy_follows_after if held_at is None and alone and not messages else None,
            indexed=not messages and _indexed(copy, schemas, table),
            catching_up=lanes.busy(table),
            parallelism=parallelism + len(running),
        )

    def _steps(
        self, table: TableId, copy: TableCopy | None, action: CopyAction, schemas: SchemaVersions, inputs: CopyInputs
    ) -> Iterator[_PlannedStep]:
        match action:
            case Begin(at):
                schema = _schema(schemas, table, at)
                ours = copy is not None or schema.beside is not None
                yield _PlannedStep(table, Prepare(schema=schema, ours=ours), at, StepSize.BRIEF)
            case CopyChunks(numbers) if copy is not None:
                for number in numbers:
                    step = CopyChunk(
                        schema=_schema(schemas, table, inputs.checkpoint),
                        range=copy.chunks[number],
                        whole=copy.record.whole,
                        not_before=read_not_before(inputs),
                        copied_from=copy.start,
                        divide_after=self._limits.copy_divides_after if copy.may_divide(number) else None,
                    )
                    size = _size(copy) if copy.may_divide(number) else StepSize.ANY
                    yield _PlannedStep(table, step, copy.start, size)
            case BuildIndexes(at) if copy is not None:
                index = IndexTable(schema=_schema(schemas, table, at), copied_from=copy.start, at=at)
                yield _PlannedStep(table, index, at, StepSize.SMALL if copy.small else StepSize.ANY)
            case Empty(at):
                yield _PlannedStep(table, MakeEmpty(schema=_before(schemas, table, at), at=at), at, StepSize.BRIEF)
            case _:
                return

    def _begin(self, sharing: TaskSharing[_PlannedStep], submit: Submit, now: float) -> None:
        for steps in sharing.tasks():
            task = submit([step.step for step in steps])
            self._pace = self._pace or CopyPace.begun(now)
            for place, step in enumerate(steps):
                self._begun.setdefault(step.table, []).append(_Begun(step, task, place))
                if isinstance(step.step, CopyChunk) and step.size is not StepSize.SMALL:
                    self._paces.setdefault(step.table, CopyPace.begun(now))

    def _tasks(self) -> set[Future[CopyAnswers]]:
        return {each.task for begun in self._begun.values() for each in begun}

    def _running_beside(self) -> int:
        begun = (each for of_table in self._begun.values() for each in of_table)
        return len({each.task for each in begun if not each.task.done() and each.step.step.schema.beside is not None})

    def _take(
        self,
        table: TableId,
        copy: TableCopy | None,
        errors: list[ErrorReport],
        moved: dict[TableId, Position],
        now: float,
    ) -> list[Op]:
        """Collects the finished steps of a table. Returns what to write: finished chunks of the same part are one write."""
        ops: list[Op] = []
        parts: set[int] = set()
        for begun in [begun for begun in self._begun.get(table, []) if begun.task.done()]:
            self._begun[table].remove(begun)
            step, at = begun.step.step, begun.step.at
            for answer in begun.task.result()[begun.place : begun.place + 1]:
                if isinstance(answer, ErrorReport):
                    errors.append(replace(answer, table=table))
                    continue
                copy = _after(copy, step, at, answer)
                if isinstance(step, CopyChunk):
                    parts.add(copy.part_of(copy.number_from(step.range.lower)))
                    self._count(table, answer, now)
                else:
                    ops += etcd_writes.written(self._layout, self._id, table, copy)
                if isinstance(step, MakeEmpty):
                    moved[table] = at
        if copy is not None:
            ops += [etcd_writes.part_written(self._layout, self._id, table, copy, part) for part in sorted(parts)]
        if not self._begun.get(table):
            self._begun.pop(table, None)
        return ops

    def _count(self, table: TableId, answer: CopyAnswer, now: float) -> None:
        assert isinstance(answer, ReadChunk)
        copied = TableSize(documents=answer.copied.documents, bytes=answer.copied.bytes)
        if self._pace is not None:
            self._pace = self._pace.after(copied, now)
        if table in self._paces:
            self._paces[table] = self._paces[table].after(copied, now)

    def _forget_others(self, stored: ProcessorView) -> None:
        """Forgets tables that are no longer assigned to this node. Their running tasks are kept until they end."""
        assigned = stored.orders.assignment.tables
        for table in [table for table in self._known if table not in assigned]:
            del self._known[table]
            self._progress.pop(table, None)
            self._paces.pop(table, None)
        for table in [table for table in self._begun if table not in assigned]:
            self._begun[table] = [begun for begun in self._begun[table] if not begun.task.done()]
        self._begun = {table: begun for table, begun in self._begun.items() if begun}


def _follow(
    copy: TableCopy | None,
    inputs: CopyInputs,
    stored: ProcessorView,
    limits: dict[TableId, Position],
    passed: dict[TableId, Position],
) -> None:
    """What follows needs a window only if something is copied already."""
    table, furthest = inputs.table, follows_to(copy, inputs)
    if copy is not None and copy.copied:
        limits[table] = furthest
    elif furthest > inputs.checkpoint and not inputs.catching_up and _may_pass(copy, table, furthest, stored):
        passed[table] = limits[table] = furthest


def _may_pass(copy: TableCopy | None, table: TableId, furthest: Position, stored: ProcessorView) -> bool:
    """A DDL that holds no table, an index built in the background, begins once the checkpoint has passed it: the target's table must be there
    by then, and must not be created again.
    """
    if copy is not None and copy.stage is CopyStage.COPYING and copy.stands:
        return True
    below = (record for record in stored.ddls() if record.open and record.position < furthest)
    return not any(table in record.scope.tables for record in below)


def _may_have_begun(record: DdlRecord, checkpoint: Position) -> bool:
    return record.position <= checkpoint or record.state is DdlState.EXECUTING


def _size(copy: TableCopy | None) -> StepSize:
    """Of the next step."""
    if copy is None or copy.stage is CopyStage.RESTART:
        return StepSize.BRIEF
    return StepSize.SMALL if copy.small else StepSize.CHUNK


def _indexed(copy: TableCopy | None, schemas: SchemaVersions, table: TableId) -> bool:
    if copy is None or copy.stage is not CopyStage.COPYING or not copy.complete:
        return False
    schema = schemas.at(table, copy.upto)
    return schema is not None and has_all_indexes(schema)


def _after(copy: TableCopy | None, step: CopyStep, at: Position, answer: CopyAnswer) -> TableCopy:
    match step, answer:
        case Prepare(), Division():
            before = copy if copy is not None and copy.stage is not CopyStage.DONE else None
            return TableCopy.planned(at, answer.bounds, whole=answer.whole, size=answer.size, before=before)
        case CopyChunk(), ReadChunk() if copy is not None:
            return copy.with_chunk(answer.range, answer.copied)
        case IndexTable(), None if copy is not None:
            return copy.done()
        case MakeEmpty(), None:
            return TableCopy.restarting(at, copy)
        case _:
            raise InvariantError(
                f"copy step {type(step).__name__}: expected the answer of its kind, observed {answer!r}"
            )


def _schema(schemas: SchemaVersions, table: TableId, position: Position) -> TableSchema:
    """The schema at a position. Its `valid_from` is set to that position: there the task looks up the other tables."""
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
