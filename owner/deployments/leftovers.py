"""`Leftovers`: has an event sink cleared now and then of what gone nodes wrote and never committed."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol, TypeAlias

import structlog

from changefeed.errors import SluiceError
from changefeed.records.requests import ChangefeedId
from owner.background import Background

_EVERY_SECONDS = 600.0

_log = structlog.get_logger()

Gone: TypeAlias = Callable[[int], bool]


class Sweeper(Protocol):
    def sweep(self, gone: Gone) -> int:
        """Waits for the sink. Returns how many files were removed."""
        ...


class Leftovers:
    """For one owner's term of one changefeed. What cannot be removed now is removed later."""

    def __init__(
        self,
        id: ChangefeedId,
        background: Background,
        sweeper: Sweeper | None,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log = _log.bind(changefeed=id)
        self._background = background
        self._sweeper = sweeper
        self._monotonic = monotonic
        self._next_at = 0.0

    def look(self, gone: Gone) -> None:
        """Never waits. `gone`: whether the node of this epoch is."""
        sweeper = self._sweeper
        if sweeper is None or self._monotonic() < self._next_at:
            return
        try:
            removed = self._background.take("leftovers", lambda: sweeper.sweep(gone))
        except SluiceError as error:
            self._log.warning("leftovers_not_removed", error=str(error), code=error.code)
        else:
            if removed is None:
                return
            if removed:
                self._log.info("leftovers_removed", files=removed)
        self._next_at = self._monotonic() + _EVERY_SECONDS
