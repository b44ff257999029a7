"""`BlackholeRowWriter`: takes every row and keeps none, to measure what comes before a sink."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from sink.row import RowChange, WriteResult


class BlackholeRowWriter:
    def write(self, changes: Sequence[RowChange], *, replay: bool) -> WriteResult:  # noqa: ARG002 - nothing is there to be replayed upon
        result = WriteResult(bytes=sum(change.size for change in changes))
        result.applied.update(map(attrgetter("type"), changes))
        return result

    def close(self) -> None:
        """Nothing was opened."""
