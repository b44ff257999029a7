"""`Holds`: failpoints of running nodes, put on and released for one subject at a time (`coordination.failpoint`)."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path


class Point(StrEnum):
    DUE = "ddl_due"
    """Each table's checkpoint is at the DDL; the owner has not read the target yet."""
    EXECUTING = "ddl_executing"
    """The DDL is recorded as executing, but not sent."""
    APPLIED = "ddl_applied"
    """The target has executed the DDL, but that is not recorded."""
    WINDOW = "window_begins"
    """A processor is about to replicate a window. Its subject is the changefeed; the subject of the other points is a database."""


class Holds:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        for point in Point:
            (directory / point).mkdir(parents=True)

    @property
    def failpoints(self) -> str:
        """Environment variables of the nodes."""
        return " ".join(f"{point}=hold:{self._directory}" for point in Point)

    def put_on(self, point: Point, subject: str) -> None:
        (self._directory / point / subject).touch()

    def take_off(self, point: Point, subject: str) -> None:
        (self._directory / point / subject).unlink()

    def reached(self, point: Point, subject: str) -> int:
        """How many have reached the failpoint since it was put on."""
        told = self._directory / point / f"{subject}.reached"
        return len(told.read_text().splitlines()) if told.exists() else 0

    def release_all(self) -> None:
        """Releases all that wait at a failpoint, and removes all failpoints."""
        for file in self._directory.glob("*/*"):
            file.unlink()
