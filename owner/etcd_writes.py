"""`ChangefeedWriter`: all writes of the owner to etcd for one changefeed. Each is one fenced transaction, or several in a safe order."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import UTC, datetime
from typing import TypeVar

import structlog

from changefeed.errors import ConflictError, DefinitionsTooLarge
from changefeed.lifecycle import State
from changefeed.position import Position
from changefeed.records.ddl import Barrier, DdlRecord, Observation, TargetRename
from changefeed.records.history import HistoryEntry, HistoryKind
from changefeed.records.node import Assignment, NodeId, PositionReport, RowCounts
from changefeed.records.requests import ChangefeedId, MoveRequest
from changefeed.records.status import ChangefeedStatus, Straggler
from changefeed.records.sync_point import SyncPoints, Verified
from changefeed.table import TableId, TableName, TableSchema
from changefeed.users import PrincipalNames
from coordination import failpoint
from coordination.etcd.protocol import Delete, DeletePrefix, ModRevIs, Op, Put, batches
from coordination.fenced import FencedStore
from coordination.history import entry_ops, lease_history
from coordination.large_store import LargeWriter
from coordination.large_values import LARGE_BYTES, MOST_BYTES, encoded
from coordination.layout import Layout, encode
from coordination.parts import assignment_puts
from owner.tables.filter_change import FilterChange
from owner.tables.scheduler import ForgetMove, ForgetNode, Remove, SchedulerAction, assignments_after
from owner.tables.wishes import Forget, Mark, Resume
from schema_store.store import FoldStep, fold

_log = structlog.get_logger()

_BARRIER_EVERY = 0.1
_BARRIER_EVERY_WHILE_ROWS_FLOW = 0.04
_STATUS_EVERY = 1.0
_HISTORY = 100
"""How many settled DDLs stay in etcd, for users who ask what was applied when."""
_MOST_NOTE = 500
_ANSWERED_AT_ONCE = 50
_CROWDED = 4
"""From this part of the room for large definitions on, none are kept for users."""

T = TypeVar("T")


class ChangefeedWriter:
    def __init__(self, store: FencedStore, layout: Layout, id: ChangefeedId) -> None:
        self._store = store
        self._layout = layout
        self._id = id
        self.large = LargeWriter(store, layout.large(id))
        """What refers to large values is encoded here, so that they are written before it."""
        self._log = _log.bind(changefeed=id, epoch=store.epoch)
        self._barrier_at = self._status_at = float("-inf")

    @property
    def epoch(self) -> int:
        return self._store.epoch

    def beginning(self, tables: Sequence[TableSchema], status: ChangefeedStatus, barrier: Barrier) -> None:
        """The status with its checkpoint comes last: until it exists, a new owner overwrites what its predecessor wrote."""
        self._commit([DeletePrefix(self._layout.schemas(self._id)), DeletePrefix(self._layout.ddls(self._id))])
        self._store.commit_in_parts([self._put_schema(table) for table in tables])
        self._commit([self._put_status(status), self._put_barrier(barrier)])

    def mark_changing(self, marked: ChangefeedStatus) -> None:
        """The tables are about to change: no node runs them."""
        self._commit([self._put_status(marked)])

    def principals(self, names: PrincipalNames) -> None:
        self._commit([Put(self._layout.principals(self._id), encode(names))])

    def sync(self, points: SyncPoints, *, answers: bool) -> None:
        """`answers`: what a user asked for is over."""
        answered = [Delete(self._layout.sync_request(self._id))] if answers else []
        self._commit([Put(self._layout.sync(self._id), encode(points)), *answered])

    def verified(self, verified: Verified) -> None:
        self._commit([Put(self._layout.verified(self._id), encode(verified))])

    def renames(self, renames: Mapping[TableName, TargetRename | None]) -> None:
        """None: the target refused it."""
        self._store.commit_in_parts(
            [
                Put(self._layout.rename(self._id, name), self._encoded(rename, str(name)))
                if rename is not None
                else Delete(self._layout.rename(self._id, name))
                for name, rename in sorted(renames.items())
            ]
        )

    def tables(
        self,
        marked: ChangefeedStatus,
        change: FilterChange,
        changed: ChangefeedStatus,
        assignments: Mapping[NodeId, Assignment],
    ) -> None:
        """While the status marks the tables as changing, a new owner starts with this change."""
        bases = [self._put_schema(table) for table in change.taken_in]
        self.mark_changing(marked)
        self._forget_tables(change.anew, assignments)
        for step in change.steps:
            self.fold(step)
            failpoint.reach("tables_changing")
        self._store.commit_in_parts(bases)
        failpoint.reach("tables_changed")
        self._commit([self._put_status(changed), DeletePrefix(self._layout.renames(self._id))])

    def _forget_tables(self, tables: AbstractSet[TableId], assignments: Mapping[NodeId, Assignment]) -> None:
        """Before the tables end: a new owner that finds them known does this again."""
        layout, id = self._layout, self._id
        removed = [Remove(table, node) for node, given in assignments.items() for table in tables & given.tables.keys()]
        keys = [
            group(id, table)
            for table in sorted(tables)
            for group in (layout.straggler, layout.request, layout.repair, layout.move)
        ]
        self._store.commit_in_parts([op for table in sorted(tables) for op in self._copy_forgotten(table)])
        self.schedule(assignments, assignments_after(assignments, removed))
        self._store.commit_in_parts([Delete(key) for key in keys])

    def capture(self, folded: Iterable[FoldStep], changed: ChangefeedStatus) -> None:
        """While the status names the old capture, a new owner goes on with the steps that are left to fold."""
        for step in folded:
            self.fold(step)
            failpoint.reach("capture_changing")
        self._commit([self._put_status(changed)])
        self._log.info("capture_changed", capture=changed.capture, position=str(changed.checkpoint))

    def restart(self, status: ChangefeedStatus) -> None:
        layout, id = self._layout, self._id
        groups = [layout.ddls, layout.schemas, layout.large, layout.assignments, layout.positions, layout.copies]
        groups += [
            layout.barrier,
            layout.rows,
            layout.stragglers,
            layout.requests,
            layout.skips,
            layout.renames,
            layout.repairs,
            layout.sync,
            layout.sync_request,
            layout.verified,
        ]
        self._commit([*(DeletePrefix(group(id)) for group in groups), self._put_status(status)])
        self.large.deleted()

    def remove(self) -> None:
        lease_history(self._store, self._layout, self._id)
        groups = self._layout.changefeed, self._layout.large, self._layout.positions
        self._commit([DeletePrefix(group(self._id)) for group in groups])
        self._log.info("changefeed_removed")

    def ddls(
        self, records: Sequence[DdlRecord], answers: Iterable[TableId] = (), asked: Mapping[TableId, int] = {}
    ) -> None:
        """In stream order: a new owner that finds only some of them finds no gap. The answered requests are deleted last: one
        that is still found is known as answered, or the table is copied once more. `asked`: as in `wish`.
        """
        self._store.commit_in_parts([self._put_ddl(record) for record in records])
        self._answer(answers, asked)

    def keep(self, record: DdlRecord) -> DefinitionsTooLarge | None:
        """What the record refers to. An error, if there is no room for it."""
        try:
            self._put_ddl(record)
        except DefinitionsTooLarge as error:
            return error
        return None

    def release(self, records: Sequence[DdlRecord], barrier: Barrier, stragglers: Mapping[TableId, Straggler]) -> None:
        """One transaction: there is no state in which a gate is open and its DDL not durable. What was large before it is of no use any more.

        Stragglers that the DDLs let go on may be thousands, under one name. They stand at their DDL, so their marks are true before it is released.
        """
        records = [replace(record, before=None) if _is_large(record.before) else record for record in records]
        born = stragglers.keys() & {record.event.id for record in records}
        marks = {table: self._put_straggler(table, straggler) for table, straggler in stragglers.items()}
        self._store.commit_in_parts([mark for table, mark in marks.items() if table not in born])
        begun = [marks[table] for table in sorted(born)]
        self._commit([*map(self._put_ddl, records), self._put_barrier(barrier), *begun])
        for record in records:
            self._log.info("ddl_released", ddl=str(record.event), state=record.state, note=record.note)

    def wish(self, wished: Mark | Resume | Forget, asked: Mapping[TableId, int]) -> None:
        """Each is one transaction with the request that it answers; what is forgotten need not go at once, nor all DDLs that are tried again: the
        request is answered last. `asked`: the revisions of the requests that it may answer; a newer one stays.
        """
        layout, id = self._layout, self._id
        match wished:
            case Mark(table, straggler, answers, moves_to):
                marks: list[Op] = [self._put_straggler(table, straggler)]
                if moves_to is not None:
                    marks.append(Put(layout.move(id, table), encode(MoveRequest(node=moves_to))))
                if not self._answer([table] if answers else [], asked, marks):
                    return
                error = straggler.error.message if straggler.error else None
                self._log.warning(
                    "table_falls_behind", table=table, at=str(straggler.at), stopped=straggler.stopped, error=error
                )
            case Resume(table, straggler, records):
                marks = [self._put_straggler(table, straggler)] if straggler else []
                self._store.commit_in_parts([self._put_ddl(record) for record in records])
                if not self._answer([table], asked, marks):
                    return
                self._log.info("table_resumed", table=table)
            case Forget(requests=requests, repairs=repairs, skips=skips, stragglers=stragglers):
                self._answer(requests, asked)
                keys = [layout.repair(id, table) for table in repairs]
                keys += [layout.skip(id, position) for position in skips]
                keys += [layout.straggler(id, table) for table in stragglers]
                self._store.commit_in_parts([Delete(key) for key in keys])

    def barrier(self, barrier: Barrier, before: Barrier | None, *, flowing: bool) -> None:
        """A closed or opened gate is written at once. Mere progress is written ten times a second, and more often while rows wait for it."""
        same_gates = before is not None and replace(before, position=barrier.position) == barrier
        every = _BARRIER_EVERY_WHILE_ROWS_FLOW if flowing else _BARRIER_EVERY
        if not same_gates or time.monotonic() - self._barrier_at >= every:
            self._commit([self._put_barrier(barrier)])
            self._barrier_at = time.monotonic()

    def barrier_again(self, barrier: Barrier) -> None:
        """Writes the same barrier again: a report that has seen it was made after its node had seen the earlier writes."""
        self._commit([self._put_barrier(replace(barrier, epoch=self.epoch))])

    def status(self, status: ChangefeedStatus, before: ChangefeedStatus | None) -> None:
        """A new state is written at once, mere progress once a second."""
        same_state = before is not None and _state(before) == _state(status)
        same_words = same_state and before is not None and before.behind == status.behind
        if same_words and time.monotonic() - self._status_at < _STATUS_EVERY:
            return
        self._commit([self._put_status(status), *self._told(status, before)])
        self._status_at = time.monotonic()
        if not same_state:
            error = status.lifecycle.error
            self._log.info("changefeed_state", state=status.lifecycle.state, error=error and error.message)

    def _told(self, status: ChangefeedStatus, before: ChangefeedStatus | None) -> list[Op]:
        """A new state is in the history, too. That it is removed says the user's own change."""
        state, error = status.lifecycle.state, status.lifecycle.error
        was = before.lifecycle.state if before is not None else None
        if state in (was, State.REMOVED):
            return []
        entry = HistoryEntry(
            at=datetime.now(UTC),
            kind=HistoryKind.STATE,
            action="state",
            by="owner",
            before=was or "",
            after=state,
            note=error.message[:_MOST_NOTE] if error is not None and state is not State.NORMAL else "",
        )
        return entry_ops(self._store, self._layout, self._id, entry, f"{self.epoch:x}")

    def schedule(self, before: Mapping[NodeId, Assignment], after: Mapping[NodeId, Assignment]) -> None:
        puts = [
            put
            for node, assignment in after.items()
            for put in assignment_puts(
                self._layout.assignment(self._id, node), before.get(node, Assignment()), assignment
            )
        ]
        for together in whole_parts(puts):
            self._commit(together)

    def end_copies(self, actions: Iterable[SchedulerAction]) -> None:
        """Called before the tables are taken from their nodes: a table that comes back into the filter is copied as a new one."""
        ended = [action.table for action in actions if isinstance(action, Remove)]
        self._store.commit_in_parts([op for table in ended for op in self._copy_forgotten(table)])

    def _copy_forgotten(self, table: TableId) -> list[Op]:
        layout, id = self._layout, self._id
        return [Delete(layout.copy(id, table)), DeletePrefix(layout.copy_parts(id, table))]

    def forget(
        self, actions: Iterable[SchedulerAction], reports: Mapping[NodeId, PositionReport], rows: RowCounts
    ) -> None:
        """Deletes what the scheduler no longer needs. `rows`: the counts of nodes forgotten earlier, so that nothing is counted twice."""
        for action in actions:
            match action:
                case ForgetMove(table):
                    self._commit([Delete(self._layout.move(self._id, table))])
                case ForgetNode(node):
                    rows = rows.plus(reports[node].rows) if node in reports else rows
                    self._commit([*self._forgotten(node), Put(self._layout.rows(self._id), encode(rows))])
                case _:
                    pass

    def fold(self, step: FoldStep) -> None:
        writes: list[Op] = [self._put_schema(table, bounded=False) for table in step.write]
        writes += [Delete(self._layout.schema(self._id, table)) for table in step.remove]
        self._commit([*writes, *(Delete(self._layout.ddl(self._id, position)) for position in step.ddls)])

    def fold_settled(
        self, bases: Mapping[TableId, TableSchema], records: Mapping[Position, DdlRecord], checkpoint: Position
    ) -> Position | None:
        """Fold the oldest settled DDLs into the bases, once there are twice as many as are kept for users; all, if they are large.

        Return below which position they were folded, None if they were not.
        """
        settled = sorted(position for position, record in records.items() if not record.open)
        crowded = self.large.size > MOST_BYTES // _CROWDED
        if not settled or (len(settled) <= 2 * _HISTORY and not crowded):
            return None
        below = checkpoint if crowded else min(checkpoint, settled[-_HISTORY])
        step = next(fold(bases, records.values(), below), None) if settled[0] < below else None
        if step is None:
            return None
        self.fold(step)
        return below

    def _forgotten(self, node: NodeId) -> list[Op]:
        layout, id = self._layout, self._id
        report = layout.position(id, node)
        return [DeletePrefix(layout.assignment(id, node)), Delete(report), DeletePrefix(f"{report}/")]

    def _put_straggler(self, table: TableId, straggler: Straggler) -> Put:
        return Put(self._layout.straggler(self._id, table), encode(straggler))

    def _put_ddl(self, record: DdlRecord) -> Put:
        return Put(self._layout.ddl(self._id, record.position), self._encoded(record, str(record.event)))

    def _put_schema(self, table: TableSchema, *, bounded: bool = True) -> Put:
        return Put(self._layout.schema(self._id, table.id), self._encoded(table, str(table.name), bounded=bounded))

    def _encoded(self, record: DdlRecord | TableSchema | TargetRename, about: str, *, bounded: bool = True) -> bytes:
        value, large = encoded(record)
        if large:
            self.large.write(large, about=about, bounded=bounded)
        return value

    def _put_barrier(self, barrier: Barrier) -> Put:
        return Put(self._layout.barrier(self._id), encode(barrier))

    def _put_status(self, status: ChangefeedStatus) -> Put:
        return Put(self._layout.status(self._id), encode(status))

    def _answer(self, tables: Iterable[TableId], asked: Mapping[TableId, int], ops: Sequence[Op] = ()) -> bool:
        """Writes with the answers what belongs to them. False if a user has asked for something else meanwhile: nothing of it is written."""
        known = sorted(asked.keys() & set(tables))
        if ops and not known:
            self._commit(ops)
        for at in range(0, len(known), _ANSWERED_AT_ONCE):
            keys = {self._layout.request(self._id, table): asked[table] for table in known[at : at + _ANSWERED_AT_ONCE]}
            compares = [ModRevIs(key, rev) for key, rev in keys.items()]
            try:
                self._store.commit([*ops, *map(Delete, keys)], compares)
            except ConflictError as error:
                self._log.info("request_changed", error=str(error))
                return False
        return True

    def _commit(self, ops: Sequence[Op]) -> None:
        self._store.commit(ops)


def _is_large(before: Observation | None) -> bool:
    seen = [table for table in before.tables.values() if table is not None] if before is not None else []
    return sum(len(each.raw) for table in seen for each in (table.options, *table.indexes)) > LARGE_BYTES


def _state(status: ChangefeedStatus) -> object:
    lifecycle = status.lifecycle
    return lifecycle.state, lifecycle.error, status.run, status.info_version, status.epoch, status.start, status.still


def whole_parts(puts: Iterable[Put]) -> Iterator[list[Op]]:
    """The same part of every node in one transaction, so that a table's old and new node change together."""
    by_part: dict[str, list[Put]] = {}
    for put in puts:
        by_part.setdefault(put.key.rpartition("/")[2], []).append(put)
    return batches(part for _, part in sorted(by_part.items()))
