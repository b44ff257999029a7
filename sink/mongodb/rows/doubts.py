"""`Doubts`: the rows of one run that are not as its changes say, and what settles each.

**What a replay skips has to be explained.** `Unexplained` remembers each row with a skipped part until a later change explains it.
If the target may be ahead of the whole run, a row that is unexplained at the end makes its table *unsettled*: its changes are written again,
together with later ones. Otherwise the row is compared with the source's; a difference is divergence (docs/why/order-and-replay.md).

**A refused unique value waits** until the end of the run (`waiting.py`). If the target may be ahead of the whole run, rows that still
wait make the table *unsettled*. They also do if a row of the table was repaired: a repaired row has the state of the time at which it was
read, and until that time its unique value may belong to another row. Otherwise they are rejected.

**A row with a dead letter** is not sent: its changes are held until the end of the run, which writes the source's document of now
(`letters/open_letters.py`). Refused again, it is no reason to make its table unsettled: its letter is renewed.

**A row that a verification found different** is written as the source has it, at the end of the run (`sink/asked_rows.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import structlog

from changefeed.cluster_time import ClusterTime
from changefeed.errors import Divergence, RowRejected
from changefeed.event import RowType
from changefeed.table import COPY_ANEW, TableId
from sink.asked_rows import RowRepairs
from sink.mongodb.letters.open_letters import OpenLetters
from sink.mongodb.refusal import Refusal, RefusedRow, told
from sink.mongodb.rows.bulk_plan import Batch
from sink.mongodb.rows.row_look import Compared
from sink.mongodb.rows.unexplained import OpenRow, Unexplained
from sink.mongodb.rows.waiting import Again, Chain, SingleRows, WaitingRows, WaitingTries
from sink.row import RowChange, Sole, SourceRow, Unfinished, WriteResult

_log = structlog.get_logger(__name__)

WAITING_BYTES = 64 << 20
UNEXPLAINED_BYTES = 64 << 20
_MOST_NAMED = 10
_REMEDY = (
    "remove the cause at the target and resume the table (with on_rejected: stop_changefeed, the changefeed), or have such rows kept as dead "
    "letters (on_rejected: dead_letter)"
)


@dataclass(slots=True, kw_only=True)
class RunState:
    """What a run knows while it writes. `ahead`: tables with a row that was repaired outside a replay: that row is newer than the others."""

    replay: bool = False
    result: WriteResult = field(default_factory=WriteResult)
    ahead: set[TableId] = field(default_factory=set)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTables:
    """`unfinished`: tables of which the target may be ahead even of the run's last change. `sole`: tables that the run alone writes."""

    unfinished: Unfinished
    sole: Sole | None = None


