"""`Sink`: the port through which a changefeed uses its sink, whatever kind that is. `sink.opening` opens one.

    who                      calls
    the checks before start  check, obstacles
    the owner                claim, ddl, marks, leftovers, open_letters, principals, sync_target
    the processor            committer, if the sink has `commit_seconds`
    a task of Spark          confirm, check, writer, loader, ddl, copy_log, forget_letters

A sink is opened for one `life`, which differs for each changefeed that was ever created, even under one id, and with the `permit` of an owner's
term or a task: it raises, or returns no time, when nothing may be written any more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol, TypeAlias

from changefeed.cluster_time import ClusterTime
from changefeed.documents.row_key import KeyRange
from changefeed.errors import InvariantError
from changefeed.position import Position
from changefeed.records.status import LetterTotals
from changefeed.records.sync_point import PartResult, SyncPoint
from changefeed.table import TableId, TableName, TableSchema
from changefeed.table_layout import TableLayout
from changefeed.users import PrincipalChanges, Principals
from sink.ddl import DdlApplier
from sink.receipt import CommitCounts, Committer, CopyEnd, Receipt
from sink.row import FetchRow, RowWriter, TargetTable, Turns

Permit: TypeAlias = Callable[[], float]
"""The seconds for which a command may still take effect. It raises if there are none, or returns none."""

ARRIVES_WITHIN = timedelta(seconds=3)
"""What was sent under a permit reaches the sink within this time, or never. So long after the end of a permit another one may write."""

NamedTables: TypeAlias = Sequence[tuple[TableSchema, TableName]]
"""Tables with their names downstream."""


class DocumentLoader(Protocol):
    """Loads one table in its initial copy; runs in a Spark task and raises the same errors as a `RowWriter`.

    A chunk is cleared before it is loaded: an earlier attempt may have left documents in it that the source has deleted since, and
    those deletes are not replicated again.
    """

    def empty(self) -> bool:
        """Whether the table has no documents that could be cleared, or does not exist."""
        return True

    def clear(self, range: KeyRange) -> int:  # noqa: ARG002
        """Removes every document of the range and returns their number."""
        return 0

    def load(self, documents: Sequence[bytes], read_ts: ClusterTime) -> None:
        """All documents are durable when it returns, unless `finish` has receipts. `read_ts`: no document is older; messages and dead letters show it."""
        ...

    def finish(self) -> tuple[Receipt, ...]:
        """What has to be committed for the loaded documents to be seen, and is durable now."""
        return ()


class CopyLog(Protocol):
    """Tells readers of messages how the copy of a table gets on."""

    def begin(self, tables: NamedTables) -> None:
        """Their rows follow. May be repeated."""
        ...

    def emptied(self, table: TableId, name: TableName, at: Position) -> None:
        """The table is empty from there, and is copied again."""
        ...

    def copied(self, end: CopyEnd) -> None: ...


class Marks(Protocol):
    """For one owner's term. `mark` is called with rising positions, and waits for the sink."""

    def mark(
        self, at: Position, behind: Mapping[TableId, Position], tables: Iterable[TableName], committed: CommitCounts
    ) -> None:
        """`behind`: tables that are not as far, each with its own position. `tables`: the names downstream of all tables. `committed`: all commits
        with something of before the mark.
        """
        ...


class Sweeper(Protocol):
    """Waits for the sink. `gone`: whether the node of this epoch is."""

    def end(self, gone: Callable[[int], bool]) -> int:
        """Ends the commits of nodes that are gone. Returns of how many."""
        ...

    def sweep(self, gone: Callable[[int], bool]) -> int:
        """Removes what gone nodes wrote and never committed. Returns the number of removed files."""
        ...


class PrincipalTarget(Protocol):
    """The users and roles of a sink. Its methods wait for it."""

    def read(self, roles: frozenset[str]) -> Principals: ...
    def apply(self, changes: PrincipalChanges) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Marked:
    """The sink has been marked at `target_ts`: what was acknowledged before is there then."""

    target_ts: ClusterTime
    newer: frozenset[TableId]
    """Tables with rows that are newer than the point."""
    refused: frozenset[TableId]
    """Tables with rows that the sink refuses."""


