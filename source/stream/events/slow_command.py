"""`SlowCommand`: a command that may take minutes, sent by a thread of its own, so that whoever waits for it can look around."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class SlowCommand(Generic[T]):
    """Begins at once. Its thread ends with the command, whether or not somebody still waits."""

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
        """Of a command that has ended; raises its error."""
        if self._error is not None:
            raise self._error
        [answer] = self._answer
        return answer

    def _run(self) -> None:
        try:
            self._answer.append(self._send())
        except BaseException as error:  # noqa: BLE001 - the edge of a thread: raised to the one who waits
            self._error = error
        finally:
            self._ended.set()
