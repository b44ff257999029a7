"""Bugs that leave no trace downstream: only the product's own checks of its state see them, which the simulation calls after each step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from changefeed.table import TableId
from processor.lanes.lanes import Lanes
from tests.simulation.planted.bug import Bug


def _the_replay_of_a_table_that_left_is_kept() -> AbstractContextManager[Any]:
    remove = Lanes.remove

    def removed(self: Lanes, tables: Iterable[TableId]) -> Lanes:
        gone = frozenset(tables)
        replay = {table: at for table, at in self.own_replay.items() if table in gone}
        left = remove(self, gone)
        return replace(left, own_replay={**left.own_replay, **replay})

    return patch.object(Lanes, "remove", removed)


STEP_BUGS: Mapping[str, Bug] = {
    "the replay of a table that left is kept": Bug(_the_replay_of_a_table_that_left_is_kept, 30),
}
