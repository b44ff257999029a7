"""`BlackholeSink`: a sink that accepts everything and stores nothing, to measure the stages before a sink."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Self

from changefeed.cluster_time import ClusterTime
from changefeed.documents.row_key import KeyRange
from changefeed.errors import InvariantError
from changefeed.position import Position
from changefeed.records.ddl import DdlRecord, Observation
from changefeed.records.status import LetterTotals
from changefeed.table import TableId, TableName
from sink.ddl import DownstreamDdl, Skip
from sink.receipt import Committer, Receipt
from sink.row import AskedRows, RowChange, Sole, TargetTable, Unfinished, Write, WriteResult
from sink.sink import NamedTables, Permit, TaskTerms


class BlackholeSink:
    every_change = False
    takes_late_ddl = True
    commit_seconds: int | None = None
    whole_keys = False

    def check(self) -> None:
        """It is always there."""

    def obstacles(self, tables: Collection[TableName]) -> Iterator[str]:  # noqa: ARG002 - it accepts every table
        return iter(())

    def claim(self, life: str, at: Position, tables: NamedTables, permit: Permit) -> None:
        """It belongs to everybody."""

    def confirm(self, life: str) -> None:
        """As above."""

    def ddl(self, life: str, permit: Permit) -> BlackholeDdlApplier:  # noqa: ARG002 - nothing is written
        return BlackholeDdlApplier()

    def copy_log(self, life: str, permit: Permit) -> None:
        """Nobody reads it."""

    def marks(self, life: str, permit: Permit) -> None:
        """As above."""

    def leftovers(self, life: str) -> None:
        """It keeps nothing."""

    def open_letters(self, before: LetterTotals) -> LetterTotals:  # noqa: ARG002 - it refuses no row
        return LetterTotals()

    def forget_letters(self, table: TableId, permit: Permit) -> None:
        """As above."""

    def principals(self, permit: Permit) -> None:
        """It has no users."""

    def sync_target(self, permit: Permit) -> None:
        """It has no snapshots."""

    def writer(self, task: TaskTerms) -> BlackholeRowWriter:  # noqa: ARG002 - nothing is written
        return BlackholeRowWriter()

    def loader(
        self,
        table: TargetTable,  # noqa: ARG002 - as above
        task: TaskTerms,  # noqa: ARG002
        *,
        once: bool,  # noqa: ARG002
        shared: bool = False,  # noqa: ARG002
    ) -> BlackholeDocumentLoader:
        return BlackholeDocumentLoader()

    def committer(self, life: str, epoch: int) -> Committer:
        raise InvariantError(f"blackhole://: epoch {epoch} of {life} wants to commit, and a blackhole needs no commit")


class BlackholeRowWriter:
    """The writer and its only run."""

    def begin(self, unfinished: Unfinished, sole: Sole | None = None, asked: Sequence[AskedRows] = ()) -> Self:  # noqa: ARG002 - no row ever waits, none is refused, none differs
        return self

    def prepare(self, changes: Sequence[RowChange], *, replay: bool) -> Write:  # noqa: ARG002 - there are no rows to replay onto
        return WriteResult

    def settle(self) -> WriteResult:
        return WriteResult()

    def close(self) -> None:
        """It opens nothing."""


class BlackholeDocumentLoader:
    def empty(self) -> bool:
        return True

    def clear(self, range: KeyRange) -> int:  # noqa: ARG002 - it holds no documents
        return 0

    def load(self, documents: Sequence[bytes], read_ts: ClusterTime) -> None:
        """Discards the documents."""

    def finish(self) -> tuple[Receipt, ...]:
        return ()


class BlackholeDdlApplier:
    def observe(self, names: Iterable[TableName]) -> Observation:
        return Observation(tables=dict.fromkeys(names))

    def apply(self, ddl: DownstreamDdl, before: Observation, record: DdlRecord | None = None) -> str:  # noqa: ARG002 - it has no state to compare
        return ddl.note if isinstance(ddl, Skip) else ""

    def close(self) -> None:
        """It opens nothing."""
