"""Bugs of sync points."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any
from unittest.mock import patch

from changefeed.cluster_time import ClusterTime
from changefeed.records.sync_point import SyncPoint
from changefeed.table import TableId
from owner.tables.progress import TableProgress
from sink.mongodb.rows.rows_ahead import RowsAhead
from sink.mongodb.sync_marks import SyncMarks
from sink.sink import Marked
from tests.simulation.clockwork.substitutes import EPOCH
from tests.simulation.planted.bug import Bug


def _the_target_is_marked_before_its_tables_are_there() -> AbstractContextManager[Any]:
    """So the mark's time is before the last acknowledgements."""
    return patch.object(TableProgress, "elsewhere", lambda *_: frozenset[TableId]())


def _a_record_is_done_before_etcd_has_it() -> AbstractContextManager[Any]:
    """So an owner whose term is over may still write it."""
    mark = SyncMarks.mark

    def done_at_once(self: SyncMarks, ts: ClusterTime) -> Marked:
        marked = mark(self, ts)
        self.record(SyncPoint(source=ts, target=marked.target_ts, made_at=EPOCH), timedelta(seconds=20))
        return marked

    return patch.object(SyncMarks, "mark", done_at_once)


def _a_repaired_table_is_known_to_its_task_alone() -> AbstractContextManager[Any]:
    """So nothing is left of it when the table moves or its node dies."""
    return patch.object(RowsAhead, "note", lambda *_: None)


SYNC_BUGS: Mapping[str, Bug] = {
    "the target is marked before its tables are there": Bug(
        _the_target_is_marked_before_its_tables_are_there, 20, synced=True
    ),
    "a repaired table is known to its task alone": Bug(
        _a_repaired_table_is_known_to_its_task_alone, 20, synced=True, faults=False
    ),
    "a record is done before etcd has it": Bug(_a_record_is_done_before_etcd_has_it, 5, synced=True),
}
