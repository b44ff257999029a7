"""What owner, processors and the admin API tell each other: the values that stand in etcd.

`coordination.layout` says under which keys and in which encoding; here is only what they mean. Ranges are half-open: a
position in a record is always the first one *not* covered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NewType

from changefeed.capture import Capture
from changefeed.cluster_time import ClusterTime
from changefeed.config.configuration import Configuration
from changefeed.config.tables.filter import Disposition
from changefeed.config.tables.pattern import TablePattern
from changefeed.documents.document import Document
from changefeed.event import DdlEvent
from changefeed.lifecycle import ErrorReport, Lifecycle
from changefeed.position import Position
from changefeed.table import TableId, TableName

NodeId = NewType("NodeId", str)
"""Name of a node plus its session's lease: a node that lost its session comes back under a new id."""

ChangefeedId = NewType("ChangefeedId", str)


class Role(StrEnum):
    OWNER = "owner"
    PROCESSOR = "processor"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRecord:
    """Exists while the node's session lives. The create-revision of its key is the processor's epoch."""

    id: NodeId
    name: str
    admin_address: str
    roles: frozenset[Role]
    version: str
    started_at: datetime
    draining: bool = False
    captures: frozenset[Capture] = frozenset({Capture.CHANGE_STREAM})
    """Those it can carry out; a release that does not say it knew no other."""


class DesiredState(StrEnum):
    RUNNING = "running"
    PAUSED = "paused"
    REMOVED = "removed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangefeedInfo:
    """What the user asked for. `version` counts the user's changes."""

    configuration: Configuration
    desired: DesiredState = DesiredState.RUNNING
    version: int = 1
    created_at: datetime
    resume_from: Position | None = None
    capture: Capture = Capture.CHANGE_STREAM
    """As it was decided; a release that knew no other way did not say it."""
    capture_reason: str = ""
    """Why, in words."""


CURRENT_FOR = timedelta(seconds=30)
"""Of an owner that has not said for longer that nothing is left, nobody knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangefeedStatus:
    """What the owner made of it. Without a checkpoint it has not begun: its tables are not known yet."""

    lifecycle: Lifecycle = field(default_factory=Lifecycle)
    start: Position | None = None
    """Where it began: its base schemas were valid from here."""
    copied_from: Position | None = None
    """The same, when it began with an initial copy of the tables that were there."""
    taken_in_at: frozenset[Position] = frozenset()
    """Where tables begin that a wider filter took in later; they are copied, too."""
    tables: tuple[TablePattern, ...] | None = None
    """The patterns that its tables were found by. None: those of its configuration; none at all: they are about to be changed."""
    checkpoint: Position | None = None
    resolved: Position | None = None
    """Every DDL below it is recorded."""
    current_at: datetime | None = None
    """All that the source had committed by this moment, on the owner's clock, is downstream."""
    behind: bool = True
    """Something later may be missing, or nobody has looked since."""
    run: int = 0
    """Counts the starts of its pipelines; reports of an earlier run say nothing about this one."""
    info_version: int
    """The user's change that was taken into account last."""
    epoch: int
    capture: Capture = Capture.CHANGE_STREAM
    """By which the positions were found that stand in etcd: those of two captures are not compared."""
    still: bool = False
    """No pipeline is at work, nor will be before the user's next change."""

    @property
    def copy_starts(self) -> frozenset[Position]:
        """Tables that begin at one of these places are copied first."""
        return self.taken_in_at if self.copied_from is None else self.taken_in_at | {self.copied_from}

    def lag(self, now: datetime) -> timedelta | None:
        """How old the oldest write may be that is not downstream: nothing while nothing is left. None before it has begun."""
        if self.checkpoint is None:
            return None
        age = max(now - (self.current_at or self.checkpoint.ts.to_datetime()), timedelta(0))
        return age if self.behind or age > CURRENT_FOR else timedelta(0)

    def follows(self, configuration: Configuration) -> bool:
        """Whether its tables are those that the configuration wants: nothing may run before."""
        return self.tables is None or self.tables == configuration.filter.tables


@dataclass(frozen=True, slots=True, kw_only=True)
class Barrier:
    """Up to where processors may replicate: `position`, and lower for the tables a DDL holds."""

    epoch: int
    position: Position
    held: Mapping[TableId, Position] = field(default_factory=dict)

    def of(self, table: TableId) -> Position:
        return self.held.get(table, self.position)


