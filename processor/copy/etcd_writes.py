"""How the copy of a table is written to etcd and read back. Each list of operations is correct after any prefix of it."""

from __future__ import annotations

from changefeed.records.copy import CopyPart, CopyRecord
from changefeed.records.requests import ChangefeedId
from changefeed.table import TableId
from coordination.etcd.protocol import Delete, DeletePrefix, Op, Put
from coordination.layout import Layout, decode, encode
from coordination.mirror import View
from processor.copy.table_copy import TableCopy


def read(view: View, layout: Layout, id: ChangefeedId, table: TableId) -> TableCopy | None:
    found = view.get(layout.copy(id, table))
    if found is None:
        return None
    parts = sorted(view.group(layout.copy_parts(id, table)).items())
    return TableCopy.from_records(decode(CopyRecord, found), [decode(CopyPart, kv) for _, kv in parts])


def written(layout: Layout, id: ChangefeedId, table: TableId, copy: TableCopy) -> list[Op]:
    """Writes a copy that begins, ends or restarts. Parts are written before the record that refers to them, and deleted after it."""
    record = Put(layout.copy(id, table), encode(copy.record))
    if not copy.record.chunks:
        return [record, DeletePrefix(layout.copy_parts(id, table))]
    parts = [Put(layout.copy_part(id, table, number), encode(part)) for number, part in enumerate(copy.parts())]
    return [*parts, record]


def part_written(layout: Layout, id: ChangefeedId, table: TableId, copy: TableCopy, part: int) -> Op:
    """To be written after `copy.with_chunk(...)`: one small value, however many chunks there are."""
    return Put(layout.copy_part(id, table, part), encode(copy.part(part)))


def forgotten(layout: Layout, id: ChangefeedId, table: TableId) -> list[Op]:
    """Removes the copy of a table that has ended. If the table comes back, it is copied as a new one."""
    return [Delete(layout.copy(id, table)), DeletePrefix(layout.copy_parts(id, table))]
