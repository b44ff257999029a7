"""`RowChange`: one row change on its way into a sink; `RowWriter`: the protocol that writes row changes to a sink. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeAlias

from changefeed.cluster_time import ClusterTime
from changefeed.documents.row_key import key_text, row_key
from changefeed.event import RowTally, RowType
from changefeed.position import Position
from changefeed.table import TableId, TableName
from sink.dependence import Dependence
from sink.receipt import Receipt

_UNVERSIONED = Position(ClusterTime(0, 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetTable:
    """Where the rows of one version of a table go, shared by all its row changes.

    `ordered`: rows of different keys depend on each other (a unique index, a capped collection, a collation of `_id`), so a sink
    applies them one after the other in the given order, or outside of replays in any that `dependence` allows. `shard_key`: the fields besides `_id` by which the target shards the table.
    `version`: where this version of its schema begins.
    """

    id: TableId
    source: TableName
    name: TableName
    version: Position = _UNVERSIONED
    ordered: bool = False
    dependence: Dependence | None = None
    shard_key: tuple[str, ...] = ()

    def __hash__(self) -> int:
        """Of the id alone: that of all fields was 40% of what a message costs, and a table has few versions at a time."""
        return hash(self.id)


class RowDetails(NamedTuple):
    """What only messages show of a change."""

    wall_ms: int | None = None
    """The source's clock."""
    transaction: tuple[str, int] | None = None
    """The session's UUID in hex, and the number of the transaction within it."""
    before: bytes | None = None
    after: bytes | None = None
    """The whole document after an update; an insert or replace has it anyway."""
    images: str | None = None
    """Which of "before" and "after" there are: both, before, after, missing. None: nobody asked for them."""


class RowChange(NamedTuple):
    """One change of one document, in raw BSON. It is a tuple to be cheap: there is one for each event."""

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
    details: RowDetails | None = None
    """None where the sink keeps documents."""

    @property
    def position(self) -> Position:
        return Position(ClusterTime.from_int(self.time), self.token.decode())

    @property
    def row(self) -> tuple[TableId, bytes]:
        return self.table.id, row_key(self.key)

    def as_now(self, found: SourceRow) -> RowChange:
        """The whole row, as the source has it now."""
        kind = RowType.DELETE if found.document is None else RowType.REPLACE
        return self._replace(type=kind, document=found.document, update=None)

    @property
    def size(self) -> int:
        return len(self.key) + len(self.document or self.update or b"")

    def __str__(self) -> str:
        return f"{self.type} of {self.table.source} {key_text(self.key)} at {self.position}"


class SourceRow(NamedTuple):
    """`document` is None when the source has none; it is no newer than `read_ts`."""

    document: bytes | None
    read_ts: ClusterTime
    ignored: bool = False
    """The filter leaves out such a document."""


FetchRow: TypeAlias = Callable[[RowChange], SourceRow | None]
"""Reads the source's document with the change's key, in the state after the change or newer; None when its table was dropped."""


_MOST_SAMPLES = 5


