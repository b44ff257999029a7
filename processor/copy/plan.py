"""What to do next for the initial copy of one table. Pure.

                                        Begin                    CopyChunks...
    assigned with `copy` ──────────────────────────▶ copying ◀──────────────┐
         │                                              │ └─────────────────┘
         │ Empty                             Empty      │ all copied
         ▼                          (a DDL in between)  │ CatchUp(upto): the lane brings all ranges to one position
       restart(at D) ◀──────────────────────────────────┤
         │                                              │ BuildIndexes, or Finish if there are none
         └── Begin at D, when the DDL is done           ▼
                                                       done

Indexes are built after `CatchUp`: only then does the target's table equal the source's at one time. Before that, a unique value that
moved may be in two documents, one copied before and one after.

The checkpoint of a table in copy stays at the copy's start until `CatchUp`, unless the copy takes long: then it follows, so that the source's
oplog need not reach back to that start (`follows_to`, docs/why/copy.md).

A chunk read at T contains the effect of DDLs before T. These may be unknown when the chunk is read, so the copy does not build on its
chunks before the barrier has passed all of them. Policies for a DDL that holds the table at D, in order of precedence:

- TheTableIsEmptiedOnce             the restart at D is recorded, but the checkpoint is before D, because the node restarted. The owner
                                    may have looked at the target's table already, so it is not created again. MoveCheckpoint(D)
- CopyThatEndsBeforeTheDdlGoesOn    all chunks end before D, and the table goes on after it: the copy goes on to its end, and the lane to D
- ChunksOnTheirWayAreAwaited        chunks that are being copied end first, whatever D is. Wait
- ABegunIndexKeepsItsTable          the checkpoint has passed a background index build before D, so the owner may have looked at the
                                    target's table for it: it is built before that table is created anew. Wait, or CatchUp at the
                                    build if the checkpoint is before it, because the node restarted
- DropEndsTheCopy                   drop, dropDatabase, leave, replacement by a rename of this table: nothing is left to copy. EndCopy(D)
                                    A background index build that comes before D needs the target's table: Empty(D), if an interrupted
                                    step may have left it missing
- ATableOfOthersIsPreparedFirst     before the copy has a record, if the target's table may hold rows of others: it cannot be created anew
                                    for a harmless DDL, nor for an index that comes before the end of the table. Begin
- AcrossAHarmlessDdlIsReadAgain     a chunk that was read across D without a snapshot may contain changes from after D. What a replay up
                                    to D skips for that reason is explained by later changes only. ForgetChunks, then the next.
                                    Where rows of others may be, each chunk counts as read since the copy's start
- HarmlessDdlLetsTheCopyGoOn        the DDL changes no document, and the target can apply it to an unfinished table: non-unique
                                    createIndexes, dropIndexes, a collMod of no index; create and drop of
                                    another table that has the same name at the target; another shard key, at a sink of messages. CatchUp(D): the lane goes to D with what is
                                    copied. Chunks that are copied later include the changes up to D. Exception: the single chunk
                                    of a table that is copied whole is missing. Its task drops and creates the target's table, and
                                    may have been interrupted between the two
- AnyOtherDdlRestartsTheCopy        rename, unique createIndexes, ... : chunks may have been read under a name that means another
                                    table by then, and the target must be complete for the DDL. Empty(D)

A worked example, three chunks, two at once, a unique createIndexes at 100.7:

    copying, none copied        CopyChunks(0, 1)
    0 copied at 100.4           CopyChunks(2)
    barrier 100.7, held         Wait: 1 and 2 are being copied and may read beyond 100.7
    both have ended             Empty(100.7): the checkpoint is 100.7, the owner builds the index on the empty table
    barrier 100.9               Begin at 100.7
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from changefeed.errors import InvariantError
from changefeed.event import SHARDING, DdlEvent, DdlType
from changefeed.position import Position
from changefeed.records.copy import CopyStage
from changefeed.table import TableId
from processor.copy.table_copy import TableCopy, beyond


@dataclass(frozen=True, slots=True)
class Wait:
    """Do nothing until something changes: a chunk ends, the barrier moves, the lane catches up."""


@dataclass(frozen=True, slots=True)
class Begin:
    """Create the target's table without its indexes, divide the source's table into chunks, and record both."""

    start: Position


@dataclass(frozen=True, slots=True)
class CopyChunks:
    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ForgetChunks:
    """Record that these chunks are missing: they are copied again later."""

    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CatchUp:
    """The table's lane goes on up to `until` and no further."""

    until: Position


