"""`Workers`: threads for calls that wait for a source or a target, possibly for hours.

They are daemon threads: a process that is asked to end does not wait for its calls. (The executors of the standard library would wait
for an index build to finish.)
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

Call = Callable[[], None]


class Workers:
    """Runs at most `most` calls at a time, started in the order given. A call handles its own errors."""

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
