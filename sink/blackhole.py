"""`BlackholeSink`: a sink that accepts everything and stores nothing, to measure the stages before a sink."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from changefeed.cluster_time import ClusterTime
from changefeed.records.ddl import DdlRecord, Observation
from sink.ddl import DdlApplier, DownstreamDdl, Skip
from sink.row import AskedRows, RowChange, Sole, TargetTable, Unfinished, Write, WriteResult
from sink.sink import DocumentLoader, Sink, TaskTerms


class BlackholeSink(Sink):
    def ddl(self) -> BlackholeDdlApplier:
        return BlackholeDdlApplier()

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


class BlackholeDocumentLoader(DocumentLoader):
    def load(self, documents: Sequence[bytes], read_ts: ClusterTime) -> None:
        """Discards the documents."""


class BlackholeDdlApplier(DdlApplier):
    def apply(self, ddl: DownstreamDdl, before: Observation, record: DdlRecord | None = None) -> str:  # noqa: ARG002 - it has no state to compare
        return ddl.note if isinstance(ddl, Skip) else ""
