"""The DDLs on their way downstream, and the barrier at which tables wait for them. The owner writes both."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Annotated, TypeAlias

from pydantic import GetPydanticSchema

from changefeed.config.tables.filter import Disposition
from changefeed.documents.document import Document
from changefeed.event import DdlEvent
from changefeed.lifecycle import ErrorReport
from changefeed.position import Position
from changefeed.sharded_history import ShardedHistory
from changefeed.source_history import SourceHistory
from changefeed.table import TableId, TableName

_StoredHistory: TypeAlias = Annotated[SourceHistory, GetPydanticSchema(lambda _, of: of(ShardedHistory))]
"""There is one kind of history, whose form in etcd this is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Barrier:
    """Up to where processors may replicate: `position`, or a lower one for a table that a DDL holds."""

    epoch: int
    position: Position
    history: _StoredHistory | None = None
    """Where the windows below it stand at the source. None: in one place, at their own times."""
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
