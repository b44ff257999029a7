"""`Background`: calls that wait for somebody, made in threads; their outcomes are read by the tick."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

_THREADS = 4


class Background:
    """For one thread, which starts calls and takes outcomes; `wake` is called from the others."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._calls: dict[Hashable, Future[Any]] = {}
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="owner")

    def take(self, key: Hashable, call: Callable[[], Any]) -> Any:
        """The outcome of the call, once; None while it goes on. Starts it when it is not under way. Raises what it raised."""
        future = self._calls.get(key)
        if future is None:
            future = self._calls[key] = self._threads.submit(call)
            future.add_done_callback(lambda _: self._wake())
        if not future.done():
            return None
        del self._calls[key]
        return future.result()

    def close(self) -> None:
        """Nobody waits for what is under way."""
        self._threads.shutdown(wait=False, cancel_futures=True)
