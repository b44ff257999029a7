"""Row changes on their way into a sink, and the protocol by which a sink takes them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeAlias

from changefeed.cluster_time import ClusterTime
from changefeed.documents.key_text import key_text
from changefeed.event import RowType
from changefeed.position import Position
from changefeed.table import TableId, TableName


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetTable:
    """Where the rows of one version of a table go, shared by all its row changes.

    `ordered`: rows of different keys depend on each other (a unique index, a capped collection's insert order), so a sink
    applies them one after the other as they come. `sharded`: a row is found by its whole key, not by its `_id` alone.
    """

    id: TableId
    source: TableName
    name: TableName
    ordered: bool = False
    sharded: bool = False


class RowChange(NamedTuple):
    """One change of one document, in raw BSON: as cheap as a tuple, since there is one for each event."""

    table: TargetTable
    type: RowType
    key: bytes
    """The `documentKey`."""
    document: bytes | None
    """The whole document, of an insert or a replace."""
    update: bytes | None
    """The `updateDescription`, of an update."""
    time: int
    """The cluster time's 64-bit form; with `token` it is the event's position."""
    token: bytes

    @property
    def position(self) -> Position:
        return Position(ClusterTime.from_int(self.time), self.token.decode())

    @property
    def size(self) -> int:
        return len(self.key) + len(self.document or self.update or b"")

    def __str__(self) -> str:
        return f"{self.type} of {self.table.source} {key_text(self.key)} at {self.position}"


class SourceRow(NamedTuple):
    """`document` is None when there is none; it is no newer than `read_ts`."""

    document: bytes | None
    read_ts: ClusterTime


FetchRow: TypeAlias = Callable[[RowChange], SourceRow | None]
"""The source's document of the change's key, as the change left it or newer; None when its table is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deviation:
    """A change that did not fit what stood downstream."""

    change: RowChange
    reason: str


@dataclass(slots=True, kw_only=True)
class WriteResult:
    """What became of a batch. Everything in it is durable, skipped for a stated reason, or in the dead-letter collection."""

    applied: Counter[RowType] = field(default_factory=Counter)
    bytes: int = 0
    duplicates: int = 0
    """Inserts of documents that were there already, and were replaced."""
    skipped: int = 0
    """Replayed changes that no longer fitted a newer document."""
    retries: int = 0
    divergences: list[Deviation] = field(default_factory=list)
    """Repaired from the source."""
    rejected: list[Deviation] = field(default_factory=list)
    """Refused by the sink for what they are; they stand in the dead-letter collection."""
    unsettled: set[TableId] = field(default_factory=set)
    """Tables with rows that wait for something the target is ahead with. Their changes are to be written again, with more of them."""
    ahead: dict[TableId, ClusterTime] = field(default_factory=dict)
    """Tables with repaired rows, and the newest time that one of them may be of: changes until then may have been applied."""

    def add(self, other: WriteResult) -> None:
        self.applied.update(other.applied)
        self.bytes += other.bytes
        self.duplicates += other.duplicates
        self.skipped += other.skipped
        self.retries += other.retries
        self.divergences += other.divergences
        self.rejected += other.rejected
        self.unsettled |= other.unsettled
        for table, time in other.ahead.items():
            self.repaired(table, time)

    def repaired(self, table: TableId, time: ClusterTime) -> None:
        self.ahead[table] = max(time, self.ahead.get(table, time))


Unfinished: TypeAlias = Callable[[TableId], bool]
"""Whether the target may be ahead even of a run's last change of a table."""


Write: TypeAlias = Callable[[], WriteResult]
"""Writes changes that are prepared; once, and in the order in which they were."""


class RowRun(Protocol):
    """The changes of one job, in one task.

    `prepare` takes changes in order and does what does not need the target, also while what was prepared before is written. What it returns
    writes them, and returns when all of them are durable, or wait: rows may have to wait for others that the target is ahead with.
    `settle` ends the run: then nothing waits. Both keep the order of changes of one key, and of all changes of a table
    that is `ordered`, as far as they do not wait. With `replay`, changes may have been applied before, and later ones too.

    Writing raises `SinkUnavailable` when waiting did not help, `RowRejected` for a row that the sink will not take, `Divergence`
    for one that does not fit, `FencedError` when its time is over. Whatever it raised, the same changes may be written again
    with `replay`.
    """

    def prepare(self, changes: Sequence[RowChange], *, replay: bool) -> Write: ...

    def settle(self) -> WriteResult: ...


class RowWriter(Protocol):
    """Applies row changes to a sink; runs in a Spark task. What an earlier run left behind is nothing to the next."""

    def begin(self, unfinished: Unfinished) -> RowRun: ...

    def close(self) -> None: ...
