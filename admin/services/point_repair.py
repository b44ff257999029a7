"""`PointRepair`: has rows that differ at a sync point written again by the nodes of their tables, and waits for a point at which they can be compared again."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterable
from dataclasses import replace
from functools import partial

from admin.cluster_reader import ClusterReader
from admin.desired.desired_store import DesiredStore
from admin.services.verified_changefeed import RepairRequests, at_point
from changefeed.cluster_time import ClusterTime
from changefeed.errors import RetryableError
from changefeed.records.requests import ChangefeedId
from changefeed.table import TableName
from verify.at_point import AtPoint
from verify.definitions import Pair
from verify.replication import Passing, repair_obstacle
from verify.report import TableReport
from verify.verification import rows_that_differ

_LOOK_EVERY = 1.0
_PATIENCE = 120.0


class PointRepair:
    """For one verification."""

    def __init__(self, id: ChangefeedId, reader: ClusterReader, store: DesiredStore, stop: threading.Event) -> None:
        self._id = id
        self._reader = reader
        self._store = store
        self._stop = stop
        self._requests = RepairRequests(reader, store, id, stop)

    def repair(self, at: AtPoint, tables: Iterable[TableReport], passing: Passing) -> dict[TableName, str]:
        """Returns why rows of a table were not written, or an empty text."""
        why = {}
        for table in tables:
            sources = [schema for schema in at.tables if at.route(schema.name) == table.name]
            ids = [schema.id for schema in sources]
            pair = Pair(name=table.name, origins=table.sources, sources=tuple(sources))
            rows = rows_that_differ(table.documents)
            why[table.name] = repair_obstacle(pair) or self._requests.repair(ids, rows, partial(passing.wait, ids))
        return why

    def next_point(self, after_ts: ClusterTime, names: Collection[TableName]) -> AtPoint:
        """A table whose rows were read later than a point is excepted there: the next one that has these tables is taken."""
        deadline = time.monotonic() + _PATIENCE
        while not self._stop.is_set() and time.monotonic() < deadline:
            known = self._reader.changefeed(self._id)
            newest = known.sync.newest
            if newest is not None and newest.source > after_ts:
                excepted = {name for table in newest.excepted for name in table.target}
                if excepted.isdisjoint(names):
                    return at_point(self._reader, self._id, newest)
            if not known.sync_asked:
                self._store.ask_for_sync_point(self._id)
            self._stop.wait(_LOOK_EVERY)
        raise RetryableError(
            f"changefeed {self._id!r}: rows were repaired, and no sync point came within {_PATIENCE:g} s that has their tables; "
            f"`sluice verify {self._id} --at latest` compares them when one has"
        )


def compared_again(before: TableReport, now: TableReport, why: str) -> TableReport:
    """`before`: what was repaired."""
    if now.documents is None:
        return now
    left = set(rows_that_differ(now.documents))
    repaired = sum(row not in left for row in rows_that_differ(before.documents))
    return replace(now, documents=replace(now.documents, repaired=repaired, obstacle=why))
