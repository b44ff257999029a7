"""`StallWatch`: says in the log at which row a task stands, if it stands there for long.

It looks at the stack of the task's thread now and then, so rows pay nothing for it. What it can see is what the loops over rows have in their
hands: a `header` of an event, or a `document` that is copied. A library that does not release the interpreter cannot be looked at; the driver
notices that no answer comes (`processor/overdue.py`).
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

import structlog

from changefeed.documents.row_key import id_alone, key_text
from changefeed.table import TableSchema
from source.raw_row import Header
from source.stream.change_event import table_name

_EVERY_SECONDS = 10.0
_PATIENCE = 6
"""Looks at the same row."""
_OURS = ("changefeed", "processor", "sink", "source")

_log = structlog.get_logger()


@dataclass(slots=True)
class _Task:
    thread: int
    changefeed: str
    row: Header | bytes | None = None
    looks: int = 0


class StallWatch:
    """For one worker process, which runs one task at a time. Its thread starts with the first task: a fork copies none."""

    def __init__(self, *, every: float = _EVERY_SECONDS) -> None:
        self._every = every
        self._task: _Task | None = None
        self._thread: threading.Thread | None = None

    @contextmanager
    def task(self, changefeed: str) -> Iterator[None]:
        self._task = _Task(threading.get_ident(), changefeed)
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="stall-watch", daemon=True)
            self._thread.start()
        try:
            yield
        finally:
            self._task = None

    def _watch(self) -> None:
        while True:
            time.sleep(self._every)
            self.look()

    def look(self) -> None:
        task = self._task
        if task is None:
            return
        frame = sys._current_frames().get(task.thread)  # noqa: SLF001 - documented, for tools like this one
        row, table, at = _standing(frame)
        task.looks = task.looks + 1 if row is not None and row is task.row else 1
        task.row = row
        if row is not None and task.looks == _PATIENCE:
            key = key_text(row.key if isinstance(row, Header) else id_alone(row))
            _log.warning("task_stands_still", changefeed=task.changefeed, table=table, row=key, at=at)


def _standing(frame: FrameType | None) -> tuple[Header | bytes | None, str, str]:
    """The row that the innermost loop over rows has, its table, and the innermost place in our code."""
    row: Header | bytes | None = None
    at = ""
    while frame is not None:
        name, held = str(frame.f_globals.get("__name__", "")), frame.f_locals
        if not at and name.partition(".")[0] in _OURS:
            at = f"{name}:{frame.f_lineno}"
        header, document, schema = held.get("header"), held.get("document"), held.get("schema")
        if row is None and isinstance(header, Header):
            return header, str(table_name(header.ns)), at
        if row is None and isinstance(document, bytes):
            row = document
        if row is not None and isinstance(schema, TableSchema):
            return row, str(schema.name), at
        frame = frame.f_back
    return row, "", at
