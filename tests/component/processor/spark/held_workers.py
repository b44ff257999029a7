"""`HeldWorkers`: Spark's Python workers wait at a failpoint as long as a block runs."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from tests.until import until


class HeldWorkers:
    """The workers' failpoints are `POINT=hold:HOLDS`. The subject is a changefeed."""

    def __init__(self, holds: Path, point: str, subject: str) -> None:
        self._file = holds / point / subject
        self._reached = Path(f"{self._file}.reached")

    def __enter__(self) -> Self:
        self._reached.unlink(missing_ok=True)
        self._file.touch()
        return self

    def __exit__(self, *_: object) -> None:
        self._file.unlink(missing_ok=True)

    def worker(self) -> int:
        """The process id of the first worker at the point."""
        until(self._reached.exists, "a worker at the point")
        until(lambda: self._reached.read_text().endswith("\n"), "its process id")
        return int(self._reached.read_text().split()[0])

    def workers(self) -> list[int]:
        """The process ids of all workers that have come to the point so far."""
        return [int(pid) for pid in self._reached.read_text().split()] if self._reached.exists() else []
