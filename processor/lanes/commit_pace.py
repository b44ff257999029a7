"""`unhurried`: whether a window may wait, so that a sink that commits gets few large windows and not many small ones. Pure.

    commit interval 60 s    a window of tables that follow, to the barrier         waits until 60 s after the last one began
                            one that ends before the barrier: there is more        begins at once
                            one that brings a table to the DDL that holds it       begins at once
    the barrier is the target                              begins at once

The oplog is the queue: what waits is read later, in one pass.
"""

from __future__ import annotations

from changefeed.cluster_time import ClusterTime
from changefeed.records.ddl import Barrier
from processor.lanes.lanes import LaneJob


def unhurried(job: LaneJob, barrier: Barrier, target: ClusterTime | None) -> bool:
    if target is not None and barrier.position.ts >= target:
        return False
    return all(window.end == barrier.position for window in (job.window, *job.own_windows.values()) if not window.empty)
