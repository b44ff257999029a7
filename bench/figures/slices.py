"""`slices`: reads one range of the oplog as two slices on two cores, compared with one slice, to measure how reading scales."""

from __future__ import annotations

import multiprocessing
import time
import uuid
from collections.abc import Sequence
from contextlib import closing
from datetime import timedelta
from itertools import pairwise

from bench.result import Figure
from bench.workload import Workload
from changefeed.position import Position, Window
from devstack.stack import DevStack
from source.connection import connect
from source.oplog.row_entry import scan
from source.oplog.row_reader import OplogReader

_EVENTS, _TABLES = 400_000, 4
_REPETITIONS = 3


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
    return [Figure.more_is_better("read_two_slices", two, "entries/s", baseline=one, note="the baseline is one slice")]


def _read(uri: str, start: Position, end: Position) -> int:
    """Reads a slice as a task does, up to the headers of its events."""
    found = 0
    with connect(uri) as source:
        reader = OplogReader(source, [], patience=timedelta(seconds=10))
        with closing(reader.read(Window(start, end))) as batches:
            for batch in batches:
                found += sum(1 for event in batch.events if scan(event).type != b"noop")
    return found
