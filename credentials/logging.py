"""`set_up`: a process logs one line for each event to standard error, as JSON for machines or in columns for people. `set_levels`: what it logs, while it runs.

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
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import StrEnum
from types import FrameType
from typing import Any, TextIO, cast

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from changefeed.errors import ConfigurationError
from changefeed.printable import printable
from credentials.redaction import redacted

VARIABLE = "SLUICE_LOG_FORMAT"
_AGAIN_SECONDS = 60.0
ROOMS = (
    *("admin", "cli", "console", "coordination", "credentials", "node", "owner"),
    *("processor", "schema_store", "sink", "sluice_client", "source", "verify"),
)
_OTHERS = ""
_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
_CRITICAL = 50

_newest: deque[str] = deque(maxlen=2_000)
_levels: dict[str, int] = {_OTHERS: _LEVELS["info"]}

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
    _levels[_OTHERS] = least
    renderer: Processor = (
        structlog.processors.JSONRenderer(sort_keys=True)
        if format is LogFormat.JSON
        else structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
    )
    structlog.configure(
        processors=[
            _wanted,
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            *((_printable_words,) if format is LogFormat.CONSOLE else ()),
            renderer,
            _redacted_line,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
        logger_factory=structlog.WriteLoggerFactory(cast("TextIO", _StandardError())),
        cache_logger_on_first_use=True,
    )
    warnings.showwarning = _warned
    threading.excepthook = _thread_died


def levels() -> dict[str, str]:
    """By module, `` for all others."""
    names = {number: name for name, number in _LEVELS.items()}
    return {module: names[level] for module, level in sorted(_levels.items())}


def set_levels(wanted: Mapping[str, str]) -> None:
    """Those of other modules stay. A module without a level has again that of what is above it."""
    if unknown := sorted(set(wanted.values()) - {*_LEVELS, ""}):
        raise ConfigurationError([f"found the level {unknown[0]!r}; allowed are {', '.join(_LEVELS)}"])
    if strange := next((each for each in wanted if each and each.partition(".")[0] not in ROOMS), None):
        raise ConfigurationError(
            [f"found the module {strange!r}; write one of {', '.join(ROOMS)}, or one in them, such as owner.ddl"]
        )
    for module, level in wanted.items():
        if level:
            _levels[module] = _LEVELS[level]
        elif module:
            _levels.pop(module, None)


def newest_lines() -> list[str]:
    return list(_newest)


def _wanted(logger: WrappedLogger, method: str, line: EventDict) -> EventDict:  # noqa: ARG001 - structlog determines them
    """The module that logs is looked for only while some module has a level of its own."""
    level = _LEVELS.get(method, _CRITICAL)
    if level < (_levels[_OTHERS] if len(_levels) == 1 else _level_of(_calling_module())):
        raise structlog.DropEvent
    return line


def _level_of(module: str) -> int:
    while module and module not in _levels:
        module = module.rpartition(".")[0]
    return _levels[module]


def _calling_module() -> str:
    frame: FrameType | None = sys._getframe()  # noqa: SLF001 - Python's own way to ask for it
    while frame is not None and frame.f_globals["__name__"].partition(".")[0] in ("structlog", "credentials"):
        frame = frame.f_back
    return str(frame.f_globals["__name__"]) if frame is not None else ""


def _printable_words(logger: WrappedLogger, method: str, line: EventDict) -> EventDict:  # noqa: ARG001 - as below
    """A name could draw on the terminal of who reads the log. What has spaces or line breaks is quoted by the renderer."""
    words = {key: value for key, value in line.items() if isinstance(value, str) and not any(map(str.isspace, value))}
    return {**line, **{key: printable(value) for key, value in words.items()}}


def _redacted_line(logger: WrappedLogger, method: str, line: EventDict) -> str:  # noqa: ARG001 - structlog determines them
    _newest.append(shown := redacted(str(line)))
    return shown


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
    """An error that recurs at every tick: it is logged when it begins, each minute while it lasts, and when it is over. For one thread.

    `begins` and `ends` are the names of the two events in the log.
    """

    def __init__(self, log: Any, begins: str, ends: str, monotonic: Callable[[], float] | None = None) -> None:
        self._log = log
        self._begins = begins
        self._ends = ends
        self._monotonic = monotonic or time.monotonic
        self._since: float | None = None
        self._said = 0.0

    def occurred(self, error: Exception, **facts: object) -> None:
        now = self._monotonic()
        if self._since is None:
            self._since = self._said = now
            self._log.warning(self._begins, error=str(error), **facts)
        elif now - self._said >= _AGAIN_SECONDS:
            self._said = now
            self._log.warning(self._begins, error=str(error), seconds=round(now - self._since), **facts)

    def over(self) -> None:
        if self._since is not None:
            seconds, self._since = self._monotonic() - self._since, None
            self._log.info(self._ends, seconds=round(seconds, 1))
