"""`BlackholeDdlApplier`: accepts every DDL and does nothing."""

from __future__ import annotations

from collections.abc import Iterable

from changefeed.records.ddl import DdlRecord, Observation
from changefeed.table import TableName
from sink.ddl import DownstreamDdl, Skip


class BlackholeDdlApplier:
    def observe(self, names: Iterable[TableName]) -> Observation:
        return Observation(tables=dict.fromkeys(names))

    def apply(self, ddl: DownstreamDdl, before: Observation, record: DdlRecord | None = None) -> str:  # noqa: ARG002 - a blackhole has no state to compare
        return ddl.note if isinstance(ddl, Skip) else ""

    def close(self) -> None:
        """A blackhole opens nothing."""
