"""`KnownCopies`: the initial copies of one changefeed's tables, as etcd records them, and how fast they go.

Each list of operations here is correct after any prefix of it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from changefeed.records.copy import CopyPart, CopyProgress, CopyRate, CopyRecord, CopyStage
from changefeed.records.node import AssignedTable
from changefeed.records.requests import ChangefeedId
from changefeed.shards import differing
from changefeed.table import TableId, TableSize
from coordination.etcd.protocol import Delete, DeletePrefix, KeyValue, Op, Put
from coordination.layout import Layout, child, decode, encode
from coordination.view import KeyGroup, View
from processor.copy.table_copy import CopyPace, TableCopy
from processor.etcd_view import ProcessorView


@dataclass(frozen=True, slots=True)
class _KnownCopy:
    """A copy as it is recorded in etcd, decoded once per change there."""

    record: KeyValue | None
    parts: Mapping[str, KeyValue]
    copy: TableCopy | None


class KnownCopies:
    """For the processor's thread."""

    def __init__(self, id: ChangefeedId, layout: Layout) -> None:
        self._id = id
        self._layout = layout
        self._known: dict[TableId, _KnownCopy] = {}
        self._assigned: Mapping[TableId, AssignedTable] = {}
        self._records = KeyGroup()
        self._unfinished: dict[TableId, None] = {}
        """The tables in copy, as of `_assigned` and `_records`."""
        self._progress: dict[TableId, CopyProgress] = {}
        self._pace: CopyPace | None = None
        self._paces: dict[TableId, CopyPace] = {}
        """Of the tables with several chunks."""

    @property
    def progress(self) -> Mapping[TableId, CopyProgress]:
        return dict(self._progress)

    @property
    def unfinished(self) -> bool:
        return bool(self._unfinished)

    @property
    def rate(self) -> CopyRate | None:
        return self._pace.rate if self._pace is not None and self._progress else None

    def get(self, table: TableId) -> TableCopy | None:
        """As of the last tick."""
        return self._known[table].copy if table in self._known else None

    def in_copy(self, view: View, stored: ProcessorView) -> list[TableId]:
        """The tables in copy. Only those are looked at whose assignment or record has changed; parts of copies have other keys."""
        group = self._layout.copies(self._id)
        assigned, records = stored.orders.assignment.tables, view.group(group)
        changed = {TableId(child(key, group)) for key in records.changed_since(self._records)}
        for table in sorted(changed | differing(self._assigned, assigned)):
            entry = assigned.get(table)
            if entry is not None and entry.copy and not self._done(view, table):
                self._unfinished[table] = None
            else:
                self._unfinished.pop(table, None)
        self._assigned, self._records = assigned, records
        return list(self._unfinished)

    def _done(self, view: View, table: TableId) -> bool:
        copy = self.copy(view, table)
        done = copy is not None and copy.stage is CopyStage.DONE
        if done:
            self._progress.pop(table, None)
            self._paces.pop(table, None)
            self._pace = self._pace if self._progress else None
        return done

    def copy(self, view: View, table: TableId) -> TableCopy | None:
        record = view.get(self._layout.copy(self._id, table))
        parts = view.group(self._layout.copy_parts(self._id, table))
        decoded = self._known.get(table)
        if decoded is None or decoded.record is not record or decoded.parts is not parts:
            copy = None
            if record is not None:
                ordered = [decode(CopyPart, part) for _, part in sorted(parts.items())]
                copy = TableCopy.from_records(decode(CopyRecord, record), ordered)
            decoded = self._known[table] = _KnownCopy(record, parts, copy)
            if copy is not None:
                pace = self._paces.get(table)
                self._progress[table] = replace(copy.progress, rate=pace.rate if pace else None)
        return decoded.copy

    def task_begins(self, now: float) -> None:
        self._pace = self._pace or CopyPace.begun(now)

    def chunk_begins(self, table: TableId, now: float) -> None:
        """Of a table with several chunks."""
        self._paces.setdefault(table, CopyPace.begun(now))

    def chunk_ended(self, table: TableId, copied: TableSize, now: float) -> None:
        if self._pace is not None:
            self._pace = self._pace.after(copied, now)
        if table in self._paces:
            self._paces[table] = self._paces[table].after(copied, now)

    def keep(self, assigned: Collection[TableId]) -> None:
        """Forgets tables that are no longer assigned to this node."""
        for table in [table for table in self._known if table not in assigned]:
            del self._known[table]
            self._progress.pop(table, None)
            self._paces.pop(table, None)

    def written(self, table: TableId, copy: TableCopy) -> list[Op]:
        """Writes a copy that begins, ends or restarts. Parts are written before the record that refers to them, and deleted after it."""
        layout, id = self._layout, self._id
        record = Put(layout.copy(id, table), encode(copy.record))
        if not copy.record.chunks:
            return [record, DeletePrefix(layout.copy_parts(id, table))]
        parts = [Put(layout.copy_part(id, table, number), encode(part)) for number, part in enumerate(copy.parts())]
        return [*parts, record]

    def part_written(self, table: TableId, copy: TableCopy, part: int) -> Op:
        """To be written after `copy.with_chunk(...)`: one small value, however many chunks there are."""
        return Put(self._layout.copy_part(self._id, table, part), encode(copy.part(part)))

    def forgotten(self, table: TableId) -> list[Op]:
        """Removes the copy of a table that has ended. If the table comes back, it is copied as a new one."""
        layout, id = self._layout, self._id
        return [Delete(layout.copy(id, table)), DeletePrefix(layout.copy_parts(id, table))]
