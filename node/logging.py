"""`set_up`: a node logs one line for each event to standard error, as JSON for machines or in columns for people."""

from __future__ import annotations

import logging
import sys

import structlog
from structlog.typing import Processor

from node.configuration import LogFormat


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
