"""`BlackholeRowWriter`: accepts every row and stores none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from sink.row import AskedRows, RowChange, Sole, Unfinished, Write, WriteResult


class BlackholeRowWriter:
    def begin(self, unfinished: Unfinished, sole: Sole | None = None, asked: Sequence[AskedRows] = ()) -> Self:  # noqa: ARG002 - no row ever waits, none is refused, none differs
        return self

    def prepare(self, changes: Sequence[RowChange], *, replay: bool) -> Write:  # noqa: ARG002 - there are no rows to replay onto
        return WriteResult

    def settle(self) -> WriteResult:
        return WriteResult()

    def close(self) -> None:
        """A blackhole opens nothing."""
