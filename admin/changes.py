"""`Changes`: wakes a stream of the admin API when etcd's content has changed, or whether this node can write to etcd has.

It wakes a stream at most a few times a second, and every few seconds without a change: what is shown may depend on the time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

from admin.cluster_reader import ClusterReader
from changefeed.lifecycle import ErrorReport


class Changes:
    """The changes for one call. They end with the call, so that its thread becomes free, and when the server stops."""

    def __init__(
        self,
        reader: ClusterReader,
        context: Any,
        stopping: threading.Event,
        ended: Callable[[], None],
        every: timedelta = timedelta(milliseconds=250),
        again: timedelta = timedelta(seconds=5),
    ) -> None:
        self._reader = reader
        self._stopping = stopping
        self._ended = ended
        self._every = every.total_seconds()
        self._again = again.total_seconds()
        self._seen: tuple[int, ErrorReport | None] | None = None
        self._over = threading.Event()
        if not context.add_callback(self._over.set):
            self._over.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended()

    def wait(self) -> bool:
        """Returns at once the first time, then after the next change; False when the call or the server has ended."""
        if self._seen is not None:
            self._over.wait(self._every)
        again_at = time.monotonic() + self._again
        while not self._over.is_set() and not self._stopping.is_set():
            now = self._reader.mirror.view().revision, self._reader.serving.unwritable()
            if now != self._seen or time.monotonic() >= again_at:
                self._seen = now
                return True
            self._over.wait(self._every)
        return False
