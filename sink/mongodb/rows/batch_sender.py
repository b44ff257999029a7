"""`BatchSender`: sends the commands of batches, and measures them: how many changes a command may have follows from how long commands take.

`SideBySide` sends the commands of several tables at the same time, on two connections, those of one table one after the other:

    writing thread     a insert ─▶ a update ─▶ a delete
    beside it          b insert ─▶ b update              c insert ─▶ c update

Tables do not depend on each other. What a command did not apply may matter to its table's next one, so a table's commands stop at the first
answer that is not clean. The run takes all answers in the order of its plan, as if it had just sent these commands; it sends the others.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import cached_property
from itertools import groupby
from typing import NamedTuple, TypeAlias

import structlog

from changefeed.errors import RowRejected, SinkUnavailable, SluiceError
from changefeed.table import TableId, TableName
from sink.mongodb.commander import Commander, TargetReply
from sink.mongodb.refusal import told
from sink.mongodb.rows.bulk_command import BulkOutcome, CommandBody, command_of, outcome_of
from sink.mongodb.rows.bulk_plan import Batch, CommandSizes, phase
from sink.mongodb.rows.statements.update_translation import Inexpressible
from sink.row import RowChange, Turns, WriteResult

_SMALL = 5
"""A command of so few changes says how long the target takes for any."""
_log = structlog.get_logger(__name__)


class Sent(NamedTuple):
    """No `reply`: any part of the command may have been applied."""

    reply: TargetReply | None
    seconds: float


Attempt: TypeAlias = Callable[[Batch], Sent | None]
"""Sends a batch once, in any thread. None: nothing of it was applied, and the run sends it."""
_Line: TypeAlias = list[tuple[int, Batch]]


class BatchSender:
    """`result` gets the times that each table's commands took."""

    def __init__(self, commander: Commander, sizes: CommandSizes, turns: Turns | None) -> None:
        self._commander = commander
        self._sizes = sizes
        self._turns = turns
        self._most = sys.maxsize
        """The largest number of changes in a batch; halved when a batch takes too long."""
        self.result = WriteResult()

    def most_of(self, batch: Batch) -> int:
        first = batch.changes[0]
        kind = phase(first)
        if batch.joined or (kind != 0 and not self._shares):
            return self._most
        return min(self._most, self._sizes.most(first.table.id, kind) or self._most)

    def may_share(self, table: TableId) -> bool:
        """Whether a command may contain changes of other tables besides."""
        return self._sizes.may_share(table)

    @property
    def _shares(self) -> bool:
        return self._turns is not None and self._turns.shared

    def halve(self, batch: Batch) -> None:
        self._most = len(batch.changes) // 2
        _log.info("batches_are_halved", changes=len(batch.changes), table=str(batch.changes[0].table.name))

    def attempt(self, batch: Batch) -> Sent | None:
        """For `SideBySide`: nothing of the run changes. After an error the batch is sent again, which tells what to do about it."""
        if len(batch.changes) > self.most_of(batch):
            return None
        try:
            database, command = batch.command or command_of(batch)
        except Inexpressible:
            return None
        begun_at = time.monotonic()
        try:
            reply = self._commander.attempt(database, command, _doing(batch))
        except RowRejected:
            return None
        except SluiceError as error:
            _log.info("sent_again", reason=str(error))
            return Sent(None, 0.0)
        return Sent(reply, time.monotonic() - begun_at)

    def send(self, batch: Batch, *, divisible: bool = False) -> tuple[BulkOutcome, bool]:
        """The second value: whether it may have been applied before. Raises `Inexpressible`, and sends nothing then."""
        database, command = batch.command or command_of(batch)
        begun_at = time.monotonic()
        reply = self._commander.send(database, command, _doing(batch), divisible=divisible)
        return self._answered(batch, reply, time.monotonic() - begun_at), reply.again

    def taken(self, batch: Batch, sent: Sent) -> tuple[BulkOutcome, bool]:
        """The same of a batch that `attempt` has sent."""
        assert sent.reply is not None
        self._commander.take(sent.reply, _doing(batch))
        return self._answered(batch, sent.reply, sent.seconds), False

    def send_alone(self, change: RowChange, command: tuple[str, CommandBody]) -> BulkOutcome:
        reply = self._commander.send(*command, str(change)).document
        outcome = outcome_of(Batch([change], ordered=True), reply, [])
        for refusal in outcome.refusals:
            if refusal.passing:
                raise SinkUnavailable(told(change, refusal))
        return outcome

    def _answered(self, batch: Batch, reply: TargetReply, seconds: float) -> BulkOutcome:
        self._took(batch, seconds)
        if self._turns is not None:
            self._turns.rest(seconds)
        return outcome_of(batch, reply.document, reply.results)

    def _took(self, batch: Batch, seconds: float) -> None:
        """A command for several tables counts for each by its changes."""
        if len(batch.changes) <= _SMALL:
            self._commander.waits.append(seconds)
        if not batch.joined:
            first = batch.changes[0]
            self.result.took(first.table.id, seconds)
            self._sizes.took(first.table.id, phase(first), len(batch.changes), seconds)
            return
        tables = {change.table.id for change in batch.changes}
        if len(tables) > 1:
            self._sizes.took_together(tables, seconds)
        each = seconds / len(batch.changes)
        for change in batch.changes:
            self.result.took(change.table.id, each)


def _doing(batch: Batch) -> str:
    first = batch.changes[0]
    return f"{len(batch.changes)} row changes from {first.position} on into {first.table.name}"


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

    def close(self) -> None:
        self._beside.shutdown()


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
