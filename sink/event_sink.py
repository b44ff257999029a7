"""`EventSink`: the parts of an event sink: of files or Kafka."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from changefeed.position import Position
from changefeed.table import TableId, TableName, TableSchema
from sink.ddl import DdlApplier
from sink.load import DocumentLoader
from sink.receipt import Committer, CopyEnd
from sink.row import RowWriter, TargetTable

NamedTables = Sequence[tuple[TableSchema, TableName]]
"""Tables with their names downstream."""


class EventDdl(DdlApplier, Protocol):
    """Says to a sink of messages what becomes of tables."""

    def begin(self, tables: NamedTables) -> None:
        """Their rows follow. May be repeated."""
        ...

    def recopy(self, table: TableId, name: TableName, at: Position) -> None:
        """The table is empty from there, and is copied again."""
        ...

    def copied(self, end: CopyEnd) -> None: ...


class EventMarks(Protocol):
    """For one owner's term. `mark` is called with rising positions."""

    def mark(self, at: Position, behind: Mapping[TableId, Position], tables: Iterable[TableName]) -> None:
        """`behind`: tables that are not as far, each with its own position. `tables`: the names downstream of all tables."""
        ...


class EventLeftovers(Protocol):
    def sweep(self, gone: Callable[[int], bool]) -> int: ...


class EventSink(Protocol):
    """`life`: differs for each changefeed that was ever created, even under one id. `permit` raises when nothing may be written any more."""

    commit_seconds: int | None
    """How long a window spans at least, and is committed then. None: rows are seen when they are written."""

    def check(self) -> None:
        """Raises if it cannot be reached."""
        ...

    def obstacles(self, tables: Collection[TableName]) -> Iterator[str]:
        """Why a changefeed with these tables cannot begin here. `tables`: their names downstream."""
        ...

    def claim(self, life: str, at: Position, tables: NamedTables, permit: Callable[[], object]) -> None:
        """Makes the sink this changefeed's. When it begins there, with its first tables. If that fails, it is called again, for a later place."""
        ...

    def confirm(self, life: str) -> None: ...

    def writer(self, epoch: int, permit: Callable[[], object]) -> RowWriter:
        """`epoch`: that of the task's node."""
        ...

    def loader(self, epoch: int, table: TargetTable, permit: Callable[[], object]) -> DocumentLoader: ...

    def committer(self, life: str, epoch: int) -> Committer: ...

    def ddl(self, life: str, permit: Callable[[], object]) -> EventDdl: ...

    def marks(self, life: str, permit: Callable[[], object]) -> EventMarks: ...

    def leftovers(self, life: str) -> EventLeftovers | None:
        """None: nothing is left of what was not committed."""
        ...
