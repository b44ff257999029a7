"""`WaitingRows`: changes that a unique index refused for now, and what came after them on the same key. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from changefeed.event import RowType
from changefeed.row_key import row_key
from changefeed.table import TableName
from sink.mongodb.bulk_command import Refusal
from sink.row import RowChange


class WaitingRows:
    """Chains of changes, one for each key, in order. The refusal is that of a chain's first change."""

    def __init__(self) -> None:
        self._chains: dict[tuple[TableName, bytes], tuple[Refusal, list[RowChange]]] = {}

    def __len__(self) -> int:
        return sum(len(chain) for _, chain in self._chains.values())

    def begin(self, change: RowChange, refusal: Refusal) -> None:
        self._chains[_identity(change)] = (refusal, [change])

    def queue(self, change: RowChange) -> bool:
        """Whether the change has to wait too. One that says the whole of its document makes an end of what waits."""
        if not self._chains or (identity := _identity(change)) not in self._chains:
            return False
        if change.type is RowType.UPDATE:
            self._chains[identity][1].append(change)
            return True
        del self._chains[identity]
        return False

    def take(self) -> Iterator[tuple[Refusal, list[RowChange]]]:
        """All chains in the order of their beginnings; they wait no longer."""
        chains, self._chains = self._chains, {}
        yield from chains.values()


def _identity(change: RowChange) -> tuple[TableName, bytes]:
    return change.table.name, row_key(change.key)
