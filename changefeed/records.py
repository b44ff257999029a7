"""The values in etcd, by which owner, processors and the admin API communicate.

`coordination.layout` defines their keys and encoding. Ranges are half-open: a position in a record is always the first one
*not* covered.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NewType

from changefeed.capture import Capture
from changefeed.cluster_time import ClusterTime
from changefeed.config.configuration import Configuration
from changefeed.config.tables.filter import Disposition
from changefeed.config.tables.pattern import TablePattern
from changefeed.config.tables.pattern_list import PatternList
from changefeed.config.tables.routes import Routes
from changefeed.documents.document import Document
from changefeed.event import DdlEvent
from changefeed.lifecycle import ErrorReport, Lifecycle
from changefeed.position import Position
from changefeed.row_tally import RowTally
from changefeed.sharded.history import ShardedHistory
from changefeed.table import TableId, TableName, TableSize

NodeId = NewType("NodeId", str)
"""Name of a node plus its session's lease: a node that lost its session returns under a new id."""

ChangefeedId = NewType("ChangefeedId", str)


class Role(StrEnum):
    OWNER = "owner"
    PROCESSOR = "processor"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeHealth:
    """Whether a processor can run tables at all. What it cannot reach is said for each changefeed, in its reports."""

    ready: bool
    """Its Spark has run a job, and can run the next one."""
    error: ErrorReport | None = None
    """Why it is not ready. None while its Spark starts for the first time, and while it has to prove itself after an error."""


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
    health: NodeHealth | None = None
    """None: it has no Spark, and counts as ready."""

    @property
    def takes_tables(self) -> bool:
        return Role.PROCESSOR in self.roles and not self.draining and self.ready

    @property
    def ready(self) -> bool:
        return self.health is None or self.health.ready


class DesiredState(StrEnum):
    RUNNING = "running"
    PAUSED = "paused"
    REMOVED = "removed"


class Reroute(StrEnum):
    """How tables come to the names that changed routes give them downstream."""

    RENAME = "rename"
    """The target's tables are renamed."""
    COPY = "copy"
    """The tables are copied anew, to the new names. What has the old names stays as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangefeedInfo:
    """What the user asked for. `version` counts the user's changes."""

    configuration: Configuration
    desired: DesiredState = DesiredState.RUNNING
    version: int = 1
    created_at: datetime
    resume_from: Position | None = None
    capture: Capture = Capture.CHANGE_STREAM
    """As decided, never `auto`."""
    capture_reason: str = ""
    """The reason of that decision, as text."""
    leaves_stopped: bool = False
    """It may finish while tables of it are stopped."""
    reroute: Reroute | None = None
    """What the user said to changed routes. None: no table changes its name."""
    source_id: str = ""
    """The id of the replica set or the sharded cluster that it reads. Empty: it could not be read."""
    sink_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterTotals:
    """The rows that the target refuses, as the owner last counted their dead letters."""

    count: int = 0
    bytes: int = 0
    since: datetime | None = None
    """When the target refused the first of them, on its clock."""


