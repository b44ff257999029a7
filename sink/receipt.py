"""`Receipt`: what a task wrote that cannot be seen yet; `Commit`: what makes it visible; `Committer`: the protocol that does. Pure.

A sink that needs a commit returns receipts from its tasks. The processor commits those of a window before it moves a checkpoint. A sink
whose rows are visible as soon as they are written, such as MongoDB, returns none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from changefeed.cluster_time import ClusterTime
from changefeed.position import Position, Window
from changefeed.table import TableId, TableName, TableSchema


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """A durable file of messages. `crc32` is of its bytes as they are stored."""

    name: str
    rows: int
    bytes: int
    crc32: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyReceipt:
    """Documents of a table that were read between two times, for the copy that began at `start`."""

    table: TableId
    start: Position
    after: ClusterTime
    until: ClusterTime
    files: tuple[Receipt, ...]


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
