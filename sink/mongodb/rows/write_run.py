"""`WriteRun`: handles the server's answer to each change of one run.

    inserted, updated, replaced, deleted     done
    insert: its `_id` exists                 replace the document: the insert was applied before
    replace: its `_id` exists, but differs   another shard key, or 1 for 1.0, or a zero timestamp, which only an insert keeps:
                                             remove the existing document, replace again
    a unique index is violated               the change and later changes of its key wait, and are tried again after the others
    update: no statement can express it,     the row is edited here and replaced in a transaction (`row_rewrite.py`);
      or its document is not as stated       it may have no document, or one of another shape:
                                                 replay: the parts that fit are applied, the others skipped; divergence
                                                         if no later change of the key explains it
                                                 otherwise: divergence, repaired from the source or raised
    a transient error                        try again after a pause, as a replay
    anything else                            a dead letter, or RowRejected

**Why a replayed update that does not fit is applied in parts.** The target may be ahead: event 5 set `x` to 1, event 6 set `x` to 2
and `a.b`, and event 7 set `a` to a number. When 5, 6, 7 are replayed on the result, event 6 cannot set `a.b`; if it were skipped
whole, `x` would stay 1. Applied in parts, it sets `x` to 2, and event 7 sets `a`.

**What a replay skips has to be explained.** `Unexplained` remembers each key with a skipped part until a later change explains it.
If the target may be ahead of the whole run, a row that is unexplained at the end makes its table *unsettled*: its changes are written again,
together with later ones. Otherwise the row is compared with the source's; a difference is divergence (docs/decisions/0029).

**A refused unique value waits** until the end of the run (`waiting/waiting_tries.py`). If the target may be ahead of the whole run, rows that still
wait make the table *unsettled*. So they do if a row of the table was repaired: a repaired row has the state of the time at which it was read,
and until that time its unique value may belong to another row. Otherwise they are rejected.

**A row with a dead letter** is not sent: its changes are held until the end of the run, which writes the source's document of now
(`letters/open_letters.py`). Refused again, it is no reason to make its table unsettled: its letter is renewed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from itertools import groupby

import structlog

from changefeed.documents.row_key import row_key
from changefeed.errors import Divergence, RowRejected, SinkRefused, SinkUnavailable
from changefeed.event import RowType
from changefeed.table import TableId
from sink.asked_rows import RowRepairs
from sink.mongodb.commander import Commander, Send, TakesTooLong
from sink.mongodb.errors import unauthorized_code
from sink.mongodb.letters.open_letters import OpenLetters
from sink.mongodb.rows.batch_sender import BatchSender, Sent, SideBySide
from sink.mongodb.rows.bulk_command import (
    BulkOutcome,
    Refusal,
    adds_fields,
    command_of,
    depends_on_shape,
    displace_command,
    has_statement,
    net_command,
    renewal_commands,
    too_large_to_replace,
)
from sink.mongodb.rows.bulk_plan import FIRST, Batch, CommandSizes, Limits, new_fields_apart, plan, upserted
from sink.mongodb.rows.placing import ShardKeys, exchanged
from sink.mongodb.rows.refusals import (
    DOLLAR_NAME,
    IMMUTABLE,
    NO_TRANSACTION,
    about_a_row,
    misfit,
    passing,
    refusal_in,
    told,
)
from sink.mongodb.rows.row_look import Compared, RowLook
from sink.mongodb.rows.row_place import Move, as_written, id_alone, is_looked_for, of_different_rows, place
from sink.mongodb.rows.row_rewrite import RowRewrite
from sink.mongodb.rows.statements.exact_insert import holds_zero_time
from sink.mongodb.rows.statements.update_translation import Inexpressible
from sink.mongodb.rows.unexplained import OpenRow, Unexplained
from sink.mongodb.rows.waiting import Chain, WaitingRows, WaitingTries
from sink.row import FetchRow, RowChange, Sole, SourceRow, Turns, Unfinished, Write, WriteResult

_log = structlog.get_logger(__name__)

WAITING_BYTES = 64 << 20
UNEXPLAINED_BYTES = 64 << 20
_MOST_NAMED = 10
_ORPHAN = (
    "a moved chunk has left a document of this _id on the shard, which will remove it (after orphanCleanupDelaySecs, by default 15 minutes); "
    "cleanupOrphaned on the shard's primary waits for that"
)
_COPY_ANEW = "have the table copied anew (`sluice table recopy`)"
_REMEDY = (
    "remove the cause at the target and resume the table (with on_rejected: stop_changefeed, the changefeed), or have such rows kept as dead "
    "letters (on_rejected: dead_letter)"
)
_MISSING, _MISSHAPEN = "its document is missing", "its document has another shape"


class WriteRun:
    """Applies the changes of one job; holds the results and the waiting changes."""

    def __init__(
        self,
        commander: Commander,
        fetch: FetchRow | None,
        letters: OpenLetters | None,
        unfinished: Unfinished,
        sole: Sole | None = None,
        repairs_asked: RowRepairs | None = None,
        *,
        turns: Turns | None = None,
        limits: Callable[[], Limits],
        shard_keys: ShardKeys,
        sizes: CommandSizes,
        side_by_side: SideBySide,
        repairs: bool,
        several_shards: bool = False,
    ) -> None:
        self._commander = commander
        self._fetch = fetch if repairs else None
        self._at_shards = fetch if several_shards else None
        """Raises `DuplicateId` for a row that two shards of the source have."""
        self._look = RowLook(commander, fetch)
        self._letters = letters
        self._unfinished = unfinished
        self._sole = sole
        self._asked = repairs_asked or RowRepairs((), None)
        self._sender = BatchSender(commander, sizes, turns)
        self._rewrite = RowRewrite(commander, self._sender)
        self._limits = limits
        self._shard_keys = shard_keys
        self._side_by_side = side_by_side
        self._replay = False
        self._waiting = WaitingRows()
        self._unexplained = Unexplained()
        self._tries = WaitingTries(
            self._waiting,
            self._unexplained,
            commander=commander,
            look=self._look,
            unfinished=unfinished,
            again=self._again,
            missing=self._missing,
            rewrite=self._rewrite,
        )
        self._unsettled: set[TableId] = set()
        """Tables known to be unsettled: their skipped changes need not be remembered."""
        self._ahead: set[TableId] = set()
        """Tables with a row that was repaired outside a replay: that row is newer than the others."""
        self._result = WriteResult()

    def prepare(self, changes: Sequence[RowChange], *, replay: bool) -> Write:
        limits = self._limits()
        if limits.router:
            changes = self._shard_keys.known(changes)
        planned = plan(upserted(changes) if replay else changes, limits, self._sender.may_share, replay=replay)
        if not replay:
            planned = [part for batch in planned for part in new_fields_apart(batch, adds_fields)]
        batches = [batch if _sharded(batch) else _ready(batch) for batch in planned]
        return partial(self._write, changes, batches, replay=replay)

    def settle(self) -> WriteResult:
        """Takes two rounds, because a repaired row may have to wait for a value, too."""
        self._begin(replay=False)
        if self._letters is not None and self._sole is not None:
            self._letters.hold_requested(self._sole)
        self._repair_asked()
        for _ in range(2):
            self._write_held()
            self._tries.retry()
            self._tries.exchange()
            self._judge()
        self._write_held()
        self._give_up()
        self._end_letters()
        return self._ended()

    def _write(self, changes: Sequence[RowChange], batches: Sequence[Batch], *, replay: bool) -> WriteResult:
        self._begin(replay=replay)
        self._asked.meet(changes)
        if self._letters is not None:
            self._letters.meet({change.table.id for change in changes})
        together = self._confirms_together(changes, batches)
        with self._commander.confirming_together(changes[0].table.name.db) if together else nullcontext():
            sent = self._side_by_side.sent(batches, self._sender.attempt) if together and self._free else {}
            for number, batch in enumerate(batches):
                found = sent.get(number)
                lost = found is not None and found.reply is None
                self._apply(batch, again=lost, sent=None if lost else found)
        self._explain(changes)
        self._bound()
        return self._ended()

    def _confirms_together(self, changes: Sequence[RowChange], batches: Sequence[Batch]) -> bool:
        """One command waits for the majority itself, several wait together."""
        several = len(batches) > 1 or len(changes) > FIRST
        return several and self._limits().defers and not any(batch.joined for batch in batches)

    @property
    def _free(self) -> bool:
        """No change waits behind an earlier one of its row."""
        return not self._waiting and (self._letters is None or not self._letters.any_open)

    def _begin(self, *, replay: bool) -> None:
        """Starts the result of the changes that come next."""
        self._commander.begin()
        self._replay = replay
        self._result = self._sender.result = WriteResult()

    def _ended(self) -> WriteResult:
        self._result.tally.retries = self._commander.retries
        self._result.waits, self._result.waited = len(self._commander.waits), sum(self._commander.waits)
        return self._result

    def _apply(self, batch: Batch, *, again: bool = False, sent: Sent | None = None) -> None:
        """Returns when each change of the batch is applied, waits, or is in the result. `again`: some may have been applied before.

        `sent`: the batch was sent whole, when no change of its table waited.
        """
        if (unplaced := self._unplaced(batch)) is not None:
            self._place(unplaced, again=again)
            return
        if sent is None and batch.changes and len(batch.changes) > self._sender.most_of(batch):
            self._in_parts(batch, again=again)
            return
        replay, attempt = self._replay or again, 0
        while batch.changes:
            batch = batch if sent is not None else self._due(batch)
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
                self._apart(batch, again=replay)
                return
            except RowRejected as error:
                if not about_a_row(error):
                    raise error.about(batch.changes[0].table.id) from error.__cause__
                self._isolate(batch, error, again=replay)
                return
            replay = replay or repeated
            left = self._resolve(batch, outcome, replay=replay)
            if any(passing(refusal) for refusal in outcome.refusals):
                refusal = next(filter(passing, outcome.refusals))
                self._commander.wait(attempt, SinkUnavailable(told(batch.changes[refusal.index], refusal)))
                replay, attempt = True, attempt + 1
            batch = replace(batch, changes=left, command=None)

    def _unplaced(self, batch: Batch) -> Batch | None:
        if batch.placed or not batch.changes or not self._limits().router:
            return None
        known = replace(batch, changes=self._shard_keys.known(batch.changes))
        return known if _sharded(known) else None

    def _place(self, batch: Batch, *, again: bool) -> None:
        """Applies a batch of a table that the target shards. Few changes need a look for their row; after a repair, which may have brought a later
        place of a row, inserts do, too.
        """
        replay = self._replay or again or batch.changes[0].table.id in self._ahead
        changes = (self._sure(as_written(change, replay=replay)) for change in batch.changes)
        for part in of_different_rows(changes):
            wanted = [change for change in part if is_looked_for(change)]
            found = self._look.places(wanted) if wanted else {}
            for change in wanted:
                if len(found.get(row_key(change.key), ())) > 1:
                    self._found_twice(change)
            ready: list[RowChange] = []
            for change in part:
                placed = place(change, found.get(row_key(change.key), ()))
                if isinstance(placed, Move):
                    self._apply(replace(batch, changes=ready, command=None, placed=True), again=again)
                    ready = []
                    self._move(placed.change, replay=replay)
                else:
                    ready += placed
            self._apply(replace(batch, changes=ready, command=None, placed=True), again=again)

    def _found_twice(self, change: RowChange) -> None:
        if self._at_shards is not None:
            self._at_shards(change)
            return
        raise RowRejected(
            f"{change}: {change.table.name} has several documents of its _id, with different shard keys, of which Sluice keeps one: leave one at the "
            f"source, if it has several, too, then {_COPY_ANEW}"
        ).about(change.table.id)

    def _sure(self, change: RowChange) -> RowChange:
        """Without the shard key if changes of the row wait: they may leave it where the target has it."""
        unsure = self._waiting.has(change) or (self._letters is not None and self._letters.any_open)
        return change._replace(key=id_alone(change.key)) if unsure else change

    def _move(self, change: RowChange, *, replay: bool) -> None:
        """An orphan, which a moved chunk leaves on a shard until the shard has cleaned up, refuses its `_id` there, and no read finds it."""
        if not self._due(Batch([change], ordered=True)).changes:
            return
        attempt = 0
        while (refused := self._exchange_one(change)) is not None:
            refusal = refusal_in(refused)
            if refusal is None:
                self._reject(change, str(refused))
            elif refusal.duplicate_id:
                self._commander.wait(attempt, SinkUnavailable(f"{told(change, refusal)}; {_ORPHAN}"))
                attempt += 1
                continue
            elif refusal.duplicate:
                self._waiting.begin(change, refusal, replay=replay)
            else:
                self._reject(change, told(change, refusal))
            return
        self._unexplained.doubted(change)

    def _exchange_one(self, change: RowChange) -> RowRejected | None:
        try:
            self._commander.together(partial(exchanged, change.table, [[change]]), str(change))
        except RowRejected as error:
            return error
        return None

    def _due(self, batch: Batch) -> Batch:
        """The batch without the changes that have to wait."""
        if self._letters is not None and self._letters.any_open:
            batch = _without(batch, self._letters.holds)
        return _without(batch, self._waiting.queue) if self._waiting else batch

    def _in_parts(self, batch: Batch, *, again: bool) -> None:
        """Applies a batch in parts that are small enough for a slow target."""
        at = 0
        while at < len(batch.changes):
            until = at + self._sender.most_of(batch)
            self._apply(Batch(batch.changes[at:until], batch.ordered, batch.joined), again=again)
            self._commander.go_on()
            at = until

    def _apart(self, batch: Batch, *, again: bool) -> None:
        """Applies the updates that have no statement each by itself, in the order of the batch."""
        for expressible, run in groupby(batch.changes, partial(has_statement, first=batch.first)):
            if expressible:
                self._apply(replace(batch, changes=list(run), command=None), again=again)
                continue
            for change in run:
                if self._due(Batch([change], ordered=True)).changes:
                    self._apply_edited(change, replay=self._replay or again)

    def _apply_edited(self, change: RowChange, *, replay: bool) -> bool:
        """Whether the row is there."""
        viable = replay or self._noted_newer(change)
        try:
            rewritten = self._rewrite.apply([change], viable=viable)
        except RowRejected as error:
            refusal = refusal_in(error)
            if refusal is not None and refusal.duplicate:
                self._waiting.begin(change, refusal, replay=replay)
            else:
                self._reject(change, str(error) if refusal is None else told(change, refusal))
            return False
        if rewritten.fits:
            return True
        if rewritten.again and not viable:
            return self._apply_edited(change, replay=True)
        if not viable:
            self._diverged([change], _MISSHAPEN if rewritten.there else _MISSING)
            return False
        self._result.tally.skipped += 1
        self._unfit(change, _MISSHAPEN, missing=not rewritten.there)
        return rewritten.there

    def _isolate(self, batch: Batch, error: RowRejected, *, again: bool) -> None:
        """The command was refused as a whole: find the change that causes it."""
        if len(batch.changes) == 1:
            [change] = batch.changes
            if change.type is RowType.REPLACE and too_large_to_replace(change):
                self._renew(change)
            elif change.type is RowType.UPDATE:
                self._apply_edited(change, replay=self._replay or again)
            else:
                self._reject(change, f"{change}, of {change.size} bytes: {error}")
            return
        middle = len(batch.changes) // 2
        self._apply(Batch(batch.changes[:middle], batch.ordered, batch.joined), again=again)
        self._apply(Batch(batch.changes[middle:], batch.ordered, batch.joined), again=again)

    def _resolve(self, batch: Batch, outcome: BulkOutcome, *, replay: bool) -> list[RowChange]:
        """The changes that are still to be sent, in order."""
        left: list[RowChange] = []
        present: list[RowChange] = []
        for refusal in outcome.refusals:
            change = batch.changes[refusal.index]
            if passing(refusal):
                left.append(change)
            elif change.type is RowType.INSERT and refusal.duplicate_id:
                self._result.tally.duplicates += 1
                present.append(change._replace(type=RowType.REPLACE))
            else:
                self._refused(change, refusal, replay=replay)
        if present:
            if self._at_shards is not None and not (replay or self._replay):
                # one for each batch: where the target had rows before, each insert finds one
                self._at_shards(present[0])
            self._apply(Batch(present, ordered=True, joined=batch.joined))
        if outcome.unmatched:
            refused = {refusal.index for refusal in outcome.refusals}
            tried = [change for at, change in enumerate(batch.changes[: outcome.done]) if at not in refused]
            if batch.first:
                self._apply(replace(batch, changes=tried, command=None, first=False), again=replay)
            else:
                self._unmatched(batch, tried, outcome, replay=replay)
        return [*left, *batch.changes[outcome.done :]]

    def _refused(self, change: RowChange, refusal: Refusal, *, replay: bool) -> None:
        if unauthorized_code(refusal.code, refusal.message):
            raise SinkRefused(f"{told(change, refusal)}; check the roles of the sink's user")
        if change.type is RowType.REPLACE and (refusal.duplicate_id or refusal.code == IMMUTABLE):
            self._displace(change)
        elif change.document is not None and refusal.code == DOLLAR_NAME:
            self._renew(change)
        elif refusal.duplicate and not refusal.duplicate_id:
            self._waiting.begin(change, refusal, replay=self._replay or replay)
        elif change.type is RowType.UPDATE and misfit(refusal):
            if replay or self._noted_newer(change):
                self._apply_edited(change, replay=True)
            else:
                self._diverged([change], refusal.message)
        else:
            self._reject(change, told(change, refusal))

    def _displace(self, change: RowChange) -> None:
        """The existing document cannot be changed into this one, only removed."""
        if change.table.shard_key:
            self._move(change, replay=self._replay)
        elif holds_zero_time(change.document) or too_large_to_replace(change):
            self._renew(change)
        else:
            self._sender.send_alone(change, displace_command(change))
            self._replace(change, renewable=True)

    def _renew(self, change: RowChange) -> None:
        """Removes and inserts the document in one transaction."""
        try:
            self._commander.together(partial(_renewed, change), str(change))
        except RowRejected as error:
            refusal = refusal_in(error)
            if refusal is None:
                self._reject(change, str(error))
            elif refusal.code in NO_TRANSACTION:
                self._replace(change)
            elif refusal.duplicate:
                self._waiting.begin(change, refusal, replay=self._replay)
            else:
                self._reject(change, told(change, refusal))

    def _replace(self, change: RowChange, *, renewable: bool = False) -> None:
        """`renewable`: under a collation, a key finds the row of another spelling, and a document of that spelling can only be inserted."""
        for refusal in self._sender.send_alone(change, net_command(change)).refusals:
            if renewable and refusal.code == IMMUTABLE:
                self._renew(change)
            elif refusal.duplicate and not refusal.duplicate_id:
                self._waiting.begin(change, refusal, replay=self._replay)
            else:
                self._reject(change, told(change, refusal))

    def _unfit(self, change: RowChange, reason: str, *, missing: bool) -> None:
        if missing:
            self._missing(change)
        elif change.table.id not in self._unsettled:
            self._unexplained.misfit(change, reason)

    def _missing(self, change: RowChange) -> None:
        if change.table.id not in self._unsettled:
            self._unexplained.missing(change, _MISSING)

    def _unmatched(self, batch: Batch, tried: Sequence[RowChange], outcome: BulkOutcome, *, replay: bool) -> None:
        if outcome.unmatched_at is not None:
            lost = [batch.changes[at] for at in outcome.unmatched_at]
        else:
            lost = self._lost(tried, outcome.unmatched)
        missing: list[RowChange] = []
        redone: set[tuple[TableId, bytes]] = set()
        for change in lost:
            row = _row_of(change)
            if not depends_on_shape(change):
                missing.append(change)
            elif row not in redone and self._apply_edited(change, replay=replay):
                redone.add(row)
                self._redo(batch, tried, change)
        skipped = [change for change in missing if replay or self._noted_newer(change)]
        for change in skipped:
            self._result.tally.skipped += 1
            self._missing(change)
        if not replay:
            self._diverged([change for change in missing if not self._noted_newer(change)], _MISSING)

    def _redo(self, batch: Batch, tried: Sequence[RowChange], change: RowChange) -> None:
        """The later changes of its row, which were applied before it."""
        later = tried[next(at for at, each in enumerate(tried) if each is change) + 1 :]
        of_its_row = [each for each in later if _row_of(each) == _row_of(change)]
        self._apply(replace(batch, changes=of_its_row, command=None, ordered=True), again=True)

    def _lost(self, changes: Sequence[RowChange], count: int) -> list[RowChange]:
        """The changes that found no document; `count` is their number."""
        updates = [change for change in changes if change.type is RowType.UPDATE]
        absent = self._look.absent(updates)
        return absent if absent is not None and len(absent) == count else self._locate(changes)

    def _locate(self, changes: Sequence[RowChange]) -> list[RowChange]:
        """Finds the updates without a document by bisection: sending an update again changes nothing."""
        outcome, _ = self._sender.send(Batch(changes, ordered=False))
        if not outcome.unmatched:
            return []
        if len(changes) == 1:
            return list(changes)
        middle = len(changes) // 2
        return [*self._locate(changes[:middle]), *self._locate(changes[middle:])]

    def _diverged(self, changes: Sequence[RowChange], reason: str) -> None:
        if not changes:
            return
        if self._fetch is None:
            self._expect_newer(changes, reason)
            return
        for change in changes:
            if (row := self._fetch(change)) is not None:
                if not self._replay:
                    self._ahead.add(change.table.id)
                self._repair(change, reason, row)
            else:
                self._deviates(change, f"{reason}, and the source has dropped its table")

    def _noted_newer(self, change: RowChange) -> bool:
        return self._letters is not None and self._letters.explains(change)

    def _expect_newer(self, changes: Sequence[RowChange], reason: str) -> None:
        """A row that is as the source has it now may have been read there for a repair that a user asked for, by a node that has left since: nobody
        else knows that it is newer. Any other row is divergence.
        """
        differing: list[Compared] = []
        for change in changes:
            compared = self._look.compared(change, reason)
            if compared.differs:
                differing.append(compared)
                if len(differing) > _MOST_NAMED:
                    break
                continue
            self._result.tally.skipped += 1
            if compared.row is not None:
                self._ahead.add(change.table.id)
                self._result.read_at(change.table.id, compared.row.read_ts)
        if differing:
            raise _divergence(differing)

    def _repair(self, change: RowChange, reason: str, row: SourceRow) -> None:
        self._deviates(change, reason)
        kind = RowType.DELETE if row.document is None else RowType.REPLACE
        whole = change._replace(type=kind, document=row.document, update=None)
        self._unexplained.explain([whole])
        self._result.read_at(change.table.id, row.read_ts)
        self._apply_of_now(whole)

    def _deviates(self, change: RowChange, reason: str) -> None:
        self._result.was_repaired(change, reason)

    def _explain(self, changes: Sequence[RowChange]) -> None:
        """Explains skipped changes by the changes of the same group or of later ones."""
        self._unexplained.explain(changes)

    def _judge(self) -> None:
        """Decides about skipped changes that no later change explained."""
        left: list[OpenRow] = []
        for row in self._unexplained.take():
            table = row.change.table.id
            if table in self._unsettled or self._noted_newer(row.change) or self._look.well(row):
                continue
            if self._unfinished(table):
                self._unsettled.add(table)
                self._result.unsettled.add(table)
            else:
                left.append(row)
        differing: list[Compared] = []
        for row in left:
            compared = self._look.compared(row.change, row.reason)
            if not compared.differs:
                continue
            if self._fetch is not None and compared.row is not None:
                self._repair(row.change, row.reason, compared.row)
                continue
            differing.append(compared)
            if len(differing) > _MOST_NAMED:
                break
        if differing:
            raise _divergence(differing)

    def _bound(self) -> None:
        """Keeps the waiting and the unexplained changes within their limits of memory."""
        if self._unexplained.bytes > UNEXPLAINED_BYTES:
            self._judge()
        if self._waiting.bytes > WAITING_BYTES:
            self._tries.retry()
        if self._waiting.bytes > WAITING_BYTES:
            self._give_up()

    def _write_held(self) -> None:
        """Writes the source's documents of now for the held rows. They are newer than the other rows of the run."""
        if self._letters is None:
            return
        for whole in self._letters.rows_of_now():
            self._unexplained.explain([whole])
            self._apply_of_now(whole)
            self._commander.go_on()

    def _again(self, change: RowChange, *, replay: bool) -> None:
        before, self._replay = self._replay, replay
        self._apply(Batch([change], ordered=True))
        self._replay = before

    def _apply_of_now(self, whole: RowChange) -> None:
        """A row as the source has it now. Under which shard key the target has it, no change has to know."""
        row = whole._replace(key=id_alone(whole.key)) if self._limits().router else whole
        self._apply(Batch([row], ordered=True))

    def _repair_asked(self) -> None:
        """Writes the rows that a verification found different. They are newer than the other rows of the run."""
        if self._letters is not None:
            self._letters.meet(self._asked.tables)
        for whole, read_ts in self._asked.rows_of_now():
            self._ahead.add(whole.table.id)
            self._result.read_at(whole.table.id, read_ts)
            self._deviates(whole, "a verification found it different")
            self._unexplained.explain([whole])
            self._apply_of_now(whole)
            self._commander.go_on()

    def _left_as_it_is(self, change: RowChange, said: str) -> bool:
        """A row that is refused although only a verification asked for it needs no letter and stops no table: the verification shows it."""
        lettered = self._letters is not None and self._letters.tries(change)
        if lettered or not self._asked.only_asked(change):
            return False
        _log.warning("row_not_repaired", reason=said)
        return True

    def _end_letters(self) -> None:
        if self._letters is None:
            return
        for table, read_ts in self._letters.newer().items():
            self._result.read_at(table, read_ts)
        self._letters.close()
        if self._sole is not None:
            self._letters.end_notes(self._sole)

    def _renewed(self, chain: Chain) -> bool:
        """Whether the chain is of a row with a letter, which is renewed. If the target is ahead of the run, the row may fit later."""
        change = chain.changes[-1]
        if self._letters is None or not self._letters.tries(change):
            return False
        if self._unfinished(change.table.id):
            self._letters.leave(change)
            return False
        self._reject(change, told(change, chain.refusal))
        return True

    def _give_up(self) -> None:
        chains = [chain for chain in self._waiting.take() if not self._renewed(chain)]
        if self._letters is not None:
            self._ahead |= self._letters.newer().keys()
        for chain in chains:
            table = chain.changes[0].table.id
            if self._left_as_it_is(chain.changes[0], told(chain.changes[0], chain.refusal)):
                continue
            if self._unfinished(table) or table in self._ahead:
                self._result.unsettled.add(table)
                continue
            for change in chain.changes:
                self._reject(change, told(change, chain.refusal))

    def _reject(self, change: RowChange, said: str) -> None:
        if self._left_as_it_is(change, said):
            return
        if self._letters is None:
            raise RowRejected(f"{said}; {_REMEDY}").about(change.table.id)
        self._letters.write(change, said)
        self._result.was_refused(change, said)


