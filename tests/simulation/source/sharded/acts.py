"""`Acts`: what a simulated cluster does in several steps, between which others write. An act has its tables, names and databases to itself."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from functools import partial
from typing import TypeAlias

from changefeed.table import TableName
from tests.simulation.clockwork.machine import Machine
from tests.simulation.source.sharded.shard import Shard
from tests.simulation.source.tables import NotPossible

Act: TypeAlias = Generator[float | tuple[Shard, int], None, None]
"""Yields seconds to wait, or a shard whose majority has to have so many entries before it goes on."""
_LOOK_AGAIN = 0.01


class Acts:
    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.under_way = 0
        self._busy: set[object] = set()

    def begin(self, act: Act, *subjects: object) -> None:
        """Does the first step at once. No other act concerns its tables, names and databases."""
        if any(self.is_busy(subject) for subject in subjects):
            act.close()
            raise NotPossible("something else is under way", 117)
        self._busy |= set(subjects)
        self.under_way += 1
        try:
            self._go_on(act, subjects)
        except NotPossible:
            self._over(subjects)
            raise

    def run(self, act: Act) -> None:
        """Beside all others."""
        self.under_way += 1
        self._go_on(act, ())

    def is_busy(self, subject: object) -> bool:
        return subject in self._busy

    def refuse_busy(self, *subjects: object) -> None:
        if any(map(self.is_busy, subjects)):
            raise NotPossible("something else is under way", 117)

    def refuse_busy_in(self, db: str) -> None:
        """Also any name of the database."""
        self.refuse_busy(db, *(each for each in self._busy if isinstance(each, TableName) and each.db == db))

    def _go_on(self, act: Act, subjects: Iterable[object]) -> None:
        try:
            step = next(act)
        except StopIteration:
            self._over(subjects)
            return
        self._wait(act, subjects, step)

    def _over(self, subjects: Iterable[object]) -> None:
        self._busy -= set(subjects)
        self.under_way -= 1

    def _wait(self, act: Act, subjects: Iterable[object], step: float | tuple[Shard, int]) -> None:
        if isinstance(step, tuple):
            shard, upto = step
            if not shard.durable(upto):
                self._machine.after(_LOOK_AGAIN, partial(self._wait, act, subjects, step))
                return
            step = 0.0
        self._machine.after(step, partial(self._go_on, act, subjects))
