"""`Majority`: which effects at the target are durable, and which an election may still roll back."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any

from bson import ObjectId
from bson.timestamp import Timestamp
from pymongo.errors import OperationFailure

from tests.simulation.clockwork.machine import Machine
from tests.simulation.clockwork.substitutes import Waiters

_SECOND = 1_795_000_000


@dataclass(frozen=True)
class OpTime:
    ts: int
    term: int

    def to_bson(self) -> dict[str, Any]:
        return {"ts": Timestamp(_SECOND, self.ts), "t": self.term}


@dataclass(frozen=True)
class _Effect:
    at: OpTime
    undo: Callable[[], object]


class Majority:
    """Gets effects in the order of their times, each `lag` seconds after it happened."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._lacking: deque[_Effect] = deque()
        """The effects that no majority has yet, oldest first."""
        self._group: list[Callable[[], object]] | None = None
        self._times = count(1)
        self.election = 1
        self.has = OpTime(0, 1)
        self.lag = 0.0
        self._still_until = 0.0
        self.changed = Waiters()

    @property
    def newest(self) -> OpTime:
        return self._lacking[-1].at if self._lacking else self.has

    @property
    def term(self) -> ObjectId:
        return ObjectId(f"7fffffff{self.election:016x}")

    def lacks(self, undo: Callable[[], object]) -> None:
        """Adds a new effect; `undo` rolls it back."""
        if self._group is not None:
            self._group.append(undo)
            return
        effect = _Effect(OpTime(next(self._times), self.election), undo)
        self._lacking.append(effect)
        if self.lag:
            self._machine.after(self.lag, partial(self._reach, effect.at.ts))
        else:
            self._reach(effect.at.ts)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Effects that happen and are rolled back as one. If one of them is refused, the others are rolled back."""
        group = self._group = []
        try:
            yield
        except OperationFailure:
            _take_back(group)
            raise
        finally:
            self._group = None
        if group:
            self.lacks(partial(_take_back, group))

    def hold(self, until: float) -> None:
        """Until then the majority gets nothing new."""
        self._still_until = until
        if until <= self._machine.now:
            self._reach(self.newest.ts)

    def elect(self) -> None:
        """The new primary has what a majority has, and perhaps more. Its own first entry has no effect."""
        self.election += 1
        kept = self._machine.random.randrange(len(self._lacking) + 1)
        lost = [self._lacking.pop().undo for _ in range(len(self._lacking) - kept)][::-1]
        _take_back(lost)
        if lost:
            self._machine.count("target: effects that an election took back")
            self._machine.note("target", f"an election takes {len(lost)} effects back")
        self.lacks(lambda: None)
        self.changed.wake_all()

    def _reach(self, ts: int) -> None:
        if self._machine.now < self._still_until:
            self._machine.after(self._still_until - self._machine.now, partial(self._reach, ts))
            return
        while self._lacking and self._lacking[0].at.ts <= ts:
            self.has = self._lacking.popleft().at
        self.changed.wake_all()


def _take_back(effects: Sequence[Callable[[], object]]) -> None:
    for undo in reversed(effects):
        undo()
