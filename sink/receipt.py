"""`Receipt`, `CopyReceipt`: what a task wrote that cannot be seen yet (they stand with those who read it); `Commit`: what makes it visible; `Committer`: the protocol that does; `CommitCounts`: how many there were. Pure.

A sink that needs a commit returns receipts from its tasks. The processor commits those of a window before it moves a checkpoint. A sink
whose rows are visible as soon as they are written, such as MongoDB, returns none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from changefeed.position import Position, Window
from changefeed.table import TableId, TableName, TableSchema
from sluice_client.manifest import CopyReceipt, Receipt

__all__ = ["Commit", "CommitCounts", "Committer", "CopyEnd", "CopyReceipt", "Receipt"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyEnd:
    """The copy of a table that began at `start` is complete; each change from `at` on fits it. `name`: downstream."""

    table: TableId
    name: TableName
    start: Position
    at: Position


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """`ranges`: every change of these tables in their windows is in `files`, which may hold more. `tables`: the versions that they begin with,
    with their names downstream.
    """

    ranges: Mapping[TableId, Window]
    files: tuple[Receipt, ...] = ()
    copies: tuple[CopyReceipt, ...] = ()
    tables: tuple[tuple[TableSchema, TableName], ...] = ()


class Committer(Protocol):
    """Runs in the processor, in any thread. A commit that is repeated is harmless."""

    def commit(self, commit: Commit) -> None: ...

    @property
    def committed(self) -> Mapping[int, int]:
        """How many commits the sink has of this node at least, by the node's epoch: all that have returned."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitCounts:
    """On how many commits a watermark rests, so that a reader notices when one is missing.

    `counts`: at least so many of these nodes, by their epochs. `ended`: so many nodes are gone whose commits have an end that says so.
    """

    counts: Mapping[int, int] = field(default_factory=dict)
    ended: int = 0
