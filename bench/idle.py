"""What a changefeed costs while nobody writes: CPU time by the second, which no event pays for."""

from __future__ import annotations

import time
import uuid
from concurrent.futures import ThreadPoolExecutor

from bench.baseline import replicate_naively
from bench.product import Product
from bench.replication import OURS
from bench.result import Result
from bench.usage import Usage
from bench.workload import Workload, newest
from devstack.stack import DevStack
from source.connection import Client, connect

_TABLES = 20
_SECONDS = 15


def idle_cpu(stack: DevStack) -> list[Result]:
    workload = Workload(events=1, tables=_TABLES, database=f"bench_{uuid.uuid4().hex[:8]}")
    with connect(stack.source_uri) as source:
        workload.prepare(source)
        with Product(stack) as product:
            product.warm_up(source)
            product.until_begun(product.create(workload.database))
            with product.usage() as usage:
                time.sleep(_SECONDS)
        naive = _millis(_naive(stack, source, workload), "naive")
    note = ", ".join(f"{part} {_millis(usage, part):.0f}" for part in OURS)
    return [Result.less_is_better("idle_cpu", _millis(usage, *OURS), "ms CPU/s", baseline=naive, note=note)]


def _naive(stack: DevStack, source: Client, workload: Workload) -> Usage:
    """Until the one event that it waits for."""
    start_ts = newest(source).ts
    with ThreadPoolExecutor(1) as thread:
        replicated = thread.submit(
            replicate_naively,
            stack.source_uri,
            stack.target_uri,
            start_ts=start_ts,
            events=1,
            database=workload.database,
        )
        time.sleep(_SECONDS)
        workload.insert(source)
        return replicated.result()


def _millis(usage: Usage, *parts: str) -> float:
    return sum(usage.cpu[part] for part in parts) / usage.seconds * 1e3