class SyncTarget(Protocol):
    """The records of sync points. Its methods wait for the sink."""

    def mark(self, ts: ClusterTime) -> Marked:
        """`ts`: the point, in the source's time."""
        ...

    def record(self, point: SyncPoint, keep: timedelta) -> None:
        """Says for good that both sides are equal there; removes what is older than `keep`. May be repeated."""
        ...

    def compared(self, point: SyncPoint, compared: PartResult) -> None:
        """Puts into the record what a comparison at the point has found. May be repeated."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFacts:
    """What a sink's DDL needs to know of the source. Both wait for the source."""

    release: Callable[[], tuple[int, int]]
    layout_of: Callable[[TableSchema], TableLayout | None]
    """How the source shards a table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskTerms:
    """Under which terms a Spark task writes."""

    epoch: int
    """That of the task's node."""
    turns: Turns | None = None
    fetch: FetchRow | None = None
    """Without it no row is read from the source, so none is repaired."""
    several_shards: bool = False
    """Whether two of the rows that are read may have one `_id`, on two shards."""


class Sink(Protocol):
    """What a kind of sink says nothing about is as here: it stores rows as they come, and has nothing else."""

    every_change: bool = False
    """It takes each change by itself, with what the source says about it, and a copy apart from the changes. Otherwise it takes their effect: changes of a
    row may become one, and what a copy has read already may be left out.
    """
    commit_seconds: int | None = None
    """How long a window spans at least, and is committed then. None: rows are seen when they are written."""

    @property
    def whole_keys(self) -> bool:
        """Whether rows are found by their whole keys, not by `_id` alone. Waits for the sink."""
        return False

    def check(self) -> None:
        """Raises if it cannot be reached."""
        return

    def obstacles(self, tables: Collection[TableName]) -> Iterator[str]:  # noqa: ARG002 - here and below: for who overrides it
        """Why a changefeed with these tables cannot begin here. `tables`: their names downstream."""
        return iter(())

    def claim(self, at: Position, tables: NamedTables) -> None:  # noqa: ARG002
        """Makes the sink this changefeed's. When it begins there, with its first tables. If that fails, it is called again, for a later place."""
        return

    def confirm(self) -> None:
        """Raises if the sink is not this changefeed's."""
        return

    def ddl(self) -> DdlApplier: ...

    def copy_log(self) -> CopyLog | None:
        """None: copies are seen by their rows alone."""
        return None

    def marks(self) -> Marks | None:
        """None: the sink has no watermarks."""
        return None

    def leftovers(self) -> Sweeper | None:
        """None: nothing is left of what was not committed."""
        return None

    def open_letters(self, before: LetterTotals) -> LetterTotals:  # noqa: ARG002
        """How many rows are refused. `before`: the last result. Waits for the sink."""
        return LetterTotals()

    def forget_letters(self, table: TableId) -> None:  # noqa: ARG002
        """Drops the letters of a table that is about to be copied: they are about rows of an earlier copy."""
        return

    def principals(self) -> PrincipalTarget | None:
        """None: the sink has no users."""
        return None

    def sync_target(self) -> SyncTarget | None:
        """None: it cannot be read as of a time of the past."""
        return None

    def writer(self, task: TaskTerms) -> RowWriter: ...

    def loader(self, table: TargetTable, task: TaskTerms, *, once: bool, shared: bool = False) -> DocumentLoader:
        """`once`: no document may be sent twice. `shared`: other tables of the source have this name downstream, too."""
        ...

    def committer(self, epoch: int) -> Committer:
        """Only of a sink with `commit_seconds`."""
        raise InvariantError(f"{type(self).__name__}: epoch {epoch} wants to commit, and it needs no commit")
