"""`initial_copy`: the product's initial copy, compared with raw find and insert_many on two connections."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from dataclasses import replace

from bench.baselines.baseline import copy_naively
from bench.product import Product, target_of
from bench.result import Figure
from bench.run import Comparison, Run
from bench.workload import Workload
from devstack.stack import DevStack
from source.connection import connect

_WORKLOADS = {
    "copy_one_table": Workload(events=400_000, batch=5_000),
    "copy_20_tables": Workload(events=400_000, tables=20, batch=5_000),
    "copy_10_kb": Workload(events=40_000, tables=4, batch=500, document_bytes=10 << 10),
    "copy_1_mb": Workload(events=500, tables=4, batch=5, document_bytes=1 << 20),
}
_SMALL_TABLES, _DOCUMENTS_EACH = 1_000, 100
_FIRST = 10_000


def initial_copy(stack: DevStack) -> list[Figure]:
    return list(_results(stack))


def _results(stack: DevStack) -> Iterator[Figure]:
    yield _first_document(stack)
    for name, unnamed in _WORKLOADS.items():
        workload = _named(unnamed)
        copied = _copied(stack, workload, workload.events)
        yield replace(copied.rate(name, "documents/s"), note=_alone(stack, workload))
        yield copied.cpu(f"cpu_{name}", "us/document")
        yield copied.peak(f"memory_{name}")
    small = _named(Workload(events=_SMALL_TABLES * _DOCUMENTS_EACH, tables=_SMALL_TABLES, batch=_DOCUMENTS_EACH))
    yield _copied(stack, small, _SMALL_TABLES).rate("copy_small_tables", "tables/s")


def _named(workload: Workload) -> Workload:
    return replace(workload, database=f"bench_{uuid.uuid4().hex[:8]}")


def _copied(stack: DevStack, workload: Workload, count: int) -> Comparison:
    """`count`: the number of measured units. The naive copy writes to the database's own name, ours to a routed one.

    A naive copy comes first and is not counted: the first copy of this size pays for the memory by which the servers grow.
    """
    with connect(stack.source_uri) as source, connect(stack.target_uri) as target, Product(stack) as product:
        product.warm_up(source)
        workload.prepare(source)
        workload.insert(source)
        copy_naively(stack, database=workload.database, tables=workload.names())
        target.drop_database(workload.database)
        id = product.create(workload.database, start="initial")
        product.until_begun(id)
        with product.usage() as usage:
            product.until_copied(id, workload.tables)
    naive = copy_naively(stack, database=workload.database, tables=workload.names())
    return Comparison(ours=Run(usage, count), naive=Run(naive, count))


def _alone(stack: DevStack, workload: Workload) -> str:
    """What the source gives, and what the target takes, while the other rests: on the same cores no copy can reach both."""
    rates = {}
    for only in ("read", "write"):
        with connect(stack.target_uri) as target:
            target.drop_database(workload.database)
        used = copy_naively(stack, database=workload.database, tables=workload.names(), only=only)
        rates[only] = Run(used, workload.events).rate
    return ", ".join(f"{only} alone {rate:,.0f}" for only, rate in rates.items())


def _first_document(stack: DevStack) -> Figure:
    """From the request to the first document at the target, on a ready node and an idle source. The baseline is one find and one insert_many."""
    workload = _named(Workload(events=_FIRST, batch=5_000))
    [table] = workload.names()
    with connect(stack.source_uri) as source, connect(stack.target_uri) as target, Product(stack) as product:
        product.warm_up(source)
        workload.prepare(source)
        workload.insert(source)
        begun_at = time.monotonic()
        product.create(workload.database, start="initial")
        arriving = target[target_of(workload.database)][table]
        while arriving.find_one({}, {"_id": 1}) is None:
            time.sleep(0.01)
        took = time.monotonic() - begun_at
        begun_at = time.monotonic()
        target[workload.database][table].insert_many(list(source[workload.database][table].find({})))
        naive = time.monotonic() - begun_at
    return Figure.less_is_better("copy_first_document", took, "s", baseline=naive)