def _without(batch: Batch, taken: Callable[[RowChange], bool]) -> Batch:
    """The batch without the changes that are taken; the same batch, with its command, if there are none."""
    left = [change for change in batch.changes if not taken(change)]
    return batch if len(left) == len(batch.changes) else replace(batch, changes=left, command=None)


def _row_of(change: RowChange) -> tuple[TableId, bytes]:
    return change.table.id, row_key(change.key)


def _ready(batch: Batch) -> Batch:
    try:
        return batch.ready(command_of(batch))
    except Inexpressible:
        return batch


def _sharded(batch: Batch) -> bool:
    """A batch for a router is of one table."""
    return bool(batch.changes) and bool(batch.changes[0].table.shard_key)


def _renewed(change: RowChange, send: Send) -> None:
    for command in renewal_commands(change):
        send(change.table.name.db, command)


def _divergence(rows: Sequence[Compared]) -> Divergence:
    named = "; ".join(f"{row.change}: {row.reason}" for row in rows[:_MOST_NAMED])
    more = f"; there are more than {_MOST_NAMED} such rows" if len(rows) > _MOST_NAMED else ""
    return Divergence(
        f"{named}{more}. Another client writes to the target, or the target differed when the changefeed started: make these rows equal to "
        f"the source's, or let Sluice repair them (on_divergence: repair), or have the table copied anew (`sluice table recopy`); then resume"
    ).about(rows[0].change.table.id)
