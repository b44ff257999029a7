"""`set_up`: a process logs one line for each event to standard error, as JSON for machines or in columns for people.

A node's Spark workers log in the form of their node, whose runner sets the variable in their environment (`processor/spark/runner.py`).
"""

from __future__ import annotations

import logging
import sys
from enum import StrEnum

import structlog
from structlog.typing import Processor

VARIABLE = "SLUICE_LOG_FORMAT"


class LogFormat(StrEnum):
    CONSOLE = "console"
    JSON = "json"


def set_up(format: LogFormat) -> None:
    """Must be called once, before the first log line."""
    rendering: list[Processor] = (
        [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(sort_keys=True)]
        if format is LogFormat.JSON
        else [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())]
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *rendering,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