@dataclass(frozen=True, slots=True)
class BuildIndexes:
    """Build all indexes that the table has at this position; then the copy is done."""

    at: Position


@dataclass(frozen=True, slots=True)
class Finish:
    """Record that the copy is done."""


@dataclass(frozen=True, slots=True)
class Empty:
    """Create the target's table again, with its indexes and without rows; record a restart at `at`, and move the checkpoint there."""

    at: Position


@dataclass(frozen=True, slots=True)
class MoveCheckpoint:
    """Move the checkpoint and nothing else: the restart at `to` is recorded, and the target's table was created again for it."""

    to: Position


@dataclass(frozen=True, slots=True)
class EndCopy:
    """Move the checkpoint to `at`: the table ends there, and its copy with it."""

    at: Position


CopyAction: TypeAlias = (
    Wait | Begin | CopyChunks | ForgetChunks | CatchUp | BuildIndexes | Finish | Empty | MoveCheckpoint | EndCopy
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyInputs:
    """What is known outside the copy. `held_by` is the DDL that holds the table; its position is the table's barrier."""

    table: TableId
    start: Position
    """Where the table is assigned to begin."""
    checkpoint: Position
    barrier: Position
    held_by: DdlEvent | None = None
    ends: bool = False
    """The table no longer exists after that DDL."""
    index_to_come: bool = False
    """An index is still to be built in the background, by a DDL before `held_by`."""
    index_begun: Position | None = None
    """The last of these DDLs that may have begun. One that waits for a user will look at the target's table anew, and those after it have not begun."""
    running: Mapping[int, Position] = field(default_factory=dict)
    """The chunks being copied: none is read at a time before its position."""
    others: bool = False
    """The target's table may hold rows that this copy did not write: no chunk is cleared before it is read."""
    follow_after: int | None = None
    """How many seconds of cluster time the checkpoint may be behind before it follows. None: it stays, since a DDL holds the table, or since
    changes are replayed since the copy's start."""
    indexed: bool = False
    """The target's table has all indexes that it will have at the end of a complete copy, and no message has to say that it is complete."""
    apart: bool = False
    """The sink takes a copy apart from the changes: by which key the table is sharded is said, and nothing else happens."""
    catching_up: bool = False
    """A window of the table is running in its lane: it writes to the table, and moves its checkpoint when it ends."""
    parallelism: int


def decide(copy: TableCopy | None, inputs: CopyInputs) -> CopyAction:
    """`copy` is None before the table's copy has a record."""
    if copy is not None and copy.stage is CopyStage.DONE:
        raise InvariantError(f"copy of table {inputs.table}: expected a copy in progress, observed one that is done")
    if inputs.held_by is not None:
        return _held(copy, inputs, inputs.held_by)
    if copy is None or copy.stage is CopyStage.RESTART:
        start = max(inputs.checkpoint, inputs.start if copy is None else copy.start)
        return Begin(start) if copy is None or inputs.barrier > start else Wait()
    return _copying(copy, inputs)


def _held(copy: TableCopy | None, inputs: CopyInputs, ddl: DdlEvent) -> CopyAction:
    if inputs.checkpoint == ddl.position or inputs.catching_up:
        return Wait()
    if copy is not None and copy.stage is CopyStage.RESTART and copy.start == ddl.position:
        return MoveCheckpoint(ddl.position)
    going = copy is not None and copy.stage is CopyStage.COPYING
    if copy is not None and going and copy.complete and copy.upto < ddl.position and not inputs.ends:
        return _copying(copy, inputs)
    if inputs.running:
        return Wait()
    stands = copy is not None and going and copy.stands
    if inputs.ends and (stands or not inputs.index_to_come):
        return EndCopy(ddl.position)
    return _survived(copy, inputs, ddl) if copy is not None and stands else _made(copy, inputs, ddl)


def _made(copy: TableCopy | None, inputs: CopyInputs, ddl: DdlEvent) -> CopyAction:
    """The DDL needs the target's table, which may be missing."""
    first = copy is None and inputs.others and (inputs.ends or _goes_on(inputs, ddl))
    return Begin(max(inputs.checkpoint, inputs.start)) if first else Empty(ddl.position)


def _survived(copy: TableCopy, inputs: CopyInputs, ddl: DdlEvent) -> CopyAction:
    """The DDL does not end the table, which exists at the target."""
    if (begun := inputs.index_begun) is not None:
        return Wait() if inputs.checkpoint >= begun else _passed(copy, inputs, begun)
    return _passed(copy, inputs, ddl.position) if _goes_on(inputs, ddl) else Empty(ddl.position)


def _passed(copy: TableCopy, inputs: CopyInputs, position: Position) -> CopyAction:
    across = copy.read_across(position, others=inputs.others)
    return ForgetChunks(across) if across else CatchUp(position)


def _copying(copy: TableCopy, inputs: CopyInputs) -> CopyAction:
    if (until := catches_up_to(copy, inputs.checkpoint, inputs.barrier)) is not None:
        return CatchUp(until)
    if copy.complete:
        if copy.upto > inputs.barrier:
            return Wait()
        return Finish() if inputs.indexed else BuildIndexes(copy.upto)
    if inputs.catching_up and not _follows(inputs, inputs.barrier):
        return Wait()
    free = max(0, inputs.parallelism - len(inputs.running))
    wanted = tuple(number for number in copy.missing() if number not in inputs.running)[:free]
    return CopyChunks(wanted) if wanted else Wait()


def catches_up_to(copy: TableCopy, checkpoint: Position, barrier: Position) -> Position | None:
    """Of a table that no DDL holds. None: it is not copied, has come there, or may not come there yet."""
    return copy.upto if copy.complete and checkpoint < copy.upto <= barrier else None


def read_not_before(inputs: CopyInputs) -> Position:
    """When a chunk that starts now is read at the earliest. Changes below it may be dropped for the chunk from now on."""
    return inputs.barrier if _follows(inputs, inputs.barrier) else inputs.checkpoint


def follows_to(copy: TableCopy | None, inputs: CopyInputs) -> Position:
    """How far the lane may go while chunks are missing: no further than any of these can have been read.

        chunks 0 and 1 copied at 100 and 130, 2 is read not before 160, 3 not at all; the barrier is 300
            up to 160       changes of 0 after 100 and of 1 after 130 are new; those of 2 and 3 will be in what is copied
        2 copied at 170, 3 is read not before 310
            up to 310

    A window does not end between the two times of a chunk that was read without a snapshot: it would wait there for changes beyond its end.
    Nor does it end at an event. That event may be a DDL, to which the table must not come before the copy is ready for it (`_held`).
    """
    furthest = Position(min([inputs.barrier, *inputs.running.values()]).ts)
    for chunk in sorted(copy.copied.values() if copy else (), key=lambda chunk: chunk.after, reverse=True):
        if beyond(chunk.after) < furthest < beyond(chunk.until):
            furthest = beyond(chunk.after)
    return furthest if _follows(inputs, furthest) else inputs.checkpoint


def _follows(inputs: CopyInputs, position: Position) -> bool:
    behind = position.ts.seconds - inputs.checkpoint.ts.seconds
    return inputs.follow_after is not None and behind > inputs.follow_after


def _goes_on(inputs: CopyInputs, ddl: DdlEvent) -> bool:
    """Whether the copy may go on across the DDL. A table that comes to the target's table, or leaves its rows there, changes nothing of this one."""
    of_another = inputs.others and ddl.type in (DdlType.CREATE, DdlType.DROP, DdlType.DROP_DATABASE)
    said = inputs.apart and ddl.type in SHARDING
    return _harmless(ddl) or said or (of_another and not inputs.ends)


def _harmless(ddl: DdlEvent) -> bool:
    """Whether the DDL changes no document and can be applied to an incomplete table at the target."""
    match ddl.type:
        case DdlType.DROP_INDEXES | DdlType.NEW_UUID:
            return True
        case DdlType.CREATE_INDEXES:
            return not any(_unique(index) for index in ddl.description.decode().get("indexes", ()))
        case DdlType.MODIFY:
            return "index" not in ddl.description.decode()
        case _:
            return False


def _unique(index: dict[str, object]) -> bool:
    """An index with `prepareUnique` counts as unique: once the target has marked it, it refuses writes that violate it."""
    return bool(index.get("unique") or index.get("prepareUnique"))
