"""`quiet_table`: a changefeed of one quiet table resumes, and reads a backlog of other tables' writes before its one row.

It is paused once more on the way. SLUICE_QUIET_ENTRIES is the number of the other tables' entries; writing 20 million takes an hour.
"""

from __future__ import annotations

import os
import time
import uuid
from typing import Any

from bench.baselines.baseline import read_at_the_floor
from bench.product import Product, target_of
from bench.result import Figure
from bench.usage import Usage
from bench.workload import Workload, newest
from changefeed.capture import Capture
from changefeed.lifecycle import State
from changefeed.position import Window
from changefeed.records.requests import DesiredState
from devstack.stack import DevStack
from source.connection import Client, connect

ENTRIES_VARIABLE = "SLUICE_QUIET_ENTRIES"
_ENTRIES = 1_000_000
_ENTRY_BYTES = 700
_LEAST_OPLOG_MB = 2048
_WAY_SECONDS = 2.0
_ENDING_SECONDS = 10.0
_ROWS = "rows"


def quiet_table(stack: DevStack) -> list[Figure]:
    """Both captures read the same history, one after the other."""
    entries = int(os.environ.get(ENTRIES_VARIABLE, _ENTRIES))
    databases = {capture: f"bench_{uuid.uuid4().hex[:8]}" for capture in (Capture.OPLOG, Capture.CHANGE_STREAM)}
    others = Workload(events=entries, tables=10, batch=20_000, database=f"others_{uuid.uuid4().hex[:8]}")
    results: list[Figure] = []
    with connect(stack.source_uri) as source, connect(stack.target_uri) as target, Product(stack) as product:
        size = max(_LEAST_OPLOG_MB, entries * _ENTRY_BYTES / 2**20)
        source.admin.command({"replSetResizeOplog": 1, "size": float(size)})
        product.warm_up(source)
        ids = {}
        for capture, database in databases.items():
            source[database].create_collection(_ROWS)
            ids[capture] = product.create(database, capture=capture)
            product.until_begun(ids[capture])
            product.want(ids[capture], DesiredState.PAUSED)
            product.until_in(ids[capture], State.STOPPED)
        start = newest(source)
        others.prepare(source)
        others.insert(source)
        for database in databases.values():
            source[database][_ROWS].insert_one({"_id": 1})
        window = Window(start, newest(source))
        for capture, database in databases.items():
            with product.usage() as usage:
                product.want(ids[capture], DesiredState.RUNNING)
                time.sleep(_WAY_SECONDS)
                product.want(ids[capture], DesiredState.PAUSED)
                product.until_in(ids[capture], State.STOPPED)
                left = _seconds_until_nothing_runs(source)
                product.want(ids[capture], DesiredState.RUNNING)
                product.until_at(ids[capture], window.end)
            assert target[target_of(database)][_ROWS].count_documents({}) == 1
            results += _figures(capture, usage, read_at_the_floor(stack, window), entries, left)
            product.remove(ids[capture])
    return results


def _figures(capture: Capture, usage: Usage, floor: Usage, entries: int, left: float) -> list[Figure]:
    note = f"{entries} entries; {left:.1f} s after the pause nothing ran at the source"
    cpu = {
        part: seconds / entries * 1e6
        for part, seconds in (("ours", usage.cpu["source"]), ("floor", floor.cpu["source"]))
    }
    return [
        Figure.less_is_better(f"quiet_table_{capture}", usage.seconds, "s", baseline=floor.seconds, note=note),
        Figure.less_is_better(f"quiet_table_source_cpu_{capture}", cpu["ours"], "us/entry", baseline=cpu["floor"]),
    ]


def _seconds_until_nothing_runs(source: Client) -> float:
    """The seconds until no operation reads the history at the source."""
    begun_at = time.monotonic()
    while running := _readings(source):
        if time.monotonic() - begun_at > _ENDING_SECONDS:
            raise TimeoutError(f"operations still running at the source: {running}")
        time.sleep(0.05)
    return time.monotonic() - begun_at


def _readings(source: Client) -> list[dict[str, Any]]:
    seen = source.admin.aggregate(
        [{"$currentOp": {"allUsers": True}}, {"$match": {"active": True, "appName": "sluice"}}]
    )
    return [each for each in seen if "$changeStream" in str(each) or each.get("ns") == "local.oplog.rs"]
