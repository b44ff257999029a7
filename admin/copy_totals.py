"""`whole_copy`, `one_copy`: how far initial copies are: done, left, rate, and time left.

What is copied and the share never fall:

    a node ends               what it reported was recorded before; until its successor reports, the records themselves are read
    chunks are copied again   the records keep what was shown before (`CopyFloor`)
    the table grew            its share is that of its chunks, and its weight among the tables is its size when the changefeed began. What is
                              left is an estimate until the last chunk: what came on top shows in what is copied

Only the tables change both: one that is added has nothing copied yet, and one that is dropped does not count any more.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from functools import reduce
from operator import add

from admin.stubs.sluice.admin.v1 import admin_pb2 as pb
from changefeed.records.copy import CopyProgress, CopyRate, CopyRecord, CopyStage
from changefeed.records.node import AssignedTable
from changefeed.table import TableId, TableSize
from owner.etcd_view import OwnerView
from processor.copy.table_copy import TableCopy

_MOST_OF_A_TABLE = 0.99
"""A table whose documents are all copied still has indexes to build, and changes to catch up with."""
_TABLE_BYTES = 1_000_000
"""A table costs as much time as so many bytes, however small it is."""
_LEAST_SHARE = 0.01
"""Before that, the rate is that of a few small tables, or of the start."""
_NOTHING = TableSize()


def under_way_now(known: OwnerView) -> dict[TableId, CopyProgress]:
    """The running copies."""
    found: dict[TableId, CopyProgress] = {}
    for report in known.reports.values():
        for table, progress in report.copies.items():
            if table not in found or found[table].share < progress.share:
                found[table] = progress
    for table in known.copies.keys() - found.keys() - known.copied:
        found[table] = _recorded(known, table, known.copies[table])
    return found


def one_copy(known: OwnerView, progress: CopyProgress) -> pb.CopyProgress:
    done = pb.CopyProgress(
        documents=progress.documents,
        bytes=progress.bytes,
        chunks_done=progress.chunks_done,
        chunks=progress.chunks,
        tables=1,
        share=_MOST_OF_A_TABLE * progress.share,
    )
    return _with_rest(done, progress.left, (progress.rate if _runs(known) else None) or CopyRate())


def whole_copy(known: OwnerView, tables: Mapping[TableId, AssignedTable]) -> pb.CopyProgress | None:
    """Of all tables that begin with a copy. None when all copies have ended."""
    under_way = under_way_now(known)
    copied = {table for table, given in tables.items() if given.copy} | under_way.keys()
    done = (copied & known.copied) - under_way.keys()
    if done == copied:
        return None
    waiting = copied - done - under_way.keys()
    weights = {table: _TABLE_BYTES + _size(known, table).bytes for table in copied}
    shares = {table: _MOST_OF_A_TABLE * progress.share for table, progress in under_way.items()}
    weighed = sum(weights[table] for table in done) + sum(weights[table] * share for table, share in shares.items())
    running = under_way.values()
    here = [TableSize(documents=progress.documents, bytes=progress.bytes) for progress in running]
    whole = reduce(add, [*here, *(_copied(known, table) for table in done)], _NOTHING)
    left = [*(progress.left for progress in running), *(_size(known, table) for table in waiting)]
    rates = [report.copy_rate for node, report in known.reports.items() if node in known.processors]
    found = pb.CopyProgress(
        documents=whole.documents,
        bytes=whole.bytes,
        chunks_done=sum(progress.chunks_done for progress in running),
        chunks=sum(progress.chunks for progress in running),
        tables=len(copied),
        tables_done=len(done),
        share=weighed / sum(weights.values()),
    )
    rate = reduce(add, [rate for rate in rates if rate is not None and _runs(known)], CopyRate())
    return _with_rest(found, reduce(add, left, _NOTHING), rate)


def _with_rest(found: pb.CopyProgress, left: TableSize, rate: CopyRate) -> pb.CopyProgress:
    """No time until there is a rate that says something, and once only indexes are left."""
    found.documents_left, found.bytes_left = left.documents, left.bytes
    found.documents_rate, found.bytes_rate = rate.documents, rate.bytes
    if rate.bytes and left.bytes and found.share >= _LEAST_SHARE:
        found.left.FromTimedelta(timedelta(seconds=left.bytes / rate.bytes))
    return found


def _runs(known: OwnerView) -> bool:
    return known.status is not None and known.status.lifecycle.running


def _recorded(known: OwnerView, table: TableId, record: CopyRecord) -> CopyProgress:
    parts = known.chunks_of(table) if record.stage is CopyStage.COPYING else ()
    return TableCopy.from_records(record, parts).progress


def _size(known: OwnerView, table: TableId) -> TableSize:
    """When the changefeed began; of a table that came later, when its copy began."""
    base, record = known.bases.get(table), known.copies.get(table)
    return (base.size if base else None) or (record.size if record else None) or _NOTHING


def _copied(known: OwnerView, table: TableId) -> TableSize:
    record = known.copies.get(table)
    return record.floor.copied if record is not None and record.floor is not None else _size(known, table)
