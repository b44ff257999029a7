"""`initial_copy`: the product's initial copy, compared with raw find and insert_many on two connections."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

from bench.baselines.baseline import copy_naively
from bench.product import Product
from bench.result import Figure
from bench.run import Comparison, Run
from bench.workload import Workload
from devstack.stack import DevStack
from source.connection import connect

_DOCUMENTS, _TABLES = 400_000, 20
_SMALL_TABLES, _DOCUMENTS_EACH = 300, 20


def initial_copy(stack: DevStack) -> list[Figure]:
    return list(_results(stack))


def _results(stack: DevStack) -> Iterator[Figure]:
    for name, tables in (("copy_one_table", 1), (f"copy_{_TABLES}_tables", _TABLES)):
        workload = Workload(events=_DOCUMENTS, tables=tables, batch=5_000, database=_database())
        copied = _copied(stack, workload, _DOCUMENTS)
        yield copied.rate(name, "documents/s")
        yield copied.cpu(f"cpu_{name}", "us/document")
    small = Workload(
        events=_SMALL_TABLES * _DOCUMENTS_EACH, tables=_SMALL_TABLES, batch=_DOCUMENTS_EACH, database=_database()
    )
    yield _copied(stack, small, _SMALL_TABLES).rate("copy_small_tables", "tables/s")


def _database() -> str:
    return f"bench_{uuid.uuid4().hex[:8]}"


def _copied(stack: DevStack, workload: Workload, count: int) -> Comparison:
    """`count`: the number of measured units. The naive copy writes to the database's own name, ours to a routed one."""
    with connect(stack.source_uri) as source, Product(stack) as product:
        product.warm_up(source)
        workload.prepare(source)
        workload.insert(source)
        id = product.create(workload.database, start="initial")
        product.until_begun(id)
        with product.usage() as usage:
            product.until_copied(id, workload.events)
    naive = copy_naively(stack, database=workload.database, tables=workload.names())
    return Comparison(ours=Run(usage, count), naive=Run(naive, count))