CURRENT_FOR = timedelta(seconds=30)
"""How long an owner's statement stays valid that nothing is left to replicate."""
_MEASURED_FOR = timedelta(seconds=3)
"""How long an owner's measurement of the lag is shown as it is. An owner writes its status once a second while it makes progress."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangefeedStatus:
    """The state of a changefeed, by its owner. Without a checkpoint it has not started: its tables are not known yet."""

    lifecycle: Lifecycle = field(default_factory=Lifecycle)
    start: Position | None = None
    """Where it started: its base schemas are valid from here."""
    copied_from: Position | None = None
    """The same position, if it started with an initial copy of the existing tables."""
    taken_in_at: frozenset[Position] = frozenset()
    """Where the tables start that a wider filter added later. They are copied too."""
    tables: tuple[TablePattern, ...] | None = None
    """The patterns by which its tables were found. None: those of its configuration. Empty: the tables are about to be changed."""
    routes: Routes | None = None
    """The routes by which its tables have their names downstream. None: those of its configuration, until the owner has recorded them."""
    checkpoint: Position | None = None
    resolved: Position | None = None
    """Every DDL below it is recorded."""
    current_at: datetime | None = None
    """Everything that the source had committed by this moment, on the owner's clock, is downstream."""
    seen_at: datetime | None = None
    """When the owner last looked at the source, on the same clock. None: it has not yet."""
    behind: bool = True
    """Whether rows that the source has committed since may be missing downstream."""
    overdue_seconds: int | None = None
    """With a delay: by how much the oldest change that is not downstream is later than that, when the owner last looked."""
    run: int = 0
    """Counts the starts of its pipelines. Reports of an earlier run do not count for this one."""
    info_version: int
    """The `version` of the user's last change that was taken into account."""
    epoch: int
    capture: Capture = Capture.CHANGE_STREAM
    """The capture of the positions in etcd. Positions of two captures are not compared."""
    still: bool = False
    """No pipeline runs, and none will before the user's next change."""
    letters: LetterTotals = field(default_factory=LetterTotals)
    copying_since: datetime | None = None
    """Since when tables are being copied, on the owner's clock. None: no table is."""

    def lag(self, now: datetime) -> timedelta | None:
        """The greatest possible age of a write that is not downstream; zero while none is left. None before the changefeed has started.

        With a delay only what is beyond it counts.
        """
        if self.checkpoint is None:
            return None
        if self.overdue_seconds is not None and self.seen_at is not None:
            unseen = now - self.seen_at
            return timedelta(seconds=self.overdue_seconds) + (unseen if unseen >= _MEASURED_FOR else timedelta(0))
        since = self.current_at or self.checkpoint.ts.to_datetime()
        age = max(now - since, timedelta(0))
        if self.seen_at is not None and now - self.seen_at < _MEASURED_FOR:
            age = max(self.seen_at - since, timedelta(0))
        return age if self.behind or age > CURRENT_FOR else timedelta(0)

    def as_found(self, configuration: Configuration) -> Configuration:
        """With the tables and routes that it has now: those of an update count once the owner has taken the tables in and out."""
        tables = PatternList.of(self.tables or configuration.filter.tables)
        routes = configuration.routes if self.routes is None else self.routes
        if (tables, routes) == (configuration.filter.tables, configuration.routes):
            return configuration
        patterns = configuration.filter.model_copy(update={"tables": tables})
        return configuration.model_copy(update={"filter": patterns, "routes": routes})

    def follows(self, configuration: Configuration) -> bool:
        """Whether its tables are those of the configuration, under their names downstream. Nothing is started before they are."""
        same_tables = self.tables is None or self.tables == configuration.filter.tables
        return same_tables and not self.reroutes(configuration)

    def reroutes(self, configuration: Configuration) -> bool:
        return self.routes is not None and self.routes != configuration.routes


