"""`slices`: reads one range of the oplog as two slices on two cores, compared with one slice, to measure how reading scales; and catches up with
divided windows, compared with undivided ones, to measure what dividing costs an event.
"""

from __future__ import annotations

import multiprocessing
import time
import uuid
from collections.abc import Sequence
from contextlib import closing
from datetime import timedelta
from itertools import pairwise

from bench.product import Product, target_of
from bench.result import Figure
from bench.usage import JVM, WORKERS
from bench.workload import Workload
from changefeed.position import Position, Window
from devstack.stack import DevStack
from source.connection import Client, connect
from source.oplog.row_entry import scan
from source.oplog.row_reader import OplogReader

_EVENTS, _TABLES = 400_000, 4
_REPETITIONS = 3
_BATCHES_A_SECOND = 6
"""At the source, so that a window of many events has a span that can be divided."""


def slices(stack: DevStack) -> list[Figure]:
    workload = Workload(events=_EVENTS // 2, tables=_TABLES, database=f"bench_{uuid.uuid4().hex[:8]}")
    with connect(stack.source_uri) as source:
        workload.prepare(source)
        halves = [workload.insert(source), workload.mix(source)]
    cuts = [halves[0].start, halves[1].start, halves[1].end]
    with multiprocessing.get_context("spawn").Pool(2) as readers:

        def rate(edges: Sequence[Position]) -> float:
            """The best of several runs."""
            parts = [(stack.source_uri, start, end) for start, end in pairwise(edges)]
            seconds = []
            for _ in range(_REPETITIONS):
                begun_at = time.perf_counter()
                read = sum(readers.starmap(_read, parts, chunksize=1))
                seconds.append(time.perf_counter() - begun_at)
                assert read >= _EVENTS, read
            return _EVENTS / min(seconds)

        rate(cuts)
        one, two = rate([cuts[0], cuts[-1]]), rate(cuts)
    read = Figure.more_is_better("read_two_slices", two, "entries/s", baseline=one, note="the baseline is one slice")
    return [read, _divided(stack)]


def _divided(stack: DevStack) -> Figure:
    """Four slots divide windows, and two do not. The CPU of the product alone, of the last of several runs."""
    workload = Workload(events=_EVENTS, tables=_TABLES, database=f"bench_{uuid.uuid4().hex[:8]}")
    with connect(stack.source_uri) as source:
        workload.prepare(source)
        window = workload.insert(source, batches_a_second=_BATCHES_A_SECOND)
        undivided, divided = (_own_cpu(stack, source, workload, window, f"local[{slots}]") for slots in (2, 4))
    return Figure.less_is_better(
        "divided_window_cpu", divided, "us/event", baseline=undivided, note="the baseline is undivided"
    )


def _own_cpu(stack: DevStack, source: Client, workload: Workload, window: Window, master: str) -> float:
    with connect(stack.target_uri) as target, Product(stack, spark_master=master) as product:
        product.warm_up(source)
        for _ in range(_REPETITIONS):
            target.drop_database(target_of(workload.database))
            id = product.create(workload.database, start=str(window.start.ts))
            product.until_begun(id)
            with product.usage(memory=False) as usage:
                product.until_at(id, window.end)
            product.remove(id)
            product.until_gone(id)
    return sum(usage.cpu[part] for part in ("owner", "processor", JVM, WORKERS)) / workload.events * 1e6


def _read(uri: str, start: Position, end: Position) -> int:
    """Reads a slice as a task does, up to the headers of its events."""
    found = 0
    with connect(uri) as source:
        reader = OplogReader(source, [], patience=timedelta(seconds=10))
        with closing(reader.read(Window(start, end))) as batches:
            for batch in batches:
                found += sum(1 for event in batch.events if scan(event).type != b"noop")
    return found
