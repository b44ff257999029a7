"""`set_up`: a process logs one line for each event to standard error, as JSON for machines or in columns for people.

A node's Spark workers log in the form of their node, which sets the variable in their environment (`node/process.py`).

Whatever Python would write there by itself is logged too: warnings, and exceptions that end a thread. No line contains a secret
(`credentials.redaction`), and no traceback contains the values of variables.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from typing import Any, TextIO, cast

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from credentials.redaction import redacted

VARIABLE = "SLUICE_LOG_FORMAT"

_log = structlog.get_logger()


class LogFormat(StrEnum):
    CONSOLE = "console"
    JSON = "json"


class _StandardError:
    """A line that cannot be written, as on a full disk, is lost: what it tells of must go on."""

    def write(self, text: str) -> None:
        with suppress(OSError):
            sys.stderr.write(text)

    def flush(self) -> None:
        with suppress(OSError):
            sys.stderr.flush()


def set_up(format: LogFormat, least: int = logging.INFO) -> None:
    """Must be called once, before the first log line."""
    renderer: Processor = (
        structlog.processors.JSONRenderer(sort_keys=True)
        if format is LogFormat.JSON
        else structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
            _redacted_line,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(least),
        logger_factory=structlog.WriteLoggerFactory(cast("TextIO", _StandardError())),
        cache_logger_on_first_use=True,
    )
    warnings.showwarning = _warned
    threading.excepthook = _thread_died


def _redacted_line(logger: WrappedLogger, method: str, line: EventDict) -> str:  # noqa: ARG001 - structlog determines them
    return redacted(str(line))


def _warned(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: object = None,  # noqa: ARG001
    line: object = None,  # noqa: ARG001
) -> None:
    _log.warning("library_warned", kind=category.__name__, text=str(message), at=f"{filename}:{lineno}")


def _thread_died(died: threading.ExceptHookArgs) -> None:
    name = died.thread.name if died.thread is not None else ""
    _log.error("thread_died", thread=name, exc_info=(died.exc_type, died.exc_value, died.exc_traceback))


class Interruption:
    """An error that recurs at every tick: it is logged once when it begins, and once when it is over. For one thread.

    `begins` and `ends` are the names of the two events in the log.
    """

    def __init__(self, log: Any, begins: str, ends: str, monotonic: Callable[[], float] | None = None) -> None:
        self._log = log
        self._begins = begins
        self._ends = ends
        self._monotonic = monotonic or time.monotonic
        self._since: float | None = None

    def occurred(self, error: Exception, **facts: object) -> None:
        if self._since is None:
            self._since = self._monotonic()
            self._log.warning(self._begins, error=str(error), **facts)

    def over(self) -> None:
        if self._since is not None:
            seconds, self._since = self._monotonic() - self._since, None
            self._log.info(self._ends, seconds=round(seconds, 1))
