"""`EtcdCheckpoints`: the progress of a changefeed, for a verification that runs at the same time."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection
from datetime import timedelta

from admin.cluster_reader import ClusterReader, follows, tables_of
from changefeed.cluster_time import ClusterTime
from changefeed.position import Position
from changefeed.records.requests import ChangefeedId
from changefeed.table import TableId
from owner.etcd_view import OwnerView
from verify.documents.settling import Passed

_LOOK_EVERY = 0.1


class EtcdCheckpoints:
    def __init__(self, reader: ClusterReader, id: ChangefeedId, stop: threading.Event) -> None:
        self._reader = reader
        self._id = id
        self._stop = stop

    def wait_past(self, passed_ts: ClusterTime, tables: Collection[TableId], patience: timedelta) -> Passed:
        deadline = time.monotonic() + patience.total_seconds()
        while True:
            with self._reader.read() as view:
                known = view.changefeed(self._id)
            if not follows(known) or not known.stragglers.keys().isdisjoint(tables):
                return Passed.STANDING
            place = _place(known, tables)
            if place is not None and place.ts > passed_ts:
                return Passed.PASSED
            if time.monotonic() >= deadline or self._stop.wait(_LOOK_EVERY):
                return Passed.OVERDUE


def _place(known: OwnerView, tables: Collection[TableId]) -> Position | None:
    """A table without a node counts with the changefeed's checkpoint: everything before it is downstream."""
    least = known.status.checkpoint if known.status else None
    if not tables:
        return least
    found = tables_of(known)
    places = [found.of(table) or least for table in tables]
    return min((place for place in places if place is not None), default=None)
