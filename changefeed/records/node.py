"""A node: its record in etcd, the tables that the owner assigns to it, and its report.

An assignment and a report stand under the changefeed and the node.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from enum import StrEnum
from typing import NewType

from changefeed.event import RowTally
from changefeed.lifecycle import ErrorReport
from changefeed.position import Position
from changefeed.records.copy import CopyProgress, CopyRate
from changefeed.table import TableId

NodeId = NewType("NodeId", str)
"""Name of a node plus its session's lease: a node that lost its session returns under a new id."""


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
class RowCounts:
    """Counts of changes of rows, since the changefeed started."""

    skipped: int = 0
    """Replayed changes that did not fit a newer row. A change that is replayed twice counts twice."""
    repaired: int = 0
    """Diverged rows that were overwritten with the source's."""
    rejected: int = 0
    """Rows that the target refused. They are in the dead-letter collection."""
    applied: int = 0
    """All that were applied. A change that is replayed counts again."""

    @classmethod
    def of(cls, tally: RowTally) -> RowCounts:
        applied = sum(tally.applied.values())
        return cls(skipped=tally.skipped, repaired=tally.repaired, rejected=tally.rejected, applied=applied)

    def plus(self, other: RowCounts) -> RowCounts:
        return RowCounts(**{each.name: getattr(self, each.name) + getattr(other, each.name) for each in fields(self)})


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
    committed: Mapping[int, int] = field(default_factory=dict)
    """How many commits a sink that needs them has of this node at least, by its epoch. All that the positions above rest on are counted."""
    reaches: bool = False
    """While the changefeed has an error, it has found that it reaches source and target: it has nothing to do, or its windows fail nevertheless."""

    def of(self, table: TableId) -> Position:
        return self.exceptions.get(table, self.checkpoint)
