"""`Watermarks`: tells an event sink how far everything is there. A mark follows a checkpoint that is in etcd, so it is true for ever."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import structlog

from changefeed.errors import SluiceError
from changefeed.position import Position
from changefeed.records.requests import ChangefeedId
from changefeed.table import TableId, TableName
from owner.background import Background

_EVERY_SECONDS = 1.0

_log = structlog.get_logger()


class Marks(Protocol):
    def mark(self, at: Position, behind: Mapping[TableId, Position], tables: Iterable[TableName]) -> None:
        """`behind`: the tables that are not as far. `tables`: the names downstream of all. Waits for the sink."""
        ...


class Watermarks:
    """For one owner's term of one changefeed. A mark that cannot be written is written later: replication does not wait for it."""

    def __init__(self, id: ChangefeedId, background: Background, open_marks: Callable[[], Marks | None]) -> None:
        self._log = _log.bind(changefeed=id)
        self._background = background
        self._marks = open_marks()
        self._writing: tuple[Position, Mapping[TableId, Position]] | None = None
        self._written: tuple[Position, Mapping[TableId, Position]] | None = None
        self._next_at = 0.0

    def look(
        self, checkpoint: Position, behind: Mapping[TableId, Position], tables: Callable[[], Iterable[TableName]]
    ) -> None:
        """`checkpoint` and `behind` are as etcd has them. `tables`: the names downstream of all, as of now. It is called in another thread."""
        marks = self._marks
        if marks is None:
            return
        if self._writing is None:
            if (checkpoint, behind) == self._written or time.monotonic() < self._next_at:
                return
            self._writing = checkpoint, dict(behind)
        writing = self._writing

        def write() -> bool:
            marks.mark(*writing, tables())
            return True

        try:
            if self._background.take(("watermark", writing[0]), write):
                self._written, self._writing = writing, None
                self._next_at = time.monotonic() + _EVERY_SECONDS
        except SluiceError as error:
            self._log.warning("watermark_not_written", error=str(error), code=error.code)
