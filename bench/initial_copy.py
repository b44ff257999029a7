"""Copying tables that are there: the product's initial copy beside a loop of find and insert_many."""

from __future__ import annotations

import time
import uuid

from bench.baseline import copy_naively
from bench.product import Product, target_of
from bench.replication import OURS, Run
from bench.result import Result
from bench.workload import Workload
from devstack.stack import DevStack
from source.connection import Client, connect

_DOCUMENTS, _TABLES = 40_000, 4
_LOOK_EVERY = 0.1
_DEADLINE_SECONDS = 300.0


def initial_copy(stack: DevStack) -> list[Result]:
    workload = Workload(events=_DOCUMENTS, tables=_TABLES, database=f"bench_{uuid.uuid4().hex[:8]}")
    with connect(stack.source_uri) as source, connect(stack.target_uri) as target, Product(stack) as product:
        product.warm_up(source)
        workload.prepare(source)
        workload.insert(source)
        id = product.create(workload.database, start="initial")
        product.until_begun(id)
        with product.usage() as usage:
            _until_copied(target, workload)
    baseline = copy_naively(stack.source_uri, stack.target_uri, database=workload.database, tables=workload.names())
    ours, naive = Run(usage, _DOCUMENTS), Run(baseline, _DOCUMENTS)
    micros = (
        f"{ours.micros(*OURS):.0f} us CPU of ours per document (baseline {naive.micros('naive'):.0f}): {ours.shares}"
    )
    return [Result.more_is_better("initial_copy", ours.rate, "documents/s", baseline=naive.rate, note=micros)]


def _until_copied(target: Client, workload: Workload) -> None:
    database, deadline = target[target_of(workload.database)], time.monotonic() + _DEADLINE_SECONDS
    while sum(database[name].estimated_document_count() for name in workload.names()) < _DOCUMENTS:
        if time.monotonic() > deadline:
            raise TimeoutError(f"the initial copy did not end within {_DEADLINE_SECONDS:g} s")
        time.sleep(_LOOK_EVERY)
