"""`SideBySide`: sends the commands of several tables at the same time, on two connections, those of one table one after the other.

    writing thread     a insert ─▶ a update ─▶ a delete
    beside it          b insert ─▶ b update              c insert ─▶ c update

Tables do not depend on each other. What a command did not apply may matter to its table's next one, so a table's commands stop at the first
answer that is not clean. The run takes all answers in the order of its plan, as if it had just sent these commands; it sends the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import cached_property
from itertools import groupby
from typing import NamedTuple, TypeAlias

from changefeed.table import TableName
from sink.mongodb.commander import TargetReply
from sink.mongodb.rows.bulk_command import outcome_of
from sink.mongodb.rows.bulk_plan import Batch


class Sent(NamedTuple):
    """No `reply`: any part of the command may have been applied."""

    reply: TargetReply | None
    seconds: float


Attempt: TypeAlias = Callable[[Batch], Sent | None]
"""Sends a batch once, in any thread. None: nothing of it was applied, and the run sends it."""
_Line: TypeAlias = list[tuple[int, Batch]]


class SideBySide:
    @cached_property
    def _beside(self) -> Executor:
        return ThreadPoolExecutor(1, "side-by-side")

    def sent(self, batches: Sequence[Batch], attempt: Attempt) -> Mapping[int, Sent]:
        """By the batch's index, those that were sent. Nothing is under way any more."""
        here, there = halves(batches)
        if not there:
            return {}
        beside = self._beside.submit(_in_turn, there, attempt)
        try:
            return {**_in_turn(here, attempt), **beside.result()}
        finally:
            beside.exception()


def halves(batches: Sequence[Batch]) -> tuple[_Line, _Line]:
    """The tables in two parts of about the same number of changes; the second is empty if there is one table."""
    tables: dict[TableName, _Line] = {}
    for at, batch in enumerate(batches):
        tables.setdefault(batch.changes[0].table.name, []).append((at, batch))
    parts: tuple[_Line, _Line] = [], []
    sizes = [0, 0]
    for line in sorted(tables.values(), key=_changes, reverse=True):
        smaller = sizes.index(min(sizes))
        parts[smaller].extend(line)
        sizes[smaller] += _changes(line)
    return parts


def _changes(line: _Line) -> int:
    return sum(len(batch.changes) for _, batch in line)


def _in_turn(line: _Line, attempt: Attempt) -> dict[int, Sent]:
    sent: dict[int, Sent] = {}
    for _, of_table in groupby(line, lambda each: each[1].changes[0].table.name):
        for at, batch in of_table:
            found = attempt(batch)
            if found is None:
                break
            sent[at] = found
            if found.reply is None:
                break
            outcome = outcome_of(batch, found.reply.document, found.reply.results)
            if outcome.refusals or outcome.unmatched:
                break
    return sent
