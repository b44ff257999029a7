"""`one_of_a_hundred`: the cost of skipping the writes of other tables when one table of a hundred is in the filter.

SLUICE_SKIPPED_ENTRIES is the number of the others' entries.
"""

from __future__ import annotations

import os
import uuid

from bench.baselines.baseline import read_at_the_floor, replicate_naively
from bench.product import Product
from bench.result import Figure
from bench.run import Comparison, Run
from bench.workload import Workload, newest
from changefeed.position import Window
from devstack.stack import DevStack
from source.connection import connect

ENTRIES_VARIABLE = "SLUICE_SKIPPED_ENTRIES"
_SKIPPED, _TABLES = 1_000_000, 100
_WANTED = "wanted"
_ENTRY_BYTES = 700
_LEAST_OPLOG_MB = 2048


def one_of_a_hundred(stack: DevStack) -> list[Figure]:
    """Replicates a backlog of other tables' writes and one document of the wanted table; for the naive replicator the server filters."""
    count = int(os.environ.get(ENTRIES_VARIABLE, _SKIPPED))
    database, others = (f"bench_{uuid.uuid4().hex[:8]}" for _ in range(2))
    workload = Workload(events=count, tables=_TABLES - 1, batch=5_000, database=others)
    with connect(stack.source_uri) as source, Product(stack) as product:
        size = max(_LEAST_OPLOG_MB, count * _ENTRY_BYTES / 2**20)
        source.admin.command({"replSetResizeOplog": 1, "size": float(size)})
        product.warm_up(source)
        source[database].create_collection(_WANTED)
        workload.prepare(source)
        start = newest(source)
        workload.insert(source)
        source[database][_WANTED].insert_one({"_id": 1})
        window = Window(start, newest(source))
        id = product.create(database, start=str(start.ts))
        product.until_begun(id)
        with product.usage() as usage:
            product.until_at(id, window.end)
        naive = replicate_naively(stack, start_ts=start.ts, events=1, database=database)
    floor = read_at_the_floor(stack, window)
    skipped = Comparison(ours=Run(usage, count), naive=Run(naive, count), floor=Run(floor, count))
    return [
        skipped.rate("skip_99_of_100_tables", "entries/s"),
        skipped.cpu("cpu_skipped", "us/entry"),
        skipped.source_cpu("source_cpu_skipped", "us/entry"),
        skipped.peak("memory_skipped"),
    ]
