"""`BatchSender`: sends the commands of batches, and measures them: how many changes a command may have follows from how long commands take."""

from __future__ import annotations

import sys
import time

import structlog

from changefeed.errors import RowRejected, SinkUnavailable, SluiceError
from changefeed.table import TableId
from sink.mongodb.commander import Commander, TargetReply
from sink.mongodb.rows.bulk_command import BulkOutcome, CommandBody, command_of, outcome_of
from sink.mongodb.rows.bulk_plan import Batch, phase
from sink.mongodb.rows.command_sizes import CommandSizes
from sink.mongodb.rows.refusals import passing, told
from sink.mongodb.rows.side_by_side import Sent
from sink.mongodb.rows.statements.update_pipeline import Inexpressible
from sink.row import RowChange, Turns, WriteResult

_SMALL = 5
"""A command of so few changes says how long the target takes for any."""
_log = structlog.get_logger(__name__)


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
        for refusal in filter(passing, outcome.refusals):
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
