"""`at_rest`: the CPU time per second of a changefeed while its source has no writes."""

from __future__ import annotations

import time
import uuid
from concurrent.futures import ThreadPoolExecutor

from bench.baselines.baseline import replicate_naively
from bench.product import Product
from bench.result import Figure
from bench.run import OURS
from bench.usage import Usage
from bench.workload import Workload, newest
from devstack.stack import DevStack
from source.connection import Client, connect

_TABLES = 20
_SECONDS = 30


def at_rest(stack: DevStack) -> list[Figure]:
    workload = Workload(events=1, tables=_TABLES, database=f"bench_{uuid.uuid4().hex[:8]}")
    with connect(stack.source_uri) as source:
        workload.prepare(source)
        with Product(stack) as product:
            product.warm_up(source)
            product.until_begun(product.create(workload.database))
            time.sleep(_SECONDS)  # after its start a changefeed is not at rest yet
            with product.usage(memory=False) as usage:
                time.sleep(_SECONDS)
        naive = _naive(stack, source, workload).millis("itself")
    return [Figure.less_is_better("cpu_at_rest", usage.millis(*OURS), "ms CPU/s", baseline=naive, note=shares(usage))]


def shares(usage: Usage) -> str:
    return ", ".join(f"{part} {usage.millis(part):.0f}" for part in (*OURS, "source", "target"))


def _naive(stack: DevStack, source: Client, workload: Workload) -> Usage:
    """Runs until it has replicated one event, which is written at the end of the measured time."""
    start_ts = newest(source).ts
    with ThreadPoolExecutor(1) as thread:
        replicated = thread.submit(replicate_naively, stack, start_ts=start_ts, events=1, database=workload.database)
        time.sleep(_SECONDS)
        workload.insert(source)
        return replicated.result()
