"""What the tasks of a job are given and what they return: `JobSpec`, `JobContext`, `JobOutcome`, all small enough to be pickled. Pure.

A spec is one job's own. A context is shared by the jobs of one changefeed. Contexts are broadcast, in two parts: a base with nearly all
tables, which seldom changes, and the rest, which changes with each DDL. A worker identifies both by their keys and loads only what it does not
have:

    context    base              the rest                              a worker loads
    f/1        f/base/1, 7 MB    -                                     both
    f/2        f/base/1          orders has an index since 8.4         the rest
    f/3        f/base/1          the same, and shop.new was created    the rest
    f/4        f/base/2, 7 MB    -                                     both

A context contains nothing open.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import timedelta
from math import isqrt
from typing import TypeVar

from changefeed.capture import Capture
from changefeed.config.configuration import Configuration
from changefeed.lifecycle import ErrorReport
from changefeed.position import Position
from changefeed.records.requests import ChangefeedId, RepairRequest
from changefeed.source_history import SourceHistory
from changefeed.table import TableId, TableName
from coordination.task_fence import Fence
from credentials.secret_files import SecretFiles
from processor.lanes.lanes import LaneJob
from processor.task.copied_ranges import CopiedRanges
from schema_store.schema_base import NO_BASE, NO_TEXTS, PackedTexts, SchemaBase
from schema_store.versions import SchemaVersions
from sink.row import WriteResult

_FEW = 64

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """The tables, and the source's table names, of open DDLs. The schema store may not know the tables of events after such a DDL yet."""

    tables: frozenset[TableId] = frozenset()
    names: frozenset[TableName] = frozenset()
    unexplained: frozenset[TableName] = frozenset()
    """The names of DDLs that wait for a user since nobody could explain them. Whatever has such a name from then on is copied, some day."""
    uuids: Mapping[TableId, TableId] = field(default_factory=dict)
    """The tables that get a UUID by such a DDL, or come back with it, by that UUID. These UUIDs are among `tables`, too."""
    known_from: Position | None = None
    """An event before this position whose table is unknown is dropped: the filter did not want the table then, or no table but the stragglers still
    needs the event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """One job of one lane. The tables of the default lane are in the context, not here."""

    attempt: str
    """The key in etcd that revokes the attempt. The job's tasks look for it."""
    job: LaneJob
    default: bool
    held: Held = field(default_factory=Held)
    copied: Mapping[TableId, CopiedRanges] = field(default_factory=dict)
    """What the initial copies of tables in copy contain already."""
    density: int | None = None
    """Bytes per second of cluster time in the lane's last window."""
    repairs: Mapping[TableId, RepairRequest] = field(default_factory=dict)
    """Rows to be repaired at the window's end, if one task has it alone."""
    alone: bool = False
    """One task, however wide the window: it may not take the slots of the other tables' windows, or its changes wait for a limit."""
    history: SourceHistory | None = None
    """That of the barrier that the job obeys."""
    limit_share: float = 1.0
    """Of the changefeed's `apply_limit`, for the executor that runs it."""
    sink_share: float = 1.0
    """For which part of the time it may keep the sink busy. Less than all only for one that is `alone`."""
    settled: bool = False
    """Its window may take long: its share has settled."""

    def whole(self, tables: AbstractSet[TableId]) -> LaneJob:
        """The job with the context's tables, if it is a job of the default lane."""
        return replace(self.job, tables=tables) if self.default else self.job


@dataclass(slots=True, kw_only=True)
class JobOutcome:
    """The result of a window, or of one task's part of it. With an `error`, any part of it may have been applied."""

    rows: WriteResult = field(default_factory=WriteResult)
    """Its unsettled tables keep their checkpoint. Its receipts have to be committed before the window counts."""
    repaired: set[str] = field(default_factory=set)
    """The repair requests that were carried out. A row that the target refuses is not as the source has it, even so."""
    error: ErrorReport | None = None
    took: timedelta = timedelta()
    held: int = 0
    """Bytes of its events, as they were read."""
    slices: int = 1
    ended: Position | None = None
    """The window held or took too much and ended here, before its end. Everything before it is durable."""
    uneven: bool = False
    """Some rows after `ended` were applied, too."""
    silent_until: Position | None = None
    """The source has no match between the window's end and this position. Set only for a window that is read in one piece."""


