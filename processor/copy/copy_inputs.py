"""`inputs_of`: what is known outside the copy of one table, for `plan.py`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from changefeed.config.configuration import OnOccupied
from changefeed.position import Position
from changefeed.records.copy import CopyStage
from changefeed.records.ddl import DdlRecord, DdlState
from changefeed.table import TableId, TableSchema
from processor.copy.plan import CopyInputs
from processor.copy.steps import CopyChunk, CopyStep
from processor.copy.table_copy import TableCopy
from processor.copy.target_table import has_all_indexes
from processor.etcd_view import ProcessorView
from processor.lanes.lane_plan import LaneLimits
from processor.lanes.lanes import Lanes
from schema_store.versions import SchemaVersions


@dataclass(frozen=True, slots=True, kw_only=True)
class CopySurroundings:
    """The same for all copies of one tick."""

    stored: ProcessorView
    schemas: SchemaVersions
    lanes: Lanes
    limits: LaneLimits
    apart: bool
    """The sink takes a copy apart from the changes."""


def inputs_of(
    copy: TableCopy | None, schema: TableSchema, around: CopySurroundings, running: Sequence[CopyStep], room: int
) -> CopyInputs:
    """`running`: the table's steps in tasks. `room`: how many more may begin."""
    stored, lanes, table = around.stored, around.lanes, schema.id
    configuration, barrier = stored.configuration, stored.orders.barrier
    reading = [step for step in running if isinstance(step, CopyChunk)]
    chunks = {copy.number_from(step.range.lower): step.not_before for step in reading} if copy else {}
    keeps = configuration.on_occupied is OnOccupied.KEEP
    alone = schema.own_target or not (keeps or configuration.routes.may_share(schema.name))
    held_at = barrier.held.get(table)
    meeting = [record for record in stored.ddls() if table in record.scope.tables] if held_at else []
    holding = [record for record in meeting if record.position == held_at]
    to_come = [record for record in meeting if record.open and held_at is not None and record.position < held_at]
    checkpoint = lanes.checkpoint_of(table)
    undisturbed = takewhile(lambda record: record.refused is None, to_come)
    begun = [record.position for record in undisturbed if _may_have_begun(record, checkpoint)]
    return CopyInputs(
        table=table,
        start=stored.orders.assignment.tables[table].start,
        checkpoint=checkpoint,
        barrier=barrier.of(table),
        held_by=holding[0].event if holding else None,
        ends=any(table in record.scope.ended for record in holding),
        index_to_come=bool(to_come),
        index_begun=max(begun, default=None),
        running=chunks,
        others=not alone and not around.apart,
        follow_after=around.limits.copy_follows_after if held_at is None and alone and not around.apart else None,
        indexed=not around.apart and _indexed(copy, around.schemas, table),
        apart=around.apart,
        catching_up=lanes.busy(table),
        parallelism=room + len(chunks),
    )


def may_pass(copy: TableCopy | None, inputs: CopyInputs, furthest: Position, stored: ProcessorView) -> bool:
    """Whether the checkpoint may move that far without a window, since nothing is copied yet.

    A DDL that holds no table, an index built in the background, begins once the checkpoint has passed it: the target's table must be there
    by then, and must not be created again.
    """
    if furthest <= inputs.checkpoint or inputs.catching_up:
        return False
    if copy is not None and copy.stage is CopyStage.COPYING and copy.stands:
        return True
    below = (record for record in stored.ddls() if record.open and record.position < furthest)
    return not any(inputs.table in record.scope.tables for record in below)


def _may_have_begun(record: DdlRecord, checkpoint: Position) -> bool:
    return record.position <= checkpoint or record.state is DdlState.EXECUTING


def _indexed(copy: TableCopy | None, schemas: SchemaVersions, table: TableId) -> bool:
    if copy is None or copy.stage is not CopyStage.COPYING or not copy.complete:
        return False
    schema = schemas.at(table, copy.upto)
    return schema is not None and has_all_indexes(schema)
