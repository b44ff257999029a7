"""`Background`: runs calls that wait for a source or a target in threads; the tick reads their answers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial
from typing import Any

import structlog

from changefeed.errors import InvariantError, RetryableError, SluiceError
from owner.workers import Workers

_log = structlog.get_logger()
_THREADS = 4


@dataclass(slots=True)
class _Asked:
    done: bool = False
    answer: Any = None
    error: SluiceError | None = None
    raised: bool = False
    again_deadline: float = 0.0


class Background:
    """For one thread, which starts the calls and takes their answers. `wake` is called from the worker threads."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._lock = threading.Lock()
        self._asked: dict[Hashable, _Asked] = {}
        self._workers = Workers("owner", _THREADS)

    def take(self, key: Hashable, call: Callable[[], Any]) -> Any:
        """Returns the answer of the call once, and None until it has one. Starts the call if it is not running.

        Raises the call's error once, a retryable error until its delay is over. After that the call is started again.
        """
        with self._lock:
            asked = self._asked.get(key)
            if asked is None or (asked.raised and time.monotonic() >= asked.again_deadline):
                asked = self._asked[key] = _Asked()
                self._workers.submit(partial(self._ask, asked, call))
            if not asked.done:
                return None
            if asked.error is not None:
                asked.raised = True
                raise asked.error
            del self._asked[key]
            return asked.answer

    def close(self) -> None:
        """Starts no further call. Does not wait for running calls."""
        self._workers.close()

    def _ask(self, asked: _Asked, call: Callable[[], Any]) -> None:
        answer, error = None, None
        try:
            answer = call()
        except SluiceError as raised:
            error = raised
        except Exception as raised:  # noqa: BLE001  # the edge of a thread: `take` raises the error
            _log.exception("question_broke")
            error = InvariantError(repr(raised))
        delay = error.retry_after.total_seconds() if isinstance(error, RetryableError) else 0.0
        with self._lock:
            asked.answer, asked.error, asked.again_deadline = answer, error, time.monotonic() + delay
            asked.done = True
        self._wake()
