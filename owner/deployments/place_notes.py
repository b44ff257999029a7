"""`PlaceNotes`: has an idle source write a note, so that a DDL of Sluice's own gets a place (`owner/tables/recopy.py`).

    barrier 100.7, nothing newer at the source     no place: `leave` waits
    note @103.1                                    resolved 103.2: 100.8 and later are places

Where Sluice may not write notes, the source's own no-op does the same, ten seconds later at most.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import structlog

from changefeed.errors import SluiceError
from changefeed.records.requests import ChangefeedId
from owner.background import Background

_EVERY_SECONDS = 1.0
"""Two notes are then never of the same second. In one second, a note gives one place, and a recopy needs two."""

_log = structlog.get_logger()


class PlaceNotes:
    """Never waits. `write` does, for the source."""

    def __init__(self, id: ChangefeedId, background: Background, write: Callable[[], None]) -> None:
        self._background = background
        self._write = write
        self._next_at = float("-inf")
        self._asked = False
        self._log = _log.bind(changefeed=id)

    def look(self, *, wanted: bool) -> None:
        """To be called at each tick, so that an answer is not taken for that of a later question."""
        if not self._asked and not (wanted and time.monotonic() >= self._next_at):
            return
        try:
            self._asked = self._background.take("note", self._written) is None
        except SluiceError as error:
            self._asked = False
            self._log.info("note_not_written", error=str(error))
        self._next_at = time.monotonic() + _EVERY_SECONDS

    def _written(self) -> bool:
        self._write()
        return True