class Doubts:
    def __init__(
        self,
        state: RunState,
        tables: RunTables,
        rows: SingleRows,
        letters: OpenLetters | None,
        asked: RowRepairs,
        again: Again,
    ) -> None:
        """`again` applies a change as if it came now."""
        self._state = state
        self._tables = tables
        self._rows = rows
        self._fetch = rows.source.for_repair
        self._letters = letters
        self._asked = asked
        self._again = again
        self._waiting = WaitingRows()
        self._unexplained = Unexplained()
        self._tries = WaitingTries(self._waiting, self._unexplained, rows, again)

    def meet(self, changes: Sequence[RowChange]) -> None:
        self._asked.meet(changes)
        if self._letters is not None:
            self._letters.meet({change.table.id for change in changes})

    @property
    def none_wait(self) -> bool:
        """No change waits behind an earlier one of its row."""
        return not self._waiting and not self._holds_some

    def may_wait(self, change: RowChange) -> bool:
        """Whether earlier changes of the row may wait."""
        return self._waiting.has(change) or self._holds_some

    def due(self, batch: Batch) -> Batch:
        """The batch without the changes that have to wait."""
        if self._letters is not None and self._letters.any_open:
            batch = _without(batch, self._letters.holds)
        return _without(batch, self._waiting.queue) if self._waiting else batch

    @property
    def _holds_some(self) -> bool:
        return self._letters is not None and self._letters.any_open

    def wait(self, change: RowChange, refusal: Refusal, *, replay: bool) -> None:
        """The change waits until another row gives up its unique value."""
        self._waiting.begin(change, refusal, replay=replay)

    def refused(self, change: RowChange, refused: RefusedRow, *, replay: bool) -> None:
        if refused.taken is not None:
            self.wait(change, refused.taken, replay=replay)
        elif replay and change.type is RowType.UPDATE and self._letters is None and self._fetch is not None:
            # of a target that is ahead it may make a state that the source never had
            self._state.result.tally.skipped += 1
            self._unexplained.missing(change, refused.said)
        else:
            self.reject(change, refused.said)

    def reject(self, change: RowChange, said: str) -> None:
        if self._left_as_it_is(change, said):
            return
        if self._letters is None:
            raise RowRejected(f"{said}; {_REMEDY}").about(change.table.id)
        self._letters.write(change, said)
        self._state.result.was_refused(change, said)

    def skipped(self, change: RowChange, misfit: str | None = None) -> None:
        """The target may be ahead of the change: its document is missing, or `misfit` says why it does not fit."""
        self._state.result.tally.skipped += 1
        if misfit is None:
            self._unexplained.missing(change)
        else:
            self._unexplained.misfit(change, misfit)

    def moved(self, change: RowChange) -> None:
        """The server did not report whether the change fitted."""
        self._unexplained.doubted(change)

    def explain(self, changes: Sequence[RowChange]) -> None:
        """Explains skipped changes by the changes of the same group or of later ones."""
        self._unexplained.explain(changes)

    def noted_newer(self, change: RowChange) -> bool:
        return self._letters is not None and self._letters.explains(change)

    def diverged(self, changes: Sequence[RowChange], reason: str) -> None:
        if not changes:
            return
        if self._fetch is None:
            self._refuse_differing(changes, reason)
            return
        for change in changes:
            if (row := self._fetch(change)) is not None:
                if not self._state.replay:
                    self._state.ahead.add(change.table.id)
                self._repair(change, reason, row)
            else:
                self._state.result.was_repaired(change, f"{reason}, and the source has dropped its table")

    def bound(self) -> None:
        """Keeps the waiting and the unexplained changes within their limits of memory."""
        if self._unexplained.bytes > UNEXPLAINED_BYTES:
            self._judge()
        if self._waiting.bytes > WAITING_BYTES:
            self._tries.retry()
        if self._waiting.bytes > WAITING_BYTES:
            self._give_up()

    def settle(self) -> None:
        """Takes two rounds, because a repaired row may have to wait for a value, too."""
        if self._letters is not None and self._tables.sole is not None:
            self._letters.hold_requested(self._tables.sole)
        self._repair_asked()
        for _ in range(2):
            self._write_held()
            self._tries.retry()
            self._tries.exchange(self._tables.unfinished)
            self._judge()
        self._write_held()
        self._give_up()
        self._end_letters()

    def _refuse_differing(self, changes: Sequence[RowChange], reason: str) -> None:
        """Where rows are not repaired: raises for those that differ from the source's rows of now. One that does not is taken for newer than its
        changes: a node may have written it so for a repair that a user asked for, and left, so that nobody knows of it.
        """
        differing: list[Compared] = []
        for change in changes:
            compared = self._compared(change, reason)
            if compared.differs:
                differing.append(compared)
                if len(differing) > _MOST_NAMED:
                    break
                continue
            self._state.result.tally.skipped += 1
            if compared.row is not None:
                self._state.ahead.add(change.table.id)
                self._state.result.read_at(change.table.id, compared.row.read_ts)
        if differing:
            raise _divergence(differing)

    def _repair(self, change: RowChange, reason: str, row: SourceRow) -> None:
        self._state.result.was_repaired(change, reason)
        self._state.result.read_at(change.table.id, row.read_ts)
        self._write_of_now(change.as_now(row), row.read_ts)

    def _write_of_now(self, whole: RowChange, read_ts: ClusterTime) -> None:
        """A row as the source has it now. Under which shard key the target has it, no change has to know."""
        self._rows.ahead.note(self._rows.commander, whole.table.id, read_ts)
        self._unexplained.explain([whole])
        self._again(self._rows.placing.anywhere(whole), replay=self._state.replay)

    def _judge(self) -> None:
        """Decides about skipped changes that no later change explained."""
        left: list[OpenRow] = []
        for row in self._unexplained.take():
            table = row.change.table.id
            if table in self._unexplained.unsettled or self.noted_newer(row.change) or self._well(row):
                continue
            if self._tables.unfinished(table):
                self._unexplained.unsettled.add(table)
                self._state.result.unsettled.add(table)
            else:
                left.append(row)
        differing: list[Compared] = []
        for row in left:
            compared = self._compared(row.change, row.reason)
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

    def _compared(self, change: RowChange, reason: str) -> Compared:
        compared = self._rows.look.compared(change, reason)
        self._rows.commander.go_on()
        return compared

    def _well(self, row: OpenRow) -> bool:
        well = self._rows.look.well(row)
        self._rows.commander.go_on()
        return well

    def _write_held(self) -> None:
        """Writes the source's documents of now for the held rows. They are newer than the other rows of the run."""
        if self._letters is None:
            return
        for whole, read_ts in self._letters.rows_of_now():
            self._write_of_now(whole, read_ts)

    def _repair_asked(self) -> None:
        """Writes the rows that a verification found different. They are newer than the other rows of the run."""
        if self._letters is not None:
            self._letters.meet(self._asked.tables)
        for whole, read_ts in self._asked.rows_of_now():
            self._state.ahead.add(whole.table.id)
            self._state.result.read_at(whole.table.id, read_ts)
            self._state.result.was_repaired(whole, "a verification found it different")
            self._write_of_now(whole, read_ts)

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
            self._state.result.read_at(table, read_ts)
        self._letters.close()
        if self._tables.sole is not None:
            self._letters.end_notes(self._tables.sole)

    def _renewed(self, chain: Chain) -> bool:
        """Whether the chain is of a row with a letter, which is renewed. If the target is ahead of the run, the row may fit later."""
        change = chain.changes[-1]
        if self._letters is None or not self._letters.tries(change):
            return False
        if self._tables.unfinished(change.table.id):
            self._letters.leave(change)
            return False
        self.reject(change, told(change, chain.refusal))
        return True

    def _give_up(self) -> None:
        chains = [chain for chain in self._waiting.take() if not self._renewed(chain)]
        if self._letters is not None:
            self._state.ahead |= self._letters.newer().keys()
        for chain in chains:
            table = chain.changes[0].table.id
            if self._left_as_it_is(chain.changes[0], told(chain.changes[0], chain.refusal)):
                continue
            if self._tables.unfinished(table) or table in self._state.ahead:
                self._state.result.unsettled.add(table)
                self._state.result.blocked[table] = told(chain.changes[0], chain.refusal)
                continue
            for change in chain.changes:
                self.reject(change, told(change, chain.refusal))


def _without(batch: Batch, taken: Callable[[RowChange], bool]) -> Batch:
    """The batch without the changes that are taken; the same batch, with its command, if there are none."""
    left = [change for change in batch.changes if not taken(change)]
    return batch if len(left) == len(batch.changes) else replace(batch, changes=left, command=None)


def _divergence(rows: Sequence[Compared]) -> Divergence:
    named = "; ".join(f"{row.change}: {row.reason}" for row in rows[:_MOST_NAMED])
    more = f"; there are more than {_MOST_NAMED} such rows" if len(rows) > _MOST_NAMED else ""
    return Divergence(
        f"{named}{more}. Another client writes to the target, or the target differed when the changefeed started: make these rows equal to "
        f"the source's, or let Sluice repair them (on_divergence: repair), or {COPY_ANEW}; then resume"
    ).about(rows[0].change.table.id)
