"""Copying tables that are there: the product's initial copy beside a loop of find and insert_many."""

from __future__ import annotations

import uuid

from bench.baseline import copy_naively
from bench.product import Product
from bench.replication import Pair, Run
from bench.result import Result
from bench.workload import Workload
from devstack.stack import DevStack
from source.connection import connect

_DOCUMENTS, _TABLES = 120_000, 4


def initial_copy(stack: DevStack) -> list[Result]:
    workload = Workload(events=_DOCUMENTS, tables=_TABLES, database=f"bench_{uuid.uuid4().hex[:8]}")
    with connect(stack.source_uri) as source, Product(stack) as product:
        product.warm_up(source)
        workload.prepare(source)
        workload.insert(source)
        id = product.create(workload.database, start="initial")
        product.until_begun(id)
        with product.usage() as usage:
            product.until_copied(id, _DOCUMENTS)
    baseline = copy_naively(stack.source_uri, stack.target_uri, database=workload.database, tables=workload.names())
    ours, naive = Run(usage, _DOCUMENTS), Run(baseline, _DOCUMENTS)
    copied = Pair(ours, naive)
    return [copied.rate("initial_copy", "documents/s"), copied.cpu("cpu_copy", "us/document")]