def together(parts: Sequence[JobOutcome]) -> JobOutcome:
    """The outcome of a window from those of its buckets. It ends where the first bucket ended."""
    outcome = JobOutcome()
    for part in parts:
        outcome.rows.add(part.rows)
        outcome.held += part.held
        outcome.error = _worse(outcome.error, part.error)
    ends = {part.ended for part in parts}
    outcome.ended = min((ended for ended in ends if ended is not None), default=None)
    outcome.uneven = len(ends) > 1
    return outcome


def _worse(one: ErrorReport | None, other: ErrorReport | None) -> ErrorReport | None:
    """A permanent error takes precedence over a retryable one."""
    if one is None or other is None:
        return one or other
    return other if one.retryable and not other.retryable else one


@dataclass(frozen=True, slots=True, kw_only=True)
class JobContext:
    """Shared by the jobs of one changefeed on one node, until a DDL, an assignment or a user changes it.

    `tables` are those of the default lane.
    """

    key: str
    base_key: str
    changefeed: ChangefeedId
    life: str = ""
    """Differs for each changefeed that was ever created, even under one id."""
    configuration: Configuration
    """Without credentials: Spark keeps a context on its disks. A task reads the connection strings from etcd (`info_key`)."""
    info_key: str
    secret_files: SecretFiles
    """What `${file:...}` in them may name where a task runs."""
    capture: Capture
    schemas: SchemaVersions
    tables: TableSet
    fence: Fence

    @property
    def base(self) -> ContextBase:
        return ContextBase(key=self.base_key, schemas=self.schemas.base, tables=self.tables.base)

    def without_base(self) -> JobContext:
        return replace(self, schemas=self.schemas.over(NO_BASE), tables=self.tables.over(NO_TEXTS))

    def over(self, base: ContextBase) -> JobContext:
        return replace(self, schemas=self.schemas.over(base.schemas), tables=self.tables.over(base.tables))

    def load(self, bases: Mapping[str, ContextBase]) -> JobContext:
        """The whole, for a worker that has its base."""
        return self.over(bases[self.base_key])


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextBase:
    """What many contexts of one changefeed have in common."""

    key: str
    schemas: SchemaBase
    tables: PackedTexts


@dataclass(frozen=True, slots=True, eq=False)
class TableSet(AbstractSet[TableId]):
    """The tables of a default lane, as a packed set that seldom changes and the difference from it.

    The base is shared by many sets, and each process loads it once (`ContextBase`).
    """

    base: PackedTexts = NO_TEXTS
    without: frozenset[TableId] = frozenset()
    """Tables of the base only."""
    beside: frozenset[TableId] = frozenset()
    """No tables of the base."""

    @classmethod
    def of(cls, tables: Iterable[TableId]) -> TableSet:
        return cls(PackedTexts.of(tables))

    @classmethod
    def _from_iterable(cls, tables: Iterable[T]) -> AbstractSet[T]:
        """What the operators of sets return."""
        return frozenset(tables)

    def __contains__(self, table: object) -> bool:
        return table in self.beside or (table not in self.without and table in self.base)

    def __iter__(self) -> Iterator[TableId]:
        yield from (TableId(table) for table in self.base if table not in self.without)
        yield from self.beside

    def __len__(self) -> int:
        return len(self.base) - len(self.without) + len(self.beside)

    def over(self, base: PackedTexts) -> TableSet:
        """The same difference from another base: from none for transport, from an equal one after it."""
        return TableSet(base, self.without, self.beside)

    def changed(self, gone: AbstractSet[TableId], come: AbstractSet[TableId]) -> TableSet:
        """With a new base when the difference has become large."""
        without = (self.without | {table for table in gone if table in self.base}) - come
        beside = (self.beside - gone) | {table for table in come if table not in self.base}
        different = TableSet(self.base, without, beside)
        few = len(without) + len(beside) <= max(_FEW, isqrt(len(self.base)))
        return different if few else TableSet.of(different)
