"""Bugs of dead letters, and of the rows that they hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

from changefeed.cluster_time import ClusterTime
from changefeed.event import RowType
from sink.mongodb.letters.dead_letter import row_of
from sink.mongodb.letters.open_letters import OpenLetters
from sink.row import RowChange
from tests.simulation.planted.bug import Bug


def _letters_hold_nothing() -> AbstractContextManager[Any]:
    """A delta is applied to a row that the target has not got."""
    return patch.object(OpenLetters, "holds", lambda self, change: False)


def _letters_are_not_read() -> AbstractContextManager[Any]:
    """Those that an earlier run has written are unknown."""

    def meet(self: OpenLetters, tables: Any) -> None:
        for table in tables:
            self._open.setdefault(table, set())

    return patch.object(OpenLetters, "meet", meet)


def _a_refused_row_has_no_letter() -> AbstractContextManager[Any]:
    """The run remembers it, and nobody else does."""

    def write(self: OpenLetters, change: RowChange, _said: str) -> None:
        self.meet([change.table.id])
        self._open[change.table.id].add(row_of(change.key))

    return patch.object(OpenLetters, "write", write)


def _a_letter_is_closed_before_its_row_is_written() -> AbstractContextManager[Any]:
    rows_of_now = OpenLetters.rows_of_now

    def closed_first(self: OpenLetters) -> Iterator[tuple[RowChange, ClusterTime]]:
        for row in rows_of_now(self):
            self.close()
            yield row

    return patch.object(OpenLetters, "rows_of_now", closed_first)


def _a_held_row_that_is_gone_stays() -> AbstractContextManager[Any]:
    rows_of_now = OpenLetters.rows_of_now

    def without_deletes(self: OpenLetters) -> Iterator[tuple[RowChange, ClusterTime]]:
        return (row for row in rows_of_now(self) if row[0].type is not RowType.DELETE)

    return patch.object(OpenLetters, "rows_of_now", without_deletes)


LETTER_BUGS: Mapping[str, Bug] = {
    "letters hold nothing": Bug(_letters_hold_nothing, 300),
    "letters are not read": Bug(_letters_are_not_read, 60),
    "a refused row has no letter": Bug(_a_refused_row_has_no_letter, 30),
    "a letter is closed before its row is written": Bug(_a_letter_is_closed_before_its_row_is_written, 200),
    "a held row that is gone stays": Bug(_a_held_row_that_is_gone_stays, 300, refusing=True),
}
