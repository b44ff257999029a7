"""`RowLook`: reads single rows at the target and at the source, when the reply to a write is not enough."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from changefeed.documents.row_key import row_key
from sink.mongodb.commander import Commander
from sink.mongodb.rows.bulk_command import document_command, places_command, present_command
from sink.mongodb.rows.row_place import key_of_document
from sink.mongodb.rows.unexplained import OpenRow
from sink.row import FetchRow, RowChange, SourceRow

_IDS_BYTES = 8 << 20
"""The largest size of the `_id`s in one query."""
_LOOKED_FOR = 1_000
"""Rows in one query whose reply has their whole keys."""


@dataclass(frozen=True, slots=True)
class Compared:
    """`row` is the source's; None if the source may not be read, or has dropped the table."""

    change: RowChange
    reason: str
    row: SourceRow | None
    differs: bool


class RowLook:
    def __init__(self, commander: Commander, fetch: FetchRow | None) -> None:
        self._commander = commander
        self._fetch = fetch

    def absent(self, changes: Sequence[RowChange]) -> list[RowChange] | None:
        """The changes whose documents do not exist. None if one query cannot decide it."""
        if any(change.table.shard_key for change in changes) or sum(len(c.key) for c in changes) > _IDS_BYTES:
            return None
        wanted = [row_key(change.key) for change in changes]
        found = self._commander.found(present_command(changes), f"looking for {len(changes)} rows")
        present = {row_key(bytes(document.raw)) for document in found}
        if not present <= set(wanted):
            return None  # the collation treats other keys as equal to these
        return [change for change, key in zip(changes, wanted, strict=True) if key not in present]

    def places(self, changes: Sequence[RowChange]) -> dict[bytes, list[bytes]]:
        """The whole keys under which a router has the rows of the changes, which are of one table. Rows that it does not have are left out."""
        found: dict[bytes, list[bytes]] = {}
        for part in _parts(changes):
            for document in self._commander.found(places_command(part), f"looking for {len(part)} rows"):
                raw = bytes(document.raw)
                found.setdefault(row_key(raw), []).append(key_of_document(raw, part[0].table.shard_key))
        return found

    def gone(self, change: RowChange) -> bool:
        return not self._there(change, document_command(change, by_id=bool(change.table.shard_key)))

    def well(self, row: OpenRow) -> bool:
        """Whether the document fits all unexplained updates by now, or has moved to another shard key value."""
        if row.decidable:
            found = self._commander.found(document_command(row.change), f"reading the row of {row.change}")
            return bool(found) and row.fits(bytes(found[0].raw))
        if not row.change.table.shard_key or row.misfits:
            return False
        return self._there(row.change, document_command(row.change, by_id=True))

    def compared(self, change: RowChange, reason: str) -> Compared:
        """With the source's row of now. If the source may not be read, the row counts as different."""
        if self._fetch is None:
            return Compared(change, reason, None, differs=True)
        there = self._fetch(change)
        if there is None:
            return Compared(change, reason, None, differs=False)
        find = document_command(change, by_id=bool(change.table.shard_key))
        found = self._commander.found(find, f"reading the row of {change}")
        here = bytes(found[0].raw) if found else None
        return Compared(change, reason, there, differs=there.document != here)

    def _there(self, change: RowChange, find: tuple[str, dict[str, object]]) -> bool:
        return bool(self._commander.found(find, f"reading the row of {change}"))


def _parts(changes: Sequence[RowChange]) -> Iterator[Sequence[RowChange]]:
    return (changes[at : at + _LOOKED_FOR] for at in range(0, len(changes), _LOOKED_FOR))
