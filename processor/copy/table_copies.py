"""`TableCopies`: carries out the initial copies of one changefeed's tables on one node; `plan.py` decides what is next for each.

A tick looks at each table in copy, collects finished steps, records them in etcd, and starts the next steps in worker threads. The
records are the only memory: another node goes on with the missing chunks. A copy tells the lanes how far its table may go, and which of
the table's changes it contains already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import Future
from dataclasses import dataclass, field, replace

from changefeed.lifecycle import ErrorReport
from changefeed.position import Position
from changefeed.records.copy import CopyStage
from changefeed.records.ddl import Barrier
from changefeed.records.requests import ChangefeedId
from changefeed.table import TableId, TableSize
from coordination.etcd.protocol import Op
from coordination.layout import Layout
from coordination.view import View
from processor.copy.copy_inputs import CopySurroundings, inputs_of, may_pass
from processor.copy.known_copies import KnownCopies
from processor.copy.plan import (
    Begin,
    CatchUp,
    CopyAction,
    CopyChunks,
    CopyInputs,
    EndCopy,
    Finish,
    ForgetChunks,
    MoveCheckpoint,
    Wait,
    catches_up_to,
    decide,
    follows_to,
)
from processor.copy.steps import (
    CopyAnswers,
    CopyChunk,
    CopyStep,
    MakeEmpty,
    Prepare,
    ReadChunk,
    copy_after,
    size_of_next,
    steps_of,
)
from processor.copy.table_copy import TableCopy
from processor.copy.task_sharing import StepSize, TaskSharing
from processor.etcd_view import ProcessorView
from processor.lanes.lane_plan import LaneLimits
from processor.lanes.lanes import Lanes
from processor.task.copied_ranges import CopiedRanges
from schema_store.versions import SchemaVersions

Submit = Callable[[Sequence[CopyStep]], "Future[CopyAnswers]"]


@dataclass(slots=True)
class CopyTick:
    """The result of a tick."""

    limits: dict[TableId, Position] = field(default_factory=dict)
    """How far the lanes may go."""
    moved: dict[TableId, Position] = field(default_factory=dict)
    """Checkpoints that move without a lane."""
    passed: dict[TableId, Position] = field(default_factory=dict)
    """Those that move past changes which the copy will contain."""
    ops: list[Op] = field(default_factory=list)
    """To be written before the next tick."""
    errors: list[ErrorReport] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Begun:
    """A started step. `place`: its index among the steps of its task."""

    step: CopyStep
    task: Future[CopyAnswers]
    place: int


@dataclass(slots=True)
class _Round:
    """What the tables in copy share in one tick. `gathered`: tiny ones that may catch up, once none is left (`brief_left`) that is not copied."""

    around: CopySurroundings
    sharing: TaskSharing[CopyStep]
    calmly: TaskSharing[CopyStep]
    beside: dict[TableId, bool] = field(default_factory=dict)
    gathered: dict[TableId, Position] = field(default_factory=dict)
    brief_left: bool = False

    def tasks(self, *, beside: bool) -> TaskSharing[CopyStep]:
        return self.calmly if beside else self.sharing


class TableCopies:
    """For the processor's thread."""

    def __init__(self, id: ChangefeedId, layout: Layout, limits: LaneLimits, *, apart: bool) -> None:
        """`apart`: the sink takes a copy apart from the changes, and each change."""
        self._limits = limits
        self._apart = apart
        self.known = KnownCopies(id, layout)
        self._begun: dict[TableId, list[_Begun]] = {}
        self._fresh: set[TableId] = set()
        """The tables in copy that were prepared here, and for which nothing was loaded since, by whichever node."""
        self._beside: dict[TableId, bool] = {}
        """Whether each table in copy is copied beside the target's table, as of the last tick: a schema costs more than all else of a tick."""
        self._uncleared: set[TableId] = set()
        """The tables in copy whose table at the target may hold rows of others. Their windows begin in the tick that finds this."""

    @property
    def tables_with_tasks(self) -> frozenset[TableId]:
        return frozenset(self._begun)

    @property
    def has_finished(self) -> bool:
        """Whether a finished task waits to be collected."""
        return any(task.done() for task in self._tasks())

    def ranges(self, tables: Iterable[TableId]) -> dict[TableId, CopiedRanges]:
        """What their windows may leave out, since their copies have it."""
        if self._apart:
            return {}
        copies = {table: self.known.get(table) for table in tables}
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
        """Without `submit` no step is started, nor for a table that stands `still`.

        A leaving table starts no step: it is released only when no running task could create it again. A table that does not exist at
        its checkpoint is left alone until the assignment no longer names it. Copies beside the target's tables take one task at a time, so that
        the windows of the tables that follow need not wait for Spark. Tiny tables catch up together, once all are copied or a minute has passed.
        """
        self._forget_others(stored)
        tick = CopyTick()
        around = CopySurroundings(stored=stored, schemas=schemas, lanes=lanes, limits=self._limits, apart=self._apart)
        running = sum(not task.done() for task in self._tasks())
        free, calmly = stored.configuration.pipeline.parallelism - running, 1 - self._running_beside()
        round = _Round(around, sharing=TaskSharing(free), calmly=TaskSharing(calmly))
        leaving = stored.orders.assignment.leaving
        for table in self.known.in_copy(view, stored):
            copy = self.known.copy(view, table)
            tick.limits[table] = lanes.checkpoint_of(table)
            if self._take(table, copy, tick, now):
                round.brief_left = True  # the next tick sees whether it is
            elif submit is not None and table not in leaving and table not in still:
                self._go_on(table, copy, round, tick)
        self._fresh -= leaving
        self._beside = round.beside
        if not round.brief_left:
            tick.limits |= round.gathered
        if submit is not None:
            self._begin(round.sharing, submit, now)
            self._begin(round.calmly, submit, now)
        return tick

    def _go_on(self, table: TableId, copy: TableCopy | None, round: _Round, tick: CopyTick) -> None:
        around, checkpoint = round.around, tick.limits[table]
        near = self._near(table, checkpoint, around.stored.orders.barrier)
        left = near and (copy is None or (copy.brief and not copy.complete))
        known = self._beside.get(table)
        if near and known is not None:
            barrier, until = around.stored.orders.barrier.of(table), None
            if copy is not None and copy.brief and (until := catches_up_to(copy, checkpoint, barrier)) is not None:
                round.gathered[table] = until
            if until is not None or self._waits(copy, table, round.tasks(beside=known)):
                round.beside[table] = known
                round.brief_left |= left
                return
        schema = around.schemas.at(table, checkpoint)
        if schema is None:
            return
        round.beside[table] = schema.own_target
        round.brief_left |= left
        tasks = round.tasks(beside=schema.own_target)
        room = tasks.room(size_of_next(copy))
        begun = [begun.step for begun in self._begun.get(table, ())]
        inputs = inputs_of(copy, schema, around, begun, room)
        (self._uncleared.add if inputs.others else self._uncleared.discard)(table)
        action = decide(copy, inputs)
        if isinstance(action, Wait | Begin | CopyChunks):
            _follow(copy, inputs, around.stored, tick)
        match action:
            case CatchUp(to):
                (round.gathered if near and copy is not None and copy.brief else tick.limits)[table] = to
            case MoveCheckpoint() | EndCopy() | ForgetChunks() | Finish() if table not in self._begun:
                self._record(table, copy, action, tick)
            case _ if room and (isinstance(action, CopyChunks) or table not in self._begun):
                divides_after, fresh = self._limits.copy_divides_after, table in self._fresh
                for step in steps_of(action, copy, inputs, around.schemas, divides_after, fresh=fresh):
                    tasks.add(step, step.size)

    def _near(self, table: TableId, checkpoint: Position, barrier: Barrier) -> bool:
        """Whether the table may stay where it is: no DDL holds it, and the oplog need not reach far back for it."""
        behind = barrier.position.ts.seconds - checkpoint.ts.seconds
        return table not in barrier.held and behind <= self._limits.copy_follows_after

    def _waits(self, copy: TableCopy | None, table: TableId, tasks: TaskSharing[CopyStep]) -> bool:
        """Whether nothing can begin for the table: of many small ones, most wait in most ticks."""
        if copy is not None and copy.complete:
            return False
        size = size_of_next(copy)
        return not tasks.room(size) or (table in self._begun and size is not StepSize.CHUNK)

    def _record(self, table: TableId, copy: TableCopy | None, action: CopyAction, tick: CopyTick) -> None:
        """What needs no task. Chunks of one part are one write."""
        match action:
            case ForgetChunks(numbers) if copy is not None:
                left, parts = copy.without(numbers), sorted({copy.part_of(number) for number in numbers})
                tick.ops += [self.known.part_written(table, left, part) for part in parts]
            case MoveCheckpoint(at):
                tick.moved[table] = at
            case EndCopy(at):
                tick.moved[table] = at
                tick.ops += self.known.forgotten(table)
            case Finish() if copy is not None:
                tick.ops += self.known.written(table, copy.done())

    def _begin(self, sharing: TaskSharing[CopyStep], submit: Submit, now: float) -> None:
        for steps in sharing.tasks():
            task = submit(steps)
            self.known.task_begins(now)
            for place, step in enumerate(steps):
                self._begun.setdefault(step.schema.id, []).append(_Begun(step, task, place))
                if isinstance(step, CopyChunk):
                    self._fresh.discard(step.schema.id)
                    if step.size in (StepSize.CHUNK, StepSize.ANY):
                        self.known.chunk_begins(step.schema.id, now)

    def _tasks(self) -> set[Future[CopyAnswers]]:
        return {each.task for begun in self._begun.values() for each in begun}

    def _running_beside(self) -> int:
        begun = (each for of_table in self._begun.values() for each in of_table)
        return len({each.task for each in begun if not each.task.done() and each.step.schema.own_target})

    def _take(self, table: TableId, copy: TableCopy | None, tick: CopyTick, now: float) -> bool:
        """Collects the finished steps of a table. Returns whether anything is to be written: finished chunks of the same part are one write."""
        ops: list[Op] = []
        parts: set[int] = set()
        for begun in [begun for begun in self._begun.get(table, []) if begun.task.done()]:
            self._begun[table].remove(begun)
            step, answers = begun.step, begun.task.result()
            if isinstance(step, CopyChunk) and step.fresh and _not_begun(begun.place, answers):
                self._fresh.add(table)
            for answer in answers[begun.place : begun.place + 1]:
                if isinstance(answer, ErrorReport):
                    tick.errors.append(replace(answer, table=table))
                    continue
                copy = copy_after(copy, begun.step, answer)
                if isinstance(step, CopyChunk):
                    assert isinstance(answer, ReadChunk)
                    parts.add(copy.part_of(copy.number_from(step.range.lower)))
                    copied = TableSize(documents=answer.copied.documents, bytes=answer.copied.bytes)
                    self.known.chunk_ended(table, copied, now)
                else:
                    ops += self.known.written(table, copy)
                if isinstance(step, Prepare):
                    self._fresh.add(table)
                if isinstance(step, MakeEmpty):
                    tick.moved[table] = step.at
        if copy is not None:
            ops += [self.known.part_written(table, copy, part) for part in sorted(parts)]
        if not self._begun.get(table):
            self._begun.pop(table, None)
        tick.ops += ops
        return bool(ops)

    def _forget_others(self, stored: ProcessorView) -> None:
        """Forgets tables that are no longer assigned to this node. Their running tasks are kept until they end."""
        assigned = stored.orders.assignment.tables
        self.known.keep(assigned)
        self._fresh &= assigned.keys()
        for table in [table for table in self._begun if table not in assigned]:
            self._begun[table] = [begun for begun in self._begun[table] if not begun.task.done()]
        self._begun = {table: begun for table, begun in self._begun.items() if begun}


def _not_begun(place: int, answers: CopyAnswers) -> bool:
    """A task that ended with an error may have begun any of its steps."""
    return place >= len(answers) and not isinstance(answers[-1], ErrorReport)


def _follow(copy: TableCopy | None, inputs: CopyInputs, stored: ProcessorView, tick: CopyTick) -> None:
    """What follows needs a window only if something is copied already."""
    furthest = follows_to(copy, inputs)
    if copy is not None and copy.copied:
        tick.limits[inputs.table] = furthest
    elif may_pass(copy, inputs, furthest, stored):
        tick.passed[inputs.table] = tick.limits[inputs.table] = furthest
