"""`Losses`: which tables are lost, and how far nobody may go, when a part of a source's history cannot be read any more."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from changefeed.cluster_time import ClusterTime
from changefeed.errors import HistoryLost, SluiceError
from changefeed.position import Position
from changefeed.source_history import SourceHistory
from changefeed.table import TableId, TableName


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadTable:
    """A table that is not lost. `at` is None if its node has not told it yet; `uuids` are all that it has had.

    One that is not `there` yet begins with a DDL that is not done.
    """

    name: TableName
    at: Position | None
    uuids: Collection[TableId]
    there: bool = True

    def needs(self, until_ts: ClusterTime) -> bool:
        return self.at is None or self.at.ts < until_ts


@dataclass(slots=True)
class Loss:
    """`lost`: why each is, `begin_lost`: tables that are not there yet. `hold`: nothing that the watch shows may be taken yet.

    `gone`: parts of the source that nobody needs any more.
    """

    lost: dict[TableId, HistoryLost] = field(default_factory=dict)
    begin_lost: dict[TableId, HistoryLost] = field(default_factory=dict)
    hold: bool = False
    gone: set[str] = field(default_factory=set)
    error: SluiceError | None = None


class InBackground(Protocol):
    """Runs calls that wait for the source, as the owner's `Background` does."""

    def take(self, key: Hashable, call: Callable[[], Any]) -> Any:
        """Return the answer of the call once, and None until it has one."""
        ...


class Losses(Protocol):
    """For the owner's thread. Never waits: it asks in the background."""

    def look(
        self,
        shown: SourceHistory | None,
        published: SourceHistory | None,
        least: Position | None,
        read: Callable[[], Mapping[TableId, ReadTable]],
    ) -> Loss:
        """`shown`: by the watch. `published`: with the barrier, by which nodes read. `least`: no table that is not lost is before it."""
        ...
