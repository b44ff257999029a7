"""`RowLook`: reads single rows at the target and at the source, when the reply to a write is not enough."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from changefeed.documents.row_key import row_key
from sink.mongodb.commander import Commander
from sink.mongodb.rows.bulk_command import anywhere_command, document_command, present_command
from sink.mongodb.rows.row_place import spread
from sink.mongodb.rows.unexplained import OpenRow
from sink.row import FetchRow, RowChange, SourceRow

_IDS_BYTES = 8 << 20
"""The largest size of the `_id`s in one query."""


@dataclass(frozen=True, slots=True)
class Compared:
    """`row` is the source's; None if the source may not be read, or has dropped the table."""

    change: RowChange
    reason: str
    row: SourceRow | None
    differs: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsAtSource:
    """How a run reads rows at the source. Without `fetch` it reads none."""

    fetch: FetchRow | None = None
    repairs: bool = False
    """Whether a divergent row is written as the source has it."""
    several_shards: bool = False
    """Whether the source has shards, of which two may have a document of one `_id`."""

    def expects_one(self, change: RowChange) -> bool:
        """Raises `DuplicateId` for a row that two shards of the source have. Returns whether it has looked for them."""
        if self.fetch is None or not self.several_shards:
            return False
        self.fetch(change)
        return True

    @property
    def for_repair(self) -> FetchRow | None:
        return self.fetch if self.repairs else None


class RowLook:
    def __init__(self, commander: Commander, fetch: FetchRow | None) -> None:
        self._commander = commander
        self._fetch = fetch

    def absent(self, changes: Sequence[RowChange]) -> list[RowChange] | None:
        """The changes whose documents do not exist. None if one query cannot decide it."""
        if any(spread(change.table) for change in changes) or sum(len(c.key) for c in changes) > _IDS_BYTES:
            return None
        wanted = [row_key(change.key) for change in changes]
        found = self._commander.found(present_command(changes), f"looking for {len(changes)} rows")
        present = {row_key(bytes(document.raw)) for document in found}
        if not present <= set(wanted):
            return None  # the collation treats other keys as equal to these
        return [change for change, key in zip(changes, wanted, strict=True) if key not in present]

    def gone(self, change: RowChange) -> bool:
        return not self._there(change, anywhere_command(change))

    def well(self, row: OpenRow) -> bool:
        """Whether the document fits all unexplained updates by now, or has moved to another shard key value."""
        if row.decidable:
            found = self._commander.found(document_command(row.change), f"reading the row of {row.change}")
            return bool(found) and row.fits(bytes(found[0].raw))
        if not spread(row.change.table) or row.misfits:
            return False
        return self._there(row.change, anywhere_command(row.change))

    def compared(self, change: RowChange, reason: str) -> Compared:
        """With the source's row of now. If the source may not be read, the row counts as different."""
        if self._fetch is None:
            return Compared(change, reason, None, differs=True)
        there = self._fetch(change)
        if there is None:
            return Compared(change, reason, None, differs=False)
        find = anywhere_command(change)
        found = self._commander.found(find, f"reading the row of {change}")
        here = bytes(found[0].raw) if found else None
        return Compared(change, reason, there, differs=there.document != here)

    def _there(self, change: RowChange, find: tuple[str, dict[str, object]]) -> bool:
        return bool(self._commander.found(find, f"reading the row of {change}"))
