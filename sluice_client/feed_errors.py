"""The errors that readers of a changefeed share with its servers; `changefeed/errors.py` draws the whole tree. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import ClassVar, Self

from sluice_client.position import TableId


class SluiceError(Exception):
    """The message gives identity, expected, observed, remedy. A released `code` never changes."""

    code: ClassVar[str] = "error"
    table: TableId | None = None
    """The only table that the error concerns. None: it may concern all."""

    def about(self, table: TableId) -> Self:
        self.table = table
        return self


class RetryableError(SluiceError):
    code = "retryable"

    def __init__(self, message: str, *, retry_after: timedelta = timedelta(seconds=1)) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class SinkUnavailable(RetryableError):
    code = "sink_unavailable"


class SinkRefused(RetryableError):
    code = "sink_refused"


class PermanentError(SluiceError):
    code = "permanent"


class RowRejected(PermanentError):
    code = "row_rejected"


class ConfigurationError(SluiceError):
    """Lists every problem found, so that a user corrects them all at once."""

    code = "configuration_invalid"

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


class NotFoundError(SluiceError):
    code = "not_found"


class InvariantError(SluiceError):
    code = "invariant_violated"