class DdlState(StrEnum):
    """pending -> executing -> done, or pending -> skipped."""

    PENDING = "pending"
    EXECUTING = "executing"
    DONE = "done"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What a DDL touches: ids at the source and names downstream. Two scopes that meet are ordered."""

    tables: frozenset[TableId] = frozenset()
    apart: frozenset[TableId] = frozenset()
    """Touched too, but with no node when the DDL runs: views, and a table that enters the filter."""
    names: frozenset[TableName] = frozenset()
    databases: frozenset[str] = frozenset()
    """Downstream databases touched as a whole, by dropDatabase: each name in them is touched."""

    def meets(self, other: Scope) -> bool:
        return bool(
            (self.tables | self.apart) & (other.tables | other.apart)
            or self.names & other.names
            or self.databases & other.databases
            or any(name.db in self.databases for name in other.names)
            or any(name.db in other.databases for name in self.names)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedTable:
    """What stands downstream under one name."""

    uuid: str | None
    """32 hex digits; a view has none."""
    options: Document
    indexes: tuple[Document, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """The downstream as it was just before a DDL; a name with nothing under it maps to None."""

    tables: Mapping[TableName, ObservedTable | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class DdlRecord:
    """One DDL on its way downstream. A `done` or `skipped` record *is* the schema change."""

    event: DdlEvent
    scope: Scope
    disposition: Disposition = Disposition.APPLY
    state: DdlState = DdlState.PENDING
    before: Observation | None = None
    background: bool = False
    """An index build that runs beside the rows: it holds no table, but keeps its order among the DDLs it meets."""
    note: str = ""
    seen_at: datetime
    executing_at: datetime | None = None
    done_at: datetime | None = None

    @property
    def position(self) -> Position:
        return self.event.position

    @property
    def open(self) -> bool:
        return self.state in (DdlState.PENDING, DdlState.EXECUTING)


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignedTable:
    """From where a node begins with a table; `copy`: its documents are to be copied first, unless `snapshot/<table>` says they are."""

    start: Position
    copy: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """The tables of one node. Those also in `leaving` it gives up: it begins nothing more of them and reports where it stopped.

    A table here that is not leaving, and was not here or was leaving, begins at its `start`: another node may have had it since.
    """

    tables: Mapping[TableId, AssignedTable] = field(default_factory=dict)
    leaving: frozenset[TableId] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveRequest:
    """A user wants a table on that node. The owner deletes it when it is done, or can not be."""

    node: NodeId


class CopyStage(StrEnum):
    """copying -> done, or copying -> restart -> copying."""

    COPYING = "copying"
    DONE = "done"
    """The table's rows are as if they had been replicated from the beginning, its indexes are built."""
    RESTART = "restart"
    """A DDL came in between: the target's table is empty and complete; the copy begins anew at `start` when that DDL is done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyRecord:
    """How far the initial copy of one table is. While it exists, what stands in the target under the table's name is ours."""

    start: Position
    """Where the copy began: what it reads is no older, and the table's changes count from here."""
    stage: CopyStage
    chunks: int = 0
    whole: bool = False
    """Read in one, in natural order: a table whose keys this process cannot order as the server does, or whose order counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedChunk:
    """What was read holds everything up to and including `after`, nothing later than `until`; in between, who knows.

    They are equal for a snapshot.
    """

    after: ClusterTime
    until: ClusterTime
    documents: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyPart:
    """Some successive chunks of a copy: where each ends, None for the last, and what became of it.

    Copies of 10,000 chunks are split over several values, so that a finished chunk costs a small write.
    """

    uppers: tuple[Document | None, ...]
    copied: tuple[CopiedChunk | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyProgress:
    documents: int = 0
    bytes: int = 0
    chunks_done: int = 0
    chunks: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RowCounts:
    """What became of rows that did not simply go in, since the changefeed began."""

    skipped: int = 0
    """Replayed changes that did not fit a newer row; one that is replayed again counts again."""
    repaired: int = 0
    """Rows that had diverged, and were written as they are at the source."""
    rejected: int = 0
    """Rows that the target refused; they are in the dead-letter collection."""

    def plus(self, other: RowCounts) -> RowCounts:
        return RowCounts(
            skipped=self.skipped + other.skipped,
            repaired=self.repaired + other.repaired,
            rejected=self.rejected + other.rejected,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionReport:
    """How far one node has come, under which assignment and barrier (etcd revisions of those keys).

    `checkpoint` holds for all its tables but the `exceptions`. `released` are the tables it gave up, each with the place
    where it stopped; it names them until the assignment no longer does.
    """

    run: int
    """The changefeed's run that the node takes part in; 0 once its pipelines stand still."""
    barrier_rev: int
    assignment_rev: int
    checkpoint: Position
    exceptions: Mapping[TableId, Position] = field(default_factory=dict)
    released: Mapping[TableId, Position] = field(default_factory=dict)
    copies: Mapping[TableId, CopyProgress] = field(default_factory=dict)
    error: ErrorReport | None = None
    rows: RowCounts = field(default_factory=RowCounts)
    """By this node, as long as it has had the changefeed."""
    flowing: bool = False
    """Rows in scope have come lately: every move of the barrier is worth hearing of soon."""

    def of(self, table: TableId) -> Position:
        return self.exceptions.get(table, self.checkpoint)
