"""`TaskSharing`: distributes the steps of one tick over Spark tasks. Pure.

A task costs 40 ms of CPU on a warm JVM and 60 on a cold one: more than copying a small table, and a fifth of copying a chunk of large
documents. So steps share tasks, evenly. A chunk takes a free task; without one, it joins other chunks. It does not wait long there, since a
chunk that takes long is divided, and a task that has run for a second starts no further step.

    4 tasks free, 20 small steps          4 tasks of 5
    4 tasks free, 20 brief steps          3 tasks of 7, 7 and 6
    4 tasks free, chunks c1 c2 of one     [c1] [c2] and 2 tasks of 5
      table, then 10 small steps
    4 tasks free, chunks c1 to c6         [c1 c5] [c2 c6] [c3] [c4]
    1 task free, 1,000 small steps        1 task of 128; the others wait

Steps start in the order in which they are added.
"""

from __future__ import annotations

from enum import StrEnum
from math import ceil
from typing import Generic, TypeVar

TOGETHER = 128
CHUNKS_TOGETHER = 4
_BRIEF_TOGETHER = 8
"""Fewer are not worth another task."""

T = TypeVar("T")


class StepSize(StrEnum):
    BRIEF = "brief"
    """A few commands, also for all documents of a tiny table."""
    SMALL = "small"
    """The documents, or the indexes, of a table of one chunk."""
    CHUNK = "chunk"
    """One of several chunks, which may be divided."""
    ANY = "any"
    """It may take hours, so it has a task of its own."""


class TaskSharing(Generic[T]):
    def __init__(self, tasks: int) -> None:
        """`tasks`: how many tasks may start."""
        self._free = max(0, tasks)
        self._alone: list[T] = []
        self._chunks: list[T] = []
        self._chunk_tasks = 0
        self._small: list[T] = []
        self._small_tasks = 0
        self._worth = 0.0
        """How many tasks the small steps are worth."""

    def room(self, size: StepSize) -> int:
        """At least this many more steps can start."""
        match size:
            case StepSize.ANY:
                return self._free
            case StepSize.CHUNK:
                return (self._free + self._chunk_tasks) * CHUNKS_TOGETHER - len(self._chunks)
            case StepSize.BRIEF | StepSize.SMALL:
                return self._free + (len(self._small) < self._small_tasks * TOGETHER)

    def add(self, step: T, size: StepSize) -> bool:
        """Returns whether the step can start."""
        if not self.room(size):
            return False
        match size:
            case StepSize.ANY:
                self._free -= 1
                self._alone.append(step)
            case StepSize.CHUNK:
                self._chunk_tasks += self._takes_a_task(self._free > 0)
                self._chunks.append(step)
            case StepSize.BRIEF | StepSize.SMALL:
                self._small_tasks += self._takes_a_task(len(self._small) == self._small_tasks * TOGETHER)
                self._small.append(step)
                self._worth += 1 / _BRIEF_TOGETHER if size is StepSize.BRIEF else 1
        return True

    def tasks(self) -> list[list[T]]:
        """The steps of each task."""
        small_tasks = min(self._small_tasks + self._free, ceil(self._worth))
        return (
            [[step] for step in self._alone]
            + _spread(self._chunks, self._chunk_tasks)
            + _spread(self._small, small_tasks)
        )

    def _takes_a_task(self, takes: bool) -> bool:
        self._free -= takes
        return takes


def _spread(steps: list[T], tasks: int) -> list[list[T]]:
    return [steps[first::tasks] for first in range(tasks)]
