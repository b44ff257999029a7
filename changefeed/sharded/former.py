"""`Silence`, `LeftTables`: what is known of a shard that was removed from a source. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

from changefeed.errors import SourceUnavailable
from changefeed.table import TableId, TableName


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """It does not answer. `left`: how long it is still waited for."""

    error: SourceUnavailable
    left: timedelta

    @property
    def over(self) -> bool:
        """Whether the shard is gone."""
        return self.left <= timedelta()

    def told(self, why: str) -> SourceUnavailable:
        minutes = max(1, round(self.left.total_seconds() / 60))
        return SourceUnavailable(
            f"{why}, and it does not answer: {self.error}; start it again until the changefeed is past that time. In {minutes} min it counts as "
            "gone for good: the tables that it may have had are then lost, and have to be copied anew"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftTables:
    """What it may have had at a time: `uuids` of sharded tables, and the `databases` whose unsharded ones it may have had. `all`: nobody knows.

    Of sharded tables that were dropped since, the names are known: `dropped`. So are those that only have another name now, which `named` has.
    """

    uuids: frozenset[TableId] = frozenset()
    databases: frozenset[str] = frozenset()
    dropped: frozenset[TableName] = frozenset()
    named: frozenset[TableId] = frozenset()
    all: bool = False

    def may_have(self, name: TableName, uuids: Iterable[TableId]) -> bool:
        """`uuids`: all that the table has had."""
        of_table = frozenset(uuids)
        ended = name in self.dropped and self.named.isdisjoint(of_table)
        return self.all or ended or name.db in self.databases or not self.uuids.isdisjoint(of_table)
