"""`redacted_line`: the last of structlog's processors, which gets what the renderer has made."""

from __future__ import annotations

from structlog.typing import EventDict, WrappedLogger

from credentials.redaction import redacted


def redacted_line(logger: WrappedLogger, method: str, line: EventDict) -> str:  # noqa: ARG001 - structlog determines them
    return redacted(str(line))
