"""`WatchThread`: polls a DDL watch in a thread of its own, so that the owner's tick never waits for the source."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

import structlog

from changefeed.errors import RetryableError, SluiceError
from source.ddl_watch import DdlBatch, DdlWatch

_STOP_SECONDS = 40.0
"""Longer than the longest wait of a poll: the socket's."""

log = structlog.get_logger(__name__)


class WatchThread:
    """Calls `on_batch` and `on_error` in its thread. It goes on after a retryable error and ends after any other."""

    def __init__(
        self, watch: DdlWatch, *, on_batch: Callable[[DdlBatch], None], on_error: Callable[[Exception], None]
    ) -> None:
        self._watch = watch
        self._on_batch = on_batch
        self._on_error = on_error
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ddl-watch", daemon=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """May be called twice. No callback runs after it returns; the stream is closed by its own thread."""
        self._stopping.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(_STOP_SECONDS)

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._step()
        except SluiceError as error:
            self._on_error(error)
        except Exception as error:
            log.exception("ddl_watch_broke")
            self._on_error(error)
        finally:
            self._watch.close()

    def _step(self) -> None:
        try:
            batch = self._watch.poll()
        except RetryableError as error:
            self._on_error(error)
            self._stopping.wait(error.retry_after.total_seconds())
            return
        self._on_batch(batch)
