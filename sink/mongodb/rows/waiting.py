"""`WaitingRows`: changes that a unique index refused, with later changes of their rows; `WaitingTries`: how they get in at last.

In a replay a row of the target may already have a value that, at this point of the history, another row has. A later change removes the value
from the other row. So the waiting changes are tried again at the end of the run, while some succeed:

    step         change by change
    leap         all changes of a row as one, as only its last state has to be free
    exchange     rows that wait only for each other's values get them in one transaction

What even the transaction cannot write waits on, for the run to decide (docs/why/order-and-replay.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from changefeed.documents.row_key import row_key
from changefeed.errors import RowRejected
from changefeed.event import RowType
from changefeed.table import TableName
from sink.mongodb.commander import Commander
from sink.mongodb.refusal import Refusal
from sink.mongodb.rows.placing import Placing
from sink.mongodb.rows.row_look import RowLook, RowsAtSource
from sink.mongodb.rows.row_place import spread
from sink.mongodb.rows.row_rewrite import RowRewrite
from sink.mongodb.rows.rows_ahead import RowsAhead
from sink.mongodb.rows.unexplained import Unexplained
from sink.row import RowChange, Unfinished


class Chain(NamedTuple):
    """Changes of one key. `refusal` is that of the first change; `replay`: whether the first change may have been applied before."""

    refusal: Refusal
    changes: list[RowChange]
    replay: bool


class WaitingRows:
    """One chain for each key, in order."""

    def __init__(self) -> None:
        self._chains: dict[tuple[TableName, bytes], Chain] = {}
        self.bytes = 0

    def __len__(self) -> int:
        return sum(len(chain.changes) for chain in self._chains.values())

    def begin(self, change: RowChange, refusal: Refusal, *, replay: bool) -> None:
        self._chains[_identity(change)] = Chain(refusal, [change], replay)
        self.bytes += change.size

    def restore(self, chain: Chain) -> None:
        self._chains[_identity(chain.changes[0])] = chain
        self.bytes += sum(change.size for change in chain.changes)

    def has(self, change: RowChange) -> bool:
        """Whether earlier changes of the row wait."""
        return bool(self._chains) and _identity(change) in self._chains

    def queue(self, change: RowChange) -> bool:
        """Whether the change has to wait, too. A delete or a whole document removes the chain of its key and does not wait."""
        if not self._chains or (identity := _identity(change)) not in self._chains:
            return False
        if change.type is RowType.UPDATE:
            self._chains[identity].changes.append(change)
            self.bytes += change.size
            return True
        self.bytes -= sum(waiting.size for waiting in self._chains.pop(identity).changes)
        return False

    def take(self) -> list[Chain]:
        """Removes and returns all chains, in the order in which they began."""
        chains, self._chains, self.bytes = self._chains, {}, 0
        return list(chains.values())


def _identity(change: RowChange) -> tuple[TableName, bytes]:
    return change.table.name, row_key(change.key)


class Again(Protocol):
    def __call__(self, change: RowChange, *, replay: bool) -> None:
        """Applies the change as if it came now. It may wait anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SingleRows:
    """How a run reaches a row by itself."""

    commander: Commander
    source: RowsAtSource
    look: RowLook
    placing: Placing
    rewrite: RowRewrite
    ahead: RowsAhead


@dataclass(frozen=True, slots=True)
class WaitingTries:
    waiting: WaitingRows
    unexplained: Unexplained
    rows: SingleRows
    again: Again

    def retry(self) -> None:
        for attempt in (self._step, self._leap, self._step, self._leap):
            while self.waiting and attempt():
                pass

    def _step(self) -> bool:
        before = len(self.waiting)
        for chain in self.waiting.take():
            for change in chain.changes:
                self.again(change, replay=chain.replay)
            self.unexplained.explain(chain.changes)
        return len(self.waiting) < before

    def _leap(self) -> bool:
        before = len(self.waiting)
        for chain in self.waiting.take():
            missing = self._net(chain)
            if missing is None:
                self.waiting.restore(chain)
            else:
                self._went_in_together(chain, missing=missing)
            self.rows.commander.go_on()
        return len(self.waiting) < before

    def _net(self, chain: Chain) -> bool | None:
        """Writes a chain as one change; returns whether its document is missing, None when the target refused it.

        A row of a table that the target shards may have to move.
        """
        last = chain.changes[-1]
        try:
            if not spread(last.table):
                return not self.rows.rewrite.apply(chain.changes, viable=True).there
            self.rows.placing.exchange(last.table, [chain.changes], str(last))
        except RowRejected:
            return None
        return self.rows.look.gone(last)

    def exchange(self, unfinished: Unfinished) -> None:
        by_table: dict[TableName, list[Chain]] = {}
        for chain in self.waiting.take():
            table = chain.changes[0].table
            if unfinished(table.id):
                self.waiting.restore(chain)
            else:
                by_table.setdefault(table.name, []).append(chain)
        for name, waiting in by_table.items():
            rows = [chain.changes for chain in waiting]
            try:
                self.rows.placing.exchange(rows[0][0].table, rows, f"an exchange of values in {name}")
            except RowRejected:
                for chain in waiting:
                    self.waiting.restore(chain)
            else:
                for chain in waiting:
                    self._went_in_together(chain, missing=self.rows.look.gone(chain.changes[-1]))
                    self.rows.commander.go_on()

    def _went_in_together(self, chain: Chain, *, missing: bool = False) -> None:
        """Records the changes as unexplained until a later one explains them: the server did not report which of them fitted."""
        for change in chain.changes:
            self.unexplained.doubted(change)
        self.unexplained.explain(chain.changes)
        if missing:
            self.unexplained.missing(chain.changes[-1])
