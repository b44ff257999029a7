"""`LetterCount`: how many rows of a changefeed the target refuses, for its users.

It is counted at the start of an owner's term, when a pipeline reports a refusal, and every few seconds while there are any: they end by
themselves, or when a user drops them. A changefeed without letters asks the target for nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import structlog

from changefeed.errors import SluiceError
from changefeed.records.status import LetterTotals
from owner.background import Background

_EVERY_SECONDS = 5.0

_log = structlog.get_logger()


class LetterCount:
    """`count` waits for the target. It gets the last result."""

    def __init__(
        self,
        changefeed: str,
        background: Background,
        count: Callable[[LetterTotals], LetterTotals],
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._monotonic = monotonic
        self._background = background
        self._count = count
        self._log = _log.bind(changefeed=changefeed)
        self._known: LetterTotals | None = None
        self._rejected = -1
        """The refusals that had been reported when it was last counted."""
        self._next_at = float("-inf")

    def look(self, recorded: LetterTotals, rejected: int) -> LetterTotals | None:
        """Never waits. `recorded`: the result in etcd, which may be another owner's. None until it is known."""
        due = rejected != self._rejected or self._known is None or self._known.count > 0
        if not due or self._monotonic() < self._next_at:
            return self._known
        before = self._known or recorded
        try:
            answer = self._background.take("letters", lambda: (rejected, self._count(before)))
        except SluiceError as error:
            self._log.info("letters_not_counted", error=str(error))
            self._next_at = self._monotonic() + _EVERY_SECONDS
            return self._known
        if answer is not None:
            self._rejected, self._known = answer
            self._next_at = self._monotonic() + _EVERY_SECONDS
        return self._known
