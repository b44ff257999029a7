"""`Checkpoints`: how far replication is, for a verification that runs beside it."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from typing import Protocol

from changefeed.cluster_time import ClusterTime
from changefeed.table import TableId
from verify.documents.settling import Passed


class Checkpoints(Protocol):
    def wait_past(self, passed_ts: ClusterTime, tables: Collection[TableId], patience: timedelta) -> Passed:
        """Until the checkpoints of these tables, or without any the changefeed's, are beyond that time: what happened at it is downstream.

        Called by several threads.
        """
        ...
