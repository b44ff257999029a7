"""What to do next for the initial copy of one table. Pure.

                                        Begin                    CopyChunks...
    assigned with `copy` ──────────────────────────▶ copying ◀──────────────┐
         │                                              │ └─────────────────┘
         │ Empty                             Empty      │ all copied
         ▼                          (a DDL in between)  │ CatchUp(upto): the lane brings each range from its own time to one and the same
       restart(at D) ◀──────────────────────────────────┤
         │                                              │ BuildIndexes
         └── Begin at D, when the DDL is done           ▼
                                                       done

The checkpoint of a table in copy stays at the copy's start until `CatchUp`. Indexes come after that, since only then is the target's
table as the source's was at one time: before, a unique value may stand in two documents, copied before and after it moved.

A chunk read at T holds what DDLs before T made of the table. Nobody knows of them when it is read, so nothing is built upon it before
the barrier has passed all chunks. A DDL that holds the table at D, earliest first:

- DropEndsTheCopy                   drop, dropDatabase, being replaced by a rename: nothing is left to copy. The checkpoint moves to D;
                                    if an index is to be built in the background before, the target's table must be there for it, and
                                    is made anew where what makes it may have broken off
- WhatWasCopiedBeforeStays          all chunks end before D: the copy goes on to its end, and the lane to D
- HarmlessDdlLetsTheCopyGoOn        the documents are what they were, and the target can do it to an unfinished table: non-unique
                                    createIndexes, dropIndexes, a collMod of no index. CatchUp(D): the lane goes to D with what is
                                    copied; chunks that are copied later hold all of that and more. Not while the one chunk of a
                                    table that is copied whole is missing: it makes the target's table anew, and may have broken
                                    off when that was gone
- AnythingElseBeginsAnew            rename, unique createIndexes, ... : chunks may have been read under a name that means another table
                                    by now, and the target must be complete for the DDL. Empty(D)
- EmptiedOnce                       the restart at D is recorded, and the checkpoint is before D, since the node restarted. The owner
                                    may have looked at the target's table already, so it is not made anew again. MoveCheckpoint(D)

A worked example, three chunks, two at once, a unique createIndexes at 100.7:

    copying, none copied        CopyChunks(0, 1)
    0 copied at 100.4           CopyChunks(2)
    barrier 100.7, held         Wait: 1 and 2 are on their way and may read beyond 100.7
    both have ended             Empty(100.7): the checkpoint is 100.7, the owner builds the index on the empty table
    barrier 100.9               Begin at 100.7
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from changefeed.errors import InvariantError
from changefeed.event import DdlEvent, DdlType
from changefeed.position import Position
from changefeed.records import CopyStage
from changefeed.table import TableId
from processor.copy.table_copy import TableCopy


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing, until something changes: a chunk ends, the barrier moves, the lane catches up."""


@dataclass(frozen=True, slots=True)
class Begin:
    """Create the target's table without its indexes, divide the source's, and record both."""

    start: Position


@dataclass(frozen=True, slots=True)
class CopyChunks:
    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CatchUp:
    """The table's lane goes on to here and no further."""

    until: Position


@dataclass(frozen=True, slots=True)
class BuildIndexes:
    """All indexes that the table has at this position; then the copy is done."""

    at: Position


@dataclass(frozen=True, slots=True)
class Empty:
    """Make the target's table anew, with its indexes and without rows, record a restart from here, and move the checkpoint here."""

    at: Position


@dataclass(frozen=True, slots=True)
class MoveCheckpoint:
    """The restart from here is recorded, and the target's table was made anew for it: only the checkpoint moves."""

    to: Position


@dataclass(frozen=True, slots=True)
class EndCopy:
    """Move the checkpoint here: the table ends, and its copy with it."""

    at: Position


CopyAction: TypeAlias = Wait | Begin | CopyChunks | CatchUp | BuildIndexes | Empty | MoveCheckpoint | EndCopy


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyInputs:
    """What is known outside the copy. `held_by` is the DDL that holds the table; it stands at the barrier."""

    table: TableId
    start: Position
    """Where the table is assigned to begin."""
    checkpoint: Position
    barrier: Position
    held_by: DdlEvent | None = None
    index_to_come: bool = False
    """One is to be built in the background, and comes before that DDL."""
    running: frozenset[int] = frozenset()
    """The chunks on their way."""
    catching_up: bool = False
    """A window of the table is at work in its lane: it writes to the table, and moves its checkpoint when it ends."""
    parallelism: int


def decide(copy: TableCopy | None, inputs: CopyInputs) -> CopyAction:
    """`copy` is None before the table's copy has a record."""
    if copy is not None and copy.stage is CopyStage.DONE:
        raise InvariantError(f"the copy of table {inputs.table} is done, and asked what to do next")
    if inputs.held_by is not None:
        return _held(copy, inputs, inputs.held_by)
    if copy is None or copy.stage is CopyStage.RESTART:
        start = inputs.start if copy is None else copy.start
        return Begin(start) if copy is None or inputs.barrier > start else Wait()
    return _copying(copy, inputs)


def _held(copy: TableCopy | None, inputs: CopyInputs, ddl: DdlEvent) -> CopyAction:
    if inputs.checkpoint == ddl.position or inputs.catching_up:
        return Wait()
    if copy is not None and copy.stage is CopyStage.RESTART and copy.start == ddl.position:
        return MoveCheckpoint(ddl.position)
    going = copy is not None and copy.stage is CopyStage.COPYING
    over = ends(ddl, inputs.table)
    if copy is not None and going and copy.complete and copy.upto < ddl.position and not over:
        return _copying(copy, inputs)
    if inputs.running:
        return Wait()
    stands = copy is not None and going and copy.stands
    if over:
        return Empty(ddl.position) if inputs.index_to_come and not stands else EndCopy(ddl.position)
    return CatchUp(ddl.position) if stands and harmless(ddl) else Empty(ddl.position)


def _copying(copy: TableCopy, inputs: CopyInputs) -> CopyAction:
    if copy.complete:
        if copy.upto >= inputs.barrier:
            return Wait()
        return BuildIndexes(copy.upto) if inputs.checkpoint >= copy.upto else CatchUp(copy.upto)
    free = max(0, inputs.parallelism - len(inputs.running))
    wanted = tuple(number for number in copy.missing() if number not in inputs.running)[:free]
    return CopyChunks(wanted) if wanted else Wait()


def ends(ddl: DdlEvent, table: TableId) -> bool:
    """Whether the table is no more after this DDL, which holds it."""
    replaced = ddl.type is DdlType.RENAME and ddl.drop_target == table
    return ddl.type in (DdlType.DROP, DdlType.DROP_DATABASE) or replaced


def harmless(ddl: DdlEvent) -> bool:
    """Whether it changes no document, and the target's table need not be complete for it."""
    match ddl.type:
        case DdlType.DROP_INDEXES:
            return True
        case DdlType.CREATE_INDEXES:
            return not any(_unique(index) for index in ddl.description.decode().get("indexes", ()))
        case DdlType.MODIFY:
            return "index" not in ddl.description.decode()
        case _:
            return False


def _unique(index: dict[str, object]) -> bool:
    """An index about to become unique counts as one: the target marks it, and refuses what violates it from then on."""
    return bool(index.get("unique") or index.get("prepareUnique"))
