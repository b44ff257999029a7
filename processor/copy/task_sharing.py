"""`TaskSharing`: shares the steps of one tick out among Spark tasks. Pure.

A task costs more than copying a small table: 64 ms of CPU against 20. So steps of small tables share tasks, evenly, and a chunk of a
large one has a task of its own. Whoever comes first is begun first.

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
        """`tasks`: how many may begin."""
        self._free = max(0, tasks)
        self._alone: list[T] = []
        self._small: list[T] = []
        self._shared_tasks = 0

    @property
    def room(self) -> int:
        """How many steps more can begin, at least."""
        return self._free + (len(self._small) < self._shared_tasks * TOGETHER)

    def add(self, step: T, *, small: bool) -> bool:
        """Whether it can begin."""
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
        """What each task is given."""
        count = min(self._shared_tasks + self._free, len(self._small))
        return [[step] for step in self._alone] + [self._small[first::count] for first in range(count)]