@dataclass(frozen=True, slots=True, kw_only=True)
class Barrier:
    """Up to where processors may replicate: `position`, or a lower one for a table that a DDL holds."""

    epoch: int
    position: Position
    history: ShardedHistory | None = None
    """Where the windows below it stand at the shards of a source. None: it is not sharded, or is read through a router."""
    held: Mapping[TableId, Position] = field(default_factory=dict)
    """Not in etcd: it follows from the open DDLs there (`holding`)."""

    def holding(self, records: Iterable[DdlRecord]) -> Barrier:
        """With the tables that open DDLs hold, each at the first one that touches it. A DDL at or after the barrier holds nothing yet."""
        return replace(self, held=held_by(records, self.position))

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
    """What a DDL touches: ids at the source and names downstream. DDLs whose scopes meet run in stream order."""

    tables: frozenset[TableId] = frozenset()
    apart: frozenset[TableId] = frozenset()
    """Also touched, but not assigned to a node when the DDL runs: views, and a table that enters the filter."""
    names: frozenset[TableName] = frozenset()
    databases: frozenset[str] = frozenset()
    """Downstream databases that a dropDatabase touches, with every name in them."""
    ended: frozenset[TableId] = frozenset()
    """Those of `tables` that end with the DDL."""

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
    """What exists downstream under one name."""

    uuid: str | None
    """32 hex digits. None for a view."""
    options: Document
    indexes: tuple[Document, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """The downstream as it was just before a DDL. A name that did not exist maps to None."""

    tables: Mapping[TableName, ObservedTable | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetRename:
    """A rename of a target's table for changed routes. The key names the table as the routes of the status do."""

    name: TableName
    to: TableName
    before: Observation
    """The two names, as they were at the target before the rename."""
    done: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DdlRecord:
    """One DDL on its way downstream. A `done` or `skipped` record *is* the schema change."""

    event: DdlEvent
    scope: Scope
    disposition: Disposition = Disposition.APPLY
    state: DdlState = DdlState.PENDING
    refused: ErrorReport | None = None
    """Why it does not run before a user resumes one of its tables, or skips it."""
    before: Observation | None = None
    drops: bool = False
    """A rename of a stopped table that ends later at the source. The table is dropped downstream, now."""
    background: bool = False
    """An index build that runs while rows are applied: it holds no table, but keeps its order among the DDLs that its scope meets."""
    taken: bool = False
    """It brings its table under a name downstream that another table has, and no route asks for that: the table stops there, and is copied anew when
    the name is free. `refused` says so. Nothing of the table's later DDLs is sent to the target."""
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


def held_by(records: Iterable[DdlRecord], resolved: Position) -> dict[TableId, Position]:
    """The position of the first open DDL that touches a table, for each table that one holds."""
    held: dict[TableId, Position] = {}
    holding = (record for record in records if record.open and not record.background and record.position < resolved)
    for record in sorted(holding, key=lambda record: record.position.order):
        for table in record.scope.tables:
            held.setdefault(table, record.position)
    return held


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignedTable:
    """Where a node starts a table. With `copy` it copies the documents first, unless `snapshot/<table>` says that they are copied."""

    start: Position
    copy: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """The tables of one node. It gives up those that are also in `leaving`: it starts no more work for them and reports where it stopped.

    A table that is not leaving, and was absent or leaving before, starts at its `start`: another node may have had it since.
    """

    tables: Mapping[TableId, AssignedTable] = field(default_factory=dict)
    leaving: frozenset[TableId] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveRequest:
    """A user's request to move a table to that node. The owner deletes it when the move is done or impossible."""

    node: NodeId


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairRequest:
    """Rows of one table that a verification found different. The table's node writes each as the source has it, then deletes the request."""

    id: str
    keys: tuple[str, ...]
    """The `documentKey`s as BSON, in base64. Few: a verification asks for the next rows when these are done."""
    asked_at: datetime

    @property
    def rows(self) -> list[bytes]:
        return [b64decode(key) for key in self.keys]


@dataclass(frozen=True, slots=True, kw_only=True)
class Straggler:
    """A table that the changefeed's checkpoint does not wait for, and may have passed: it is stopped, or a DDL that waits for a user holds it,
    or it is catching up after that.
    """

    at: Position
    """Everything of the table before it is downstream, and so is every DDL of it that is done. The table may be further."""
    stopped: bool = False
    """Nothing of it is written until a user resumes it."""
    error: ErrorReport | None = None
    """Why it was stopped. None: a user stopped it."""
    moved_from: NodeId | None = None
    """The node on which it failed for a reason that may be the node's. If it fails on another one too, it is stopped."""
    since: datetime


class TableVerb(StrEnum):
    STOP = "stop"
    RESUME = "resume"
    RECOPY = "recopy"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRequest:
    """A user's request about one table. The owner deletes it when it has obeyed, or cannot obey."""

    verb: TableVerb


@dataclass(frozen=True, slots=True, kw_only=True)
class SkipRequest:
    """A user's request to go on without a refused DDL. The owner deletes it."""

    position: Position


class CopyStage(StrEnum):
    """copying -> done, or copying -> restart -> copying."""

    COPYING = "copying"
    DONE = "done"
    """The table's rows are as if replicated from the beginning, and its indexes are built."""
    RESTART = "restart"
    """A DDL interrupted the copy: the target's table is empty and has its indexes. The copy restarts at `start` when that DDL is done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyFloor:
    """What was shown as copied before chunks had to be copied again. Progress that is shown does not fall below it."""

    copied: TableSize
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyRecord:
    """The progress of one table's initial copy. While it exists, the collection of that name in the target belongs to Sluice."""

    start: Position
    """Where the copy started: it reads nothing older, and the table's changes apply from here."""
    stage: CopyStage
    chunks: int = 0
    whole: bool = False
    """Read as one chunk, in natural order: for a table whose keys Sluice cannot order as the server does, or whose natural order matters."""
    size: TableSize | None = None
    """The source's table when the copy started."""
    floor: CopyFloor | None = None
    """Of a copy that is done: what was copied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedChunk:
    """The chunk holds every change up to and including `after`, and none later than `until`. It may hold some of those between.

    For a snapshot, both are equal.
    """

    after: ClusterTime
    until: ClusterTime
    documents: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkPiece:
    upper: Document | None
    copied: CopiedChunk | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyPart:
    """Successive chunks of a copy: the end of each (None for the last), and its result (None until it is copied).

    A copy of 10,000 chunks is split over several values, so that a finished chunk costs a small write.
    """

    uppers: tuple[Document | None, ...]
    copied: tuple[CopiedChunk | None, ...]
    divided: Mapping[int, tuple[ChunkPiece, ...]] = field(default_factory=dict)
    """The pieces of chunks that were divided while they were read, by the chunk's place here. As a whole such a chunk is never copied: an earlier
    release, which does not know pieces, copies it again."""
    floor: CopyFloor | None = None
    """Of the whole copy, when the part was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyRate:
    """Each second, over the last minute in which chunks ended."""

    documents: float = 0.0
    bytes: float = 0.0

    def __add__(self, other: CopyRate) -> CopyRate:
        return CopyRate(documents=self.documents + other.documents, bytes=self.bytes + other.bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyProgress:
    """Of one table. `share`, `documents` and `bytes` never fall, though chunks are copied again; what is left may grow by that."""

    documents: int = 0
    bytes: int = 0
    chunks_done: int = 0
    chunks: int = 0
    left: TableSize = field(default_factory=TableSize)
    share: float = 0.0
    """Of the chunks."""
    rate: CopyRate | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RowCounts:
    """Counts of rows that could not simply be applied, since the changefeed started."""

    skipped: int = 0
    """Replayed changes that did not fit a newer row. A change that is replayed twice counts twice."""
    repaired: int = 0
    """Diverged rows that were overwritten with the source's."""
    rejected: int = 0
    """Rows that the target refused. They are in the dead-letter collection."""

    @classmethod
    def of(cls, tally: RowTally) -> RowCounts:
        return cls(skipped=tally.skipped, repaired=tally.repaired, rejected=tally.rejected)

    def plus(self, other: RowCounts) -> RowCounts:
        return RowCounts(
            skipped=self.skipped + other.skipped,
            repaired=self.repaired + other.repaired,
            rejected=self.rejected + other.rejected,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionReport:
    """The progress of one node, with the etcd revisions of the assignment and the barrier that it obeys.

    `checkpoint` holds for all its tables but the `exceptions`. `released` are the tables it gave up, each with the position
    where it stopped. It reports them for as long as the assignment names them.
    """

    run: int
    """The changefeed's run that the node takes part in. 0 when its pipelines have stopped."""
    barrier_rev: int
    assignment_rev: int
    checkpoint: Position
    exceptions: Mapping[TableId, Position] = field(default_factory=dict)
    released: Mapping[TableId, Position] = field(default_factory=dict)
    copies: Mapping[TableId, CopyProgress] = field(default_factory=dict)
    copying: bool = False
    """It has tables whose initial copy has not ended."""
    copy_rate: CopyRate | None = None
    """Of all its tables in copy, as of the last chunk."""
    error: ErrorReport | None = None
    failed: Mapping[TableId, ErrorReport] = field(default_factory=dict)
    """Tables that cannot go on, each for a reason of its own. This node starts no more work for them in this run."""
    retried: Mapping[TableId, ErrorReport] = field(default_factory=dict)
    """Tables that fail again and again while others of this node go on. They are tried again, each with pauses of its own."""
    late: Mapping[TableId, ErrorReport] = field(default_factory=dict)
    """Some of the tables whose window, or whose step of a copy, takes long."""
    stops: Mapping[TableId, int] = field(default_factory=dict)
    """Its stopped tables of which nothing is being written any more, with the revisions of the stops that it obeys."""
    rows: RowCounts = field(default_factory=RowCounts)
    """Counted by this node since it takes part in the changefeed."""
    flowing: bool = False
    """Rows in scope have arrived lately, so the owner publishes the barrier more often."""
    reaches: bool = False
    """While the changefeed has an error, it has found that it reaches source and target: it has nothing to do, or its windows fail nevertheless."""

    def of(self, table: TableId) -> Position:
        return self.exceptions.get(table, self.checkpoint)
