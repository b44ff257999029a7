"""`SlowCommand`: a command that may take minutes, sent by its own thread, so that the caller can do other work meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class SlowCommand(Generic[T]):
    """Starts at once. Its thread ends with the command, even if the caller no longer waits for it."""

    def __init__(self, send: Callable[[], T]) -> None:
        self._send = send
        self._ended = threading.Event()
        self._answer: list[T] = []
        self._error: BaseException | None = None
        threading.Thread(target=self._run, name="source-command", daemon=True).start()

    def ended(self, within: float) -> bool:
        self._ended.wait(within)
        return self._ended.is_set()

    def answer(self) -> T:
        """The answer of a command that has ended. Raises its error."""
        if self._error is not None:
            raise self._error
        [answer] = self._answer
        return answer

    def _run(self) -> None:
        try:
            self._answer.append(self._send())
        except BaseException as error:  # noqa: BLE001 - the edge of a thread: raised to the caller of `answer`
            self._error = error
        finally:
            self._ended.set()
