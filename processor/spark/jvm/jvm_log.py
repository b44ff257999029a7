"""`JvmLog`: what Spark's driver writes to standard error, as lines of the node's own log, where that is JSON.

26/11/23 04:10:00 WARN Utils: Your hostname    Spark        an event spark_logged, with level, logger and text
WARNING: Using incubator modules               Java         an event spark_wrote, with the text; a line of a stack trace too
{"event": "row_deviated", ...}                 a worker     as it is: the lines of workers go through Spark's driver
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
from typing import IO

import structlog

_SPARKS = re.compile(r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d (?P<level>[A-Z]+) (?P<logger>[^:]+): (?P<text>.*)")
_LEVELS = {"FATAL": "critical", "ERROR": "error", "WARN": "warning"}

_log = structlog.get_logger()


class JvmLog:
    """`stderr` is for the process of the JVM. Its reader ends when the JVM and all its children have closed it."""

    def __init__(self) -> None:
        read_from, self.stderr = os.pipe()
        lines = os.fdopen(read_from, encoding="utf-8", errors="replace")
        threading.Thread(target=_follow, args=(lines,), name="spark-log", daemon=True).start()

    def close(self) -> None:
        """This process's copy, once the JVM has its own."""
        os.close(self.stderr)


def _follow(lines: IO[str]) -> None:
    with lines:
        for line in lines:
            tell(line.rstrip())


def tell(line: str) -> None:
    if not line:
        return
    if _of_a_worker(line):
        sys.stderr.write(f"{line}\n")
    elif (said := _SPARKS.fullmatch(line)) is not None:
        write = getattr(_log, _LEVELS.get(said["level"], "info"))
        write("spark_logged", logger=said["logger"], text=said["text"])
    else:
        _log.info("spark_wrote", text=line)


def _of_a_worker(line: str) -> bool:
    try:
        found = json.loads(line)
    except ValueError:
        return False
    return isinstance(found, dict) and "event" in found
