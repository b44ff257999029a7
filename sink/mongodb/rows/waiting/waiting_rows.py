"""`WaitingRows`: changes that wait because a unique index refused them, and later changes of the same keys. Pure."""

from __future__ import annotations

from typing import NamedTuple

from changefeed.documents.row_key import row_key
from changefeed.event import RowType
from changefeed.table import TableName
from sink.mongodb.rows.bulk_command import Refusal
from sink.row import RowChange


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
