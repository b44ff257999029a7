"""`TaskSharing`: distributes the steps of one tick over Spark tasks. Pure.

A task costs more than copying a small table: 64 ms of CPU against 20. So steps of small tables share tasks evenly, and a chunk of a
large table has a task of its own. Steps start in the order in which they are added.

    4 tasks free, 20 small steps          4 tasks of 5
    4 tasks free, chunks c1 c2 of one     [c1] [c2] and 2 tasks of 5
      table, then 10 small steps
    1 task free, 1,000 small steps        1 task of 32; the others wait
"""

from __future__ import annotations

from typing import Generic, TypeVar

TOGETHER = 32

T = TypeVar("T")


class TaskSharing(Generic[T]):
    def __init__(self, tasks: int) -> None:
        """`tasks`: how many tasks may start."""
        self._free = max(0, tasks)
        self._alone: list[T] = []
        self._small: list[T] = []
        self._shared_tasks = 0

    @property
    def room(self) -> int:
        """At least this many more steps can start."""
        return self._free + (len(self._small) < self._shared_tasks * TOGETHER)

    def add(self, step: T, *, small: bool) -> bool:
        """Returns whether the step can start."""
        if small and len(self._small) < self._shared_tasks * TOGETHER:
            self._small.append(step)
        elif self._free == 0:
            return False
        else:
            self._free -= 1
            self._shared_tasks += small
            (self._small if small else self._alone).append(step)
        return True

    def tasks(self) -> list[list[T]]:
        """The steps of each task."""
        count = min(self._shared_tasks + self._free, len(self._small))
        return [[step] for step in self._alone] + [self._small[first::count] for first in range(count)]
