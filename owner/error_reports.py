"""`ErrorReports`: the reports of errors that are seen again at each tick."""

from __future__ import annotations

from datetime import UTC, datetime

from changefeed.errors import SluiceError
from changefeed.lifecycle import ErrorReport


class ErrorReports:
    """Returns the same report as long as the error is the same, so that reporting it at each tick changes nothing."""

    def __init__(self) -> None:
        self._before: dict[tuple[str, str], ErrorReport] = {}
        self._now: dict[tuple[str, str], ErrorReport] = {}

    def next_tick(self) -> None:
        self._before, self._now = self._now, {}

    def of(self, error: SluiceError) -> ErrorReport:
        known = error.code, str(error)
        self._now[known] = self._before.get(known) or ErrorReport.of(error, datetime.now(UTC))
        return self._now[known]
