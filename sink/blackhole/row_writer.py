"""`BlackholeRowWriter`: takes every row and keeps none, to measure what comes before a sink."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Self

from sink.row import RowChange, Unfinished, Write, WriteResult


class BlackholeRowWriter:
    def begin(self, unfinished: Unfinished) -> Self:  # noqa: ARG002 - nothing ever waits
        return self

    def prepare(self, changes: Sequence[RowChange], *, replay: bool) -> Write:  # noqa: ARG002 - nothing is there to be replayed upon
        result = WriteResult(bytes=sum(change.size for change in changes))
        result.applied.update(map(attrgetter("type"), changes))
        return lambda: result

    def settle(self) -> WriteResult:
        return WriteResult()

    def close(self) -> None:
        """Nothing was opened."""
