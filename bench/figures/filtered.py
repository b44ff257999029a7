"""`one_of_a_hundred`: the cost of skipping the writes of other tables when one table of a hundred is in the filter."""

from __future__ import annotations

import uuid

from bench.baselines.baseline import read_at_the_floor, replicate_naively
from bench.product import Product
from bench.result import Figure
from bench.run import Comparison, Run
from bench.workload import Workload, newest
from changefeed.position import Window
from devstack.stack import DevStack
from source.connection import connect

_SKIPPED, _TABLES = 1_000_000, 100
_WANTED = "wanted"


def one_of_a_hundred(stack: DevStack) -> list[Figure]:
    """Replicates a backlog of other tables' writes and one document of the wanted table; for the naive replicator the server filters."""
    database, others = (f"bench_{uuid.uuid4().hex[:8]}" for _ in range(2))
    workload = Workload(events=_SKIPPED, tables=_TABLES - 1, batch=5_000, database=others)
    with connect(stack.source_uri) as source, Product(stack) as product:
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
    floor = read_at_the_floor(stack, window, database=database)
    skipped = Comparison(ours=Run(usage, _SKIPPED), naive=Run(naive, _SKIPPED), floor=Run(floor, _SKIPPED))
    return [
        skipped.rate("skip_99_of_100_tables", "entries/s"),
        skipped.cpu("cpu_skipped", "us/entry"),
        skipped.source_cpu("source_cpu_skipped", "us/entry"),
    ]
