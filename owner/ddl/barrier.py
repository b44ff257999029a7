"""`decide`: where the barrier is, and which DDLs may run now. Pure.

The protocol on one table, with events [insert@5, update@8, drop@11, insert@12]; the insert@12 belongs to another table:

    the watch shows drop@11 and is resolved to 13    the record is written, then: barrier 13, held {table: 11}
    the processor applies 5 and 8                    checkpoint 11 exactly: everything before the drop, and nothing from it on
    checkpoint == 11                                 the drop may run; the other table has already gone on to 13
    the drop is done and recorded                    one transaction: record done, held {}; the table ends at 11

Rules, in order of precedence:

    NothingPassesTheResolvedPosition    there may be unseen DDLs beyond it; a DDL there waits too, even if an earlier owner recorded it
    AnOpenDdlHoldsItsTables             at the position of the first open DDL that touches the table
    ADdlHoldsOnlyItsOwnTables           whatever it waits for, other tables go on
    OverlappingDdlsRunInStreamOrder     a later one waits for the earlier; DDLs whose scopes do not overlap run side by side
    ADdlRunsExactlyAtItsPosition        when each table in its scope is assigned and its checkpoint equals the position
    ATableEntersWithoutANode            a table that left the filter earlier must first have left its node
    ABackgroundDdlHoldsNothing          it runs once the checkpoint has passed it, and keeps its order among DDLs
    ARefusedDdlWaitsForAUser            and so does what meets it; a stopped table that ends is not awaited (`stragglers.py`)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from changefeed.position import Position
from changefeed.records.ddl import DdlRecord, held_by
from changefeed.table import TableId
from owner.ddl.stragglers import NOTHING, CheckpointOf, Touched, Waiting


@dataclass(frozen=True, slots=True, kw_only=True)
class BarrierDecision:
    """The barrier to publish, and the open DDLs that may run now."""

    position: Position
    held: Mapping[TableId, Position]
    runnable: tuple[DdlRecord, ...]


def decide(
    resolved: Position, records: Iterable[DdlRecord], checkpoint_of: CheckpointOf, waiting: Waiting = NOTHING
) -> BarrierDecision:
    """`records`: the changefeed's records in any order and state. The result depends on the open ones."""
    open_records = sorted((record for record in records if record.open), key=lambda record: record.position.order)
    return BarrierDecision(
        position=resolved,
        held=held_by(open_records, resolved),
        runnable=tuple(
            record
            for record in _first(open_records)
            if record.position < resolved and record.refused is None and _reached(record, checkpoint_of, waiting)
        ),
    )


def _reached(record: DdlRecord, checkpoint_of: CheckpointOf, waiting: Waiting) -> bool:
    if any(checkpoint_of(table) is not None for table in record.scope.apart):
        return False
    checkpoints = [checkpoint_of(table) for table in record.scope.tables if not waiting.passes(record, table)]
    if record.background:
        return all(checkpoint is not None and checkpoint >= record.position for checkpoint in checkpoints)
    return all(checkpoint == record.position for checkpoint in checkpoints)


def _first(open_records: Iterable[DdlRecord]) -> Iterator[DdlRecord]:
    """The DDLs that overlap with no earlier one."""
    before = Touched()
    for record in open_records:
        if not before.meets(record.scope):
            yield record
        before.add(record.scope)


def waits_for(
    record: DdlRecord,
    records: Iterable[DdlRecord],
    checkpoint_of: CheckpointOf,
    stopped: AbstractSet[TableId] = frozenset(),
) -> str:
    """Why an open DDL does not run yet, for users."""
    if record.refused is not None:
        return f"a user: {record.refused.message}"
    for other in sorted(records, key=lambda other: other.position.order):
        if other.open and other.position < record.position and record.scope.meets(other.scope):
            return f"{other.event}, which comes first"
    for table in sorted(record.scope.tables):
        checkpoint = checkpoint_of(table)
        if checkpoint is None:
            return f"table {table} to be assigned to a node"
        if checkpoint < record.position:
            return f"table {table}, which is {'stopped ' if table in stopped else ''}at {checkpoint}"
    for table in sorted(record.scope.apart):
        if checkpoint_of(table) is not None:
            return f"table {table} to leave the node that had it before"
    return ""


def changefeed_checkpoint(
    tables: Position | None,
    records: Iterable[DdlRecord],
    resolved: Position,
    not_awaited: AbstractSet[Position] = frozenset(),
) -> Position:
    """Everything below it is downstream, rows and DDL, but for stragglers.

    `tables`: the least checkpoint of the tables that are no stragglers, None without such tables. `not_awaited`: DDLs of stragglers only.
    """
    first_open = min((at.position for at in records if at.open and at.position not in not_awaited), default=resolved)
    return min(first_open, resolved if tables is None else tables)