@dataclass(slots=True, kw_only=True)
class WriteResult:
    """The result of a batch, and, added up, of a window. Each change is durable, skipped for a stated reason, or in the dead-letter collection.

    A sink leaves `applied` and `bytes` of the tally out: only the caller knows the changes before folding.
    """

    tally: RowTally = field(default_factory=RowTally)
    samples: list[str] = field(default_factory=list)
    """Some of the changes whose rows were repaired from the source, or that the sink refused because of their content, as text."""
    unsettled: set[TableId] = field(default_factory=set)
    """Tables with rows that wait for later changes, because the target is ahead. The caller writes their changes again, together with later ones."""
    blocked: dict[TableId, str] = field(default_factory=dict)
    """Of these, the tables with rows whose unique values other rows have, each with what the sink said of one."""
    ahead: dict[TableId, ClusterTime] = field(default_factory=dict)
    """Tables with rows that were read at the source, each with the latest time of one: changes up to that time may be applied already."""
    writing: dict[TableId, float] = field(default_factory=dict)
    """The seconds that the sink took for each table's changes."""
    receipts: list[Receipt] = field(default_factory=list)
    """What is durable, but not seen before it is committed."""
    waits: int = 0
    """Small commands, and waits for the sink's majority. They cost the sink the same each time."""
    waited: float = 0.0
    """The seconds that they took in all."""

    def add(self, other: WriteResult) -> None:
        self.tally.add(other.tally)
        self.samples = (self.samples + other.samples)[:_MOST_SAMPLES]
        self.unsettled |= other.unsettled
        self.blocked |= other.blocked
        for table, time in other.ahead.items():
            self.read_at(table, time)
        for table, seconds in other.writing.items():
            self.took(table, seconds)
        self.receipts += other.receipts
        self.waits += other.waits
        self.waited += other.waited

    def took(self, table: TableId, seconds: float) -> None:
        self.writing[table] = self.writing.get(table, 0.0) + seconds

    def read_at(self, table: TableId, time: ClusterTime) -> None:
        self.ahead[table] = max(time, self.ahead.get(table, time))

    def busiest(self, seconds: float) -> TableId | None:
        """The table for which the sink was busy for most of these seconds."""
        if not self.writing:
            return None
        table, busy = max(self.writing.items(), key=lambda each: each[1])
        return table if busy > max(seconds, sum(self.writing.values())) / 2 else None

    def was_repaired(self, change: RowChange, reason: str) -> None:
        self.tally.repaired += 1
        self._sample(change, reason)

    def was_refused(self, change: RowChange, reason: str) -> None:
        self.tally.rejected += 1
        self._sample(change, reason)

    def _sample(self, change: RowChange, reason: str) -> None:
        if len(self.samples) < _MOST_SAMPLES:
            self.samples.append(f"{change}: {reason}")


Unfinished: TypeAlias = Callable[[TableId], bool]
"""Whether the target may be ahead even of a run's last change of a table."""


Write: TypeAlias = Callable[[], WriteResult]
"""Writes prepared changes. It is called once, and in the order of `prepare`."""


class SoleTable(NamedTuple):
    """A table whose rows are written by one run alone, from `start` on. A row without a change in the run is as it was at `start`."""

    table: TargetTable
    start: Position

    def row(self, key: bytes) -> RowChange:
        start = self.start
        return RowChange(self.table, RowType.UPDATE, key, None, None, start.ts.to_int(), start.token.encode())


Sole: TypeAlias = Callable[[TableId], SoleTable | None]
"""None for a table that the run does not write, or does not write alone, or does not bring forward."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedRows:
    """Rows that a verification found different, of a table that the run alone writes."""

    place: SoleTable
    keys: Sequence[bytes]
    removes: bool
    """A row that the source does not have is removed. Not where it may be another table's, or may have been there before."""


class Turns(Protocol):
    """How the running task leaves the sink to others."""

    @property
    def shared(self) -> bool:
        """Whether it does. Then its commands should be short."""
        ...

    def rest(self, busy_seconds: float) -> None:
        """After a command that took so long."""
        ...


class RowRun(Protocol):
    """The changes of one job, in one task.

    `prepare` takes changes in order and does the part that does not need the target; it may run while earlier changes are being written.
    The function that it returns writes them, and returns when each change is durable or waits: a row may have to wait for a later change
    of another row when the target is ahead. `settle` ends the run: after it no change waits. Both keep the order of changes of one key,
    and of all changes of an `ordered` table, except for changes that wait. With `replay`, these changes and later ones may have been
    applied before.

    Writing raises `SinkUnavailable` when retries did not help, `RowRejected` for a row that the sink refuses, `Divergence`
    for a row that does not fit, `FencedError` when the permit has ended. After any error, the same changes may be written again
    with `replay`.
    """

    def prepare(self, changes: Sequence[RowChange], *, replay: bool) -> Write: ...

    def settle(self) -> WriteResult: ...


class RowWriter(Protocol):
    """Applies row changes to a sink; runs in a Spark task. A run keeps no state of earlier runs.

    With `sole`, the run also tries refused rows again that a user has named, of the tables that `sole` gives. At its end it makes the
    `asked` rows as the source has them.
    """

    def begin(self, unfinished: Unfinished, sole: Sole | None = None, asked: Sequence[AskedRows] = ()) -> RowRun: ...

    def close(self) -> None:
        """No run begins any more. A client that its process keeps stays open."""
        ...
