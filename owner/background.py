"""`Background`: calls that wait for a source or a target, in threads; `Chore`: one that is made again and again. The tick reads their answers."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

import structlog

from changefeed.errors import InvariantError, RetryableError, SluiceError

_log = structlog.get_logger()
_THREADS = 4

T = TypeVar("T")
Call = Callable[[], None]


@dataclass(slots=True)
class _Asked:
    about: Hashable
    done: bool = False
    answer: Any = None
    error: SluiceError | None = None
    raised: bool = False
    again_deadline: float = 0.0


class Background:
    """For one thread, which starts the calls and takes their answers. `wake` is called from the worker threads."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self.wake = wake
        self._lock = threading.Lock()
        self._asked: dict[Hashable, _Asked] = {}
        self._workers = Workers("owner", _THREADS)

    def now(self) -> float:
        """In monotonic seconds."""
        return time.monotonic()

    def take(self, key: Hashable, call: Callable[[], Any], *, about: Hashable = None) -> Any:
        """Returns the answer of the call once, and None until it has one. Starts the call if it is not running.

        Raises the call's error once, a retryable error until its delay is over. After that the call is started again.

        A call of the same key `about` something else is waited for, since it may be writing, and what it answers is nobody's.
        """
        with self._lock:
            asked = self._asked.get(key)
            if asked is not None and asked.about != about:
                if not asked.done:
                    return None
                asked = None
            if asked is None or (asked.raised and time.monotonic() >= asked.again_deadline):
                asked = self._asked[key] = _Asked(about)
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
        self.wake()


class Chore(Generic[T]):
    """A call that is made again and again, at most every `every_seconds`. For the owner's thread; `tick` never waits.

        tick   the call is started                         nothing is running, it is wanted, and the pause is over
        tick   nothing                                     it is running
        tick   True: its answer has come, see `answer`     the pause begins
        tick   `failed(error)`                             the pause begins; if `failed` raises, the next tick asks again

    The answer of a call is taken though nobody wants a further one, so it is never taken for that of a later call.
    """

    def __init__(
        self, background: Background, name: Hashable, every_seconds: float, failed: Callable[[SluiceError], None]
    ) -> None:
        self.answer: T | None = None
        """The last one. None until there is one."""
        self._background = background
        self._name = name
        self._every_seconds = every_seconds
        self._failed = failed
        self._running = False
        self._next_at = float("-inf")

    def tick(self, call: Callable[[], T], *, wanted: bool = True) -> bool:
        """Return whether an answer has come. `wanted`: whether a further call may be started."""
        if not self._running and not (wanted and self._background.now() >= self._next_at):
            return False
        answered: tuple[T] | None = None
        self._running = False
        try:
            answered = self._background.take(self._name, lambda: (call(),))
        except SluiceError as error:
            self._failed(error)
        else:
            self._running = answered is None
        if not self._running:
            self._next_at = self._background.now() + self._every_seconds
        if answered is not None:
            [self.answer] = answered
        return answered is not None

    def hurry(self) -> None:
        """Ask again at the next tick."""
        self._next_at = float("-inf")


def logged(log: Callable[..., object], event: str) -> Callable[[SluiceError], None]:
    """For a chore whose error is only logged."""

    def failed(error: SluiceError) -> None:
        log(event, error=str(error), code=error.code)

    return failed


class Workers:
    """Runs at most `most` calls at a time, started in the order given. A call handles its own errors.

    They are daemon threads: a process that is asked to end does not wait for its calls, which may take hours. (The executors of the standard
    library would wait for an index build to finish.)
    """

    def __init__(self, name: str, most: int) -> None:
        self._name = name
        self._most = most
        self._lock = threading.Lock()
        self._waiting: deque[Call] = deque()
        self._working = 0
        self._closed = False

    def submit(self, call: Call) -> None:
        with self._lock:
            if self._closed:
                return
            self._waiting.append(call)
            if self._working == self._most:
                return
            self._working += 1
        threading.Thread(target=self._run, name=self._name, daemon=True).start()

    def close(self) -> None:
        """Starts no further call. Does not wait for running calls. May be called twice."""
        with self._lock:
            self._closed = True
            self._waiting.clear()

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._working -= 1
                    return
                call = self._waiting.popleft()
            call()
