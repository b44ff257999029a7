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
_SMALL_TABLES, _DOCUMENTS_EACH = 300, 20


def initial_copy(stack: DevStack) -> list[Result]:
    large = Workload(events=_DOCUMENTS, tables=_TABLES, database=_database())
    small = Workload(
        events=_SMALL_TABLES * _DOCUMENTS_EACH, tables=_SMALL_TABLES, batch=_DOCUMENTS_EACH, database=_database()
    )
    documents, tables = _copied(stack, large, _DOCUMENTS), _copied(stack, small, _SMALL_TABLES)
    return [
        documents.rate("initial_copy", "documents/s"),
        documents.cpu("cpu_copy", "us/document"),
        tables.rate("initial_copy_small_tables", "tables/s"),
    ]


def _database() -> str:
    return f"bench_{uuid.uuid4().hex[:8]}"


def _copied(stack: DevStack, workload: Workload, count: int) -> Pair:
    """`count`: of what is measured."""
    with connect(stack.source_uri) as source, Product(stack) as product:
        product.warm_up(source)
        workload.prepare(source)
        workload.insert(source)
        id = product.create(workload.database, start="initial")
        product.until_begun(id)
        with product.usage() as usage:
            product.until_copied(id, workload.events)
    baseline = copy_naively(stack.source_uri, stack.target_uri, database=workload.database, tables=workload.names())
    return Pair(Run(usage, count), Run(baseline, count))
