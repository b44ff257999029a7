"""`Journal`: which actions ran when, and what went wrong."""

from __future__ import annotations

import sys
import threading
import time


class Journal:
    """Any thread may use it."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self.faults: list[str] = []
        """Each of them fails the run."""

    def tell(self, subject: str, what: str) -> None:
        with self._lock:
            sys.stdout.write(f"{time.monotonic() - self._began:8.1f} s  {subject:<10}  {what}\n")
            sys.stdout.flush()

    def fault(self, subject: str, what: str) -> None:
        self.faults.append(f"{subject}: {what}")
        self.tell(subject, f"WRONG: {what}")
