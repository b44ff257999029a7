"""`Checkpoints`: the progress of replication, for a verification that runs at the same time."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from typing import Protocol

from changefeed.cluster_time import ClusterTime
from changefeed.table import TableId
from verify.documents.settling import Passed


class Checkpoints(Protocol):
    def wait_past(self, passed_ts: ClusterTime, tables: Collection[TableId], patience: timedelta) -> Passed:
        """Waits until the checkpoints of these tables are after that time, so that its changes are downstream.

        Without tables it waits for the changefeed's checkpoint. Several threads call it.
        """
        ...
