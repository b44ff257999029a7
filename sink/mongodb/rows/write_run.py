"""`WriteRun`: applies the changes of one job, and does for each change what the server's answer calls for.

`sink/mongodb/refusal.py` says what an answer calls for. An update that finds no document, or one of another shape, is not refused:

    no statement can express it     the row is edited here (`row_rewrite.py`), and so is every update that does not fit its document
    it does not fit                 replay: the parts that fit are applied, the others skipped; divergence if no later change of the row explains it
                                    otherwise: divergence, repaired from the source or raised

**Why a replayed update that does not fit is applied in parts.** The target may be ahead: event 5 set `x` to 1, event 6 set `x` to 2
and `a.b`, and event 7 set `a` to a number. When 5, 6, 7 are replayed on the result, event 6 cannot set `a.b`; if it were skipped
whole, `x` would stay 1. Applied in parts, it sets `x` to 2, and event 7 sets `a`.

What waits or was skipped is in `doubts.py`, which settles it at the run's end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby

from changefeed.errors import RowRejected, SinkRefused, SinkUnavailable
from changefeed.event import RowType
from changefeed.table import TableId
from sink.asked_rows import RowRepairs
from sink.mongodb.commander import Commander, TakesTooLong
from sink.mongodb.letters.open_letters import OpenLetters
from sink.mongodb.refusal import Refusal, RefusedRow, Resolution, resolution, told
from sink.mongodb.rows.batch_sender import BatchSender, Sent, SideBySide
from sink.mongodb.rows.bulk_command import (
    BulkOutcome,
    adds_fields,
    command_of,
    depends_on_shape,
    has_statement,
    too_large_to_replace,
)
from sink.mongodb.rows.bulk_plan import FIRST, Batch, CommandSizes, Limits, new_fields_apart, plan, upserted
from sink.mongodb.rows.doubts import Doubts, RunState, RunTables
from sink.mongodb.rows.placing import Placing
from sink.mongodb.rows.row_look import RowLook, RowsAtSource
from sink.mongodb.rows.row_place import Move, spread
from sink.mongodb.rows.row_rewrite import RowRewrite
from sink.mongodb.rows.rows_ahead import RowsAhead
from sink.mongodb.rows.statements.update_translation import Inexpressible
from sink.mongodb.rows.unexplained import MISSING
from sink.mongodb.rows.waiting import SingleRows
from sink.mongodb.target_errors import about_a_row, refused_with
from sink.row import RowChange, Turns, Write, WriteResult

_MISSHAPEN = "its document has another shape"


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetLink:
    """What all runs of a writer know of the target."""

    commander: Commander
    limits: Callable[[], Limits]
    sizes: CommandSizes
    side_by_side: SideBySide
    ahead: RowsAhead
    turns: Turns | None = None


class WriteRun:
    def __init__(
        self,
        target: TargetLink,
        placing: Placing,
        source: RowsAtSource,
        tables: RunTables,
        letters: OpenLetters | None = None,
        asked: RowRepairs | None = None,
    ) -> None:
        self._commander = commander = target.commander
        self._limits = target.limits
        self._side_by_side = target.side_by_side
        self._source = source
        self._state = RunState()
        self._sender = BatchSender(commander, target.sizes, target.turns)
        self._rewrite = RowRewrite(commander, self._sender)
        self._placing = placing
        self._look = RowLook(commander, source.fetch)
        rows = SingleRows(
            commander=commander,
            source=source,
            look=self._look,
            placing=placing,
            rewrite=self._rewrite,
            ahead=target.ahead,
        )
        self._doubts = Doubts(self._state, tables, rows, letters, asked or RowRepairs((), None), self._again)

    def prepare(self, changes: Sequence[RowChange], *, replay: bool) -> Write:
        changes = self._placing.known(changes)
        planned = plan(upserted(changes) if replay else changes, self._limits(), self._sender.may_share, replay=replay)
        if not replay:
            planned = [part for batch in planned for part in new_fields_apart(batch, adds_fields)]
        batches = [batch if self._placing.places(batch) else _ready(batch) for batch in planned]
        return partial(self._write, changes, batches, replay=replay)

    def settle(self) -> WriteResult:
        self._begin(replay=False)
        self._doubts.settle()
        return self._ended()

    def _write(self, changes: Sequence[RowChange], batches: Sequence[Batch], *, replay: bool) -> WriteResult:
        self._begin(replay=replay)
        self._doubts.meet(changes)
        together = self._confirms_together(changes, batches)
        with self._commander.confirming_together(changes[0].table.name.db) if together else nullcontext():
            sent: Mapping[int, Sent] = {}
            if together and self._doubts.none_wait:
                sent = self._side_by_side.sent(batches, self._sender.attempt)
            for number, batch in enumerate(batches):
                tried = sent.get(number)
                lost = tried is not None and tried.reply is None
                self._apply(batch, again=lost, sent=None if lost else tried)
        self._doubts.explain(changes)
        self._doubts.bound()
        return self._ended()

    def _confirms_together(self, changes: Sequence[RowChange], batches: Sequence[Batch]) -> bool:
        """One command waits for the majority itself, several wait together."""
        several = len(batches) > 1 or len(changes) > FIRST
        return several and self._limits().defers and not any(batch.joined for batch in batches)

    def _begin(self, *, replay: bool) -> None:
        """Starts the result of the changes that come next."""
        self._commander.begin()
        self._state.replay = replay
        self._state.result = self._sender.result = WriteResult()

    def _ended(self) -> WriteResult:
        result = self._state.result
        result.tally.retries = self._commander.retries
        result.waits, result.waited = len(self._commander.waits), sum(self._commander.waits)
        return result

    def _apply(self, batch: Batch, *, again: bool = False, sent: Sent | None = None) -> None:
        """Returns when each change of the batch is applied, waits, or is in the result. `again`: some may have been applied before.

        `sent`: the batch was sent whole, when no change of its table waited.
        """
        if (unplaced := self._placing.unplaced(batch)) is not None:
            self._apply_placed(unplaced, again=again)
            return
        if sent is None and batch.changes and len(batch.changes) > self._sender.most_of(batch):
            self._in_parts(batch, again=again)
            return
        replay, attempt = self._state.replay or again, 0
        while batch.changes:
            batch = batch if sent is not None else self._doubts.due(batch)
            if not batch.changes:
                return
            try:
                outcome, repeated = (
                    self._sender.taken(batch, sent)
                    if sent
                    else self._sender.send(batch, divisible=len(batch.changes) > 1)
                )
                sent = None
            except TakesTooLong:
                self._sender.halve(batch)
                self._in_parts(batch, again=True)
                return
            except Inexpressible:
                self._apart(batch, replay=replay)
                return
            except RowRejected as error:
                if not about_a_row(error):
                    raise error.about(batch.changes[0].table.id) from error.__cause__
                self._isolate(batch, error, again=replay)
                return
            replay = replay or repeated
            left = self._resolve(batch, outcome, replay=replay)
            passing = next((refusal for refusal in outcome.refusals if refusal.passing), None)
            if passing is not None:
                self._commander.wait(attempt, SinkUnavailable(told(batch.changes[passing.index], passing)))
                replay, attempt = True, attempt + 1
            batch = replace(batch, changes=left, command=None)

    def _again(self, change: RowChange, *, replay: bool) -> None:
        before, self._state.replay = self._state.replay, replay
        self._apply(Batch([change], ordered=True))
        self._state.replay = before
        self._commander.go_on()

    def _apply_placed(self, batch: Batch, *, again: bool) -> None:
        """After a repair, which may have brought a later place of a row, inserts need a look for their row, too."""
        replay = self._state.replay or again or batch.changes[0].table.id in self._state.ahead
        for step in self._placing.steps(batch, replay=replay, unsure=self._doubts.may_wait):
            if isinstance(step, Move):
                self._move(step.change, replay=replay)
            else:
                self._apply(step, again=again)
            self._commander.go_on()

    def _move(self, change: RowChange, *, replay: bool) -> None:
        if self._doubts.due(Batch([change], ordered=True)).changes:
            refused = self._placing.move(change)
            self._answered(change, refused, replay=replay)
            if refused is None:
                self._doubts.moved(change)

    def _in_parts(self, batch: Batch, *, again: bool) -> None:
        """Applies a batch in parts that are small enough for a slow target."""
        at = 0
        while at < len(batch.changes):
            until = at + self._sender.most_of(batch)
            self._apply(Batch(batch.changes[at:until], batch.ordered, batch.joined), again=again)
            self._commander.go_on()
            at = until

    def _apart(self, batch: Batch, *, replay: bool) -> None:
        """Applies the updates that have no statement each by itself, in the order of the batch."""
        for expressible, run in groupby(batch.changes, partial(has_statement, first=batch.first)):
            if expressible:
                self._apply(replace(batch, changes=list(run), command=None), again=replay)
                continue
            for change in run:
                if self._doubts.due(Batch([change], ordered=True)).changes:
                    self._apply_edited(change, replay=replay)

    def _apply_edited(self, change: RowChange, *, replay: bool) -> bool:
        """Whether the row is there."""
        viable = replay or self._doubts.noted_newer(change)
        try:
            rewritten = self._rewrite.apply([change], viable=viable)
        except RowRejected as error:
            self._doubts.refused(change, refused_with(change, error), replay=replay)
            self._commander.go_on()
            return False
        self._commander.go_on()
        if rewritten.fits:
            return True
        if rewritten.again and not viable:
            return self._apply_edited(change, replay=True)
        if not viable:
            self._doubts.diverged([change], _MISSHAPEN if rewritten.there else MISSING)
            return False
        self._doubts.skipped(change, misfit=_MISSHAPEN if rewritten.there else None)
        return rewritten.there

    def _isolate(self, batch: Batch, error: RowRejected, *, again: bool) -> None:
        """The command was refused as a whole: find the change that causes it."""
        if len(batch.changes) == 1:
            [change] = batch.changes
            if change.type is RowType.REPLACE and too_large_to_replace(change):
                self._answered(change, self._rewrite.renew(change))
            elif change.type is RowType.UPDATE:
                self._apply_edited(change, replay=self._state.replay or again)
            else:
                self._doubts.reject(change, f"{change}, of {change.size} bytes: {error}")
            return
        middle = len(batch.changes) // 2
        self._apply(Batch(batch.changes[:middle], batch.ordered, batch.joined), again=again)
        self._apply(Batch(batch.changes[middle:], batch.ordered, batch.joined), again=again)

    def _resolve(self, batch: Batch, outcome: BulkOutcome, *, replay: bool) -> list[RowChange]:
        """Returns the changes that are still to be sent, in order."""
        left: list[RowChange] = []
        present: list[RowChange] = []
        for refusal in outcome.refusals:
            change = batch.changes[refusal.index]
            match resolution(change, refusal):
                case Resolution.SEND_AGAIN:
                    left.append(change)
                case Resolution.REPLACE:
                    self._state.result.tally.duplicates += 1
                    present.append(change._replace(type=RowType.REPLACE))
                case each:
                    self._refused(change, refusal, each, replay=replay)
        if present:
            if not (replay or self._state.replay):
                # one for each batch: where the target had rows before, each insert finds one
                self._source.expects_one(present[0])
            self._apply(Batch(present, ordered=True, joined=batch.joined))
        if outcome.unmatched:
            refused = {refusal.index for refusal in outcome.refusals}
            tried = [change for at, change in enumerate(batch.changes[: outcome.done]) if at not in refused]
            if batch.first:
                self._apply(replace(batch, changes=tried, command=None, first=False), again=replay)
            else:
                self._unmatched(batch, tried, outcome, replay=replay)
        return [*left, *batch.changes[outcome.done :]]

    def _refused(self, change: RowChange, refusal: Refusal, due: Resolution, *, replay: bool) -> None:
        match due:
            case Resolution.STOP:
                raise SinkRefused(f"{told(change, refusal)}; check the roles of the sink's user")
            case Resolution.DISPLACE if spread(change.table):
                self._move(change, replay=self._state.replay)
            case Resolution.DISPLACE:
                self._answered(change, self._rewrite.displace(change))
            case Resolution.RENEW:
                self._answered(change, self._rewrite.renew(change))
            case Resolution.WAIT:
                self._doubts.wait(change, refusal, replay=self._state.replay or replay)
            case Resolution.EDIT if replay or self._doubts.noted_newer(change):
                self._apply_edited(change, replay=True)
            case Resolution.EDIT:
                self._doubts.diverged([change], refusal.message)
            case _:
                refused = RefusedRow(told(change, refusal), None)
                self._doubts.refused(change, refused, replay=self._state.replay or replay)
        self._commander.go_on()

    def _answered(self, change: RowChange, refused: RefusedRow | None, *, replay: bool | None = None) -> None:
        if refused is not None:
            self._doubts.refused(change, refused, replay=self._state.replay if replay is None else replay)

    def _unmatched(self, batch: Batch, tried: Sequence[RowChange], outcome: BulkOutcome, *, replay: bool) -> None:
        if outcome.unmatched_at is not None:
            lost = [batch.changes[at] for at in outcome.unmatched_at]
        else:
            lost = self._lost(tried, outcome.unmatched)
        missing: list[RowChange] = []
        redone: set[tuple[TableId, bytes]] = set()
        for change in lost:
            row = change.row
            if not depends_on_shape(change):
                missing.append(change)
            elif row not in redone and self._apply_edited(change, replay=replay):
                redone.add(row)
                self._redo(batch, tried, change)
        for change in missing:
            if replay or self._doubts.noted_newer(change):
                self._doubts.skipped(change)
        if not replay:
            self._doubts.diverged([change for change in missing if not self._doubts.noted_newer(change)], MISSING)

    def _redo(self, batch: Batch, tried: Sequence[RowChange], change: RowChange) -> None:
        """The later changes of its row, which were applied before it."""
        later = tried[next(at for at, each in enumerate(tried) if each is change) + 1 :]
        of_its_row = [each for each in later if each.row == change.row]
        self._apply(replace(batch, changes=of_its_row, command=None, ordered=True), again=True)

    def _lost(self, changes: Sequence[RowChange], count: int) -> list[RowChange]:
        """The changes that found no document; `count` is their number."""
        updates = [change for change in changes if change.type is RowType.UPDATE]
        absent = self._look.absent(updates)
        return absent if absent is not None and len(absent) == count else self._locate(changes)

    def _locate(self, changes: Sequence[RowChange]) -> list[RowChange]:
        """Finds the updates without a document by bisection: sending an update again changes nothing."""
        outcome, _ = self._sender.send(Batch(changes, ordered=False))
        self._commander.go_on()
        if not outcome.unmatched:
            return []
        if len(changes) == 1:
            return list(changes)
        middle = len(changes) // 2
        return [*self._locate(changes[:middle]), *self._locate(changes[middle:])]


def _ready(batch: Batch) -> Batch:
    try:
        return replace(batch, command=command_of(batch))
    except Inexpressible:
        return batch
