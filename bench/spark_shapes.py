"""Which way through Spark is cheaper: RDDs, which the pipeline uses, or `mapInArrow` on data frames.

Both carry the same packed events in the same few large records. Arrow is not among the project's dependencies, so this measurement
is made on request only, with pyarrow and pandas beside them (`pip install pyarrow pandas`).

    narrow       a job of one task: what a job costs
    shuffled     slices are read, packed by bucket, brought together in order and unpacked: what an event costs
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any
from zlib import crc32

from pyspark.sql import SparkSession

from bench.recorded import replies
from bench.result import Result
from bench.usage import Usage
from processor.packed_events import BLOB_BYTES
from processor.spark import Group, SparkRunner
from source.raw_event import scan
from source.raw_reply import parse_reply

_SLICES, _BUCKETS = 4, 4
_EVENTS_A_SLICE = 20_000
_NARROW_JOBS, _REPETITIONS = 30, 3
_GROUP = Group("shapes", "bench")
_RECORD = "bucket int, slice int, chunk int, events binary"
_INT32 = 4

Chunk = tuple[tuple[int, int, int], bytes]


@dataclass(frozen=True, slots=True)
class _Cost:
    cpu_seconds: float
    seconds: float


def spark_shapes() -> list[Result]:
    with SparkRunner() as spark:
        spark.run_one(_GROUP, _nothing)
        session = SparkSession.builder.getOrCreate()
        session.conf.set("spark.sql.adaptive.enabled", "false")
        session.conf.set("spark.sql.shuffle.partitions", str(_BUCKETS))
        narrow = _costs(lambda: spark.run_one(_GROUP, _nothing), lambda: _narrow_frame(session), times=_NARROW_JOBS)
        shuffled = _costs(lambda: _shuffled(spark), lambda: _shuffled_frame(session), times=1)
    return [
        _compared("spark_narrow", narrow, 1e3, "ms CPU/job"),
        _compared("spark_shuffled", shuffled, 1e6 / (_SLICES * _EVENTS_A_SLICE), "us CPU/event"),
    ]


def _compared(name: str, costs: list[_Cost], scale: float, unit: str) -> Result:
    rdd, frame = costs
    note = f"a job takes {rdd.seconds * 1e3:.0f} ms by RDD, {frame.seconds * 1e3:.0f} ms by mapInArrow"
    return Result.less_is_better(name, rdd.cpu_seconds * scale, unit, baseline=frame.cpu_seconds * scale, note=note)


def _costs(*ways: Callable[[], object], times: int) -> list[_Cost]:
    """Of one run of each way, warm; they take turns."""
    for way in ways:
        for _ in range(times):
            way()
    taken: list[list[_Cost]] = [[] for _ in ways]
    for _ in range(_REPETITIONS):
        for way, costs in zip(ways, taken, strict=True):
            with Usage() as usage:
                for _ in range(times):
                    way()
            costs.append(_Cost(usage.cpu_seconds / times, usage.seconds / times))
    return [
        _Cost(statistics.median(cost.cpu_seconds for cost in costs), statistics.median(cost.seconds for cost in costs))
        for costs in taken
    ]


def _nothing() -> int:
    return 0


def _narrow_frame(session: SparkSession) -> None:
    session.range(1, numPartitions=1).mapInArrow(lambda batches: batches, "id long").collect()


def _shuffled(spark: SparkRunner) -> None:
    applied = spark.run_shuffled(_GROUP, list(range(_SLICES)), _read, _BUCKETS, _apply)
    assert sum(applied) == _SLICES * _EVENTS_A_SLICE


def _shuffled_frame(session: SparkSession) -> None:
    read = session.range(_SLICES, numPartitions=_SLICES).mapInArrow(_read_batches, _RECORD)
    ordered = read.repartition(_BUCKETS, "bucket").sortWithinPartitions("bucket", "slice", "chunk")
    applied = ordered.mapInArrow(_apply_batches, "applied long").collect()
    assert sum(row.applied for row in applied) == _SLICES * _EVENTS_A_SLICE


def _read(number: int) -> Iterator[Chunk]:
    """As `read_slice` does it, with what it costs to make up the events left out of neither way."""
    packed: list[list[bytes]] = [[] for _ in range(_BUCKETS)]
    sizes, chunks = [0] * _BUCKETS, 0
    for reply in _recorded(number):
        for event in parse_reply(reply).events:
            bucket = crc32(scan(event).key) % _BUCKETS
            packed[bucket].append(event)
            sizes[bucket] += len(event)
            if sizes[bucket] >= BLOB_BYTES:
                chunks += 1
                yield (bucket, number, chunks), b"".join(packed[bucket])
                packed[bucket], sizes[bucket] = [], 0
    for bucket, events in enumerate(packed):
        yield (bucket, number, chunks + 1), b"".join(events)


_REPLIES: dict[int, list[bytes]] = {}
"""In a worker, over its tasks: events are made up once."""


def _recorded(number: int) -> list[bytes]:
    if number not in _REPLIES:
        _REPLIES[number] = list(replies("insert", events=_EVENTS_A_SLICE, seed=number))
    return _REPLIES[number]


def _apply(chunks: Iterable[Chunk]) -> int:
    return sum(_count(blob) for _, blob in chunks)


def _count(blob: bytes) -> int:
    at = count = 0
    while at < len(blob):
        size = int.from_bytes(blob[at : at + _INT32], "little")
        count += scan(blob[at : at + size]).time > 0
        at += size
    return count


def _read_batches(batches: Iterator[Any]) -> Iterator[Any]:
    arrow: Any = import_module("pyarrow")

    for batch in batches:
        for number in batch.column(0).to_pylist():
            for (bucket, slice_, chunk), blob in _read(number):
                columns = [arrow.array([n], arrow.int32()) for n in (bucket, slice_, chunk)]
                yield arrow.RecordBatch.from_arrays(
                    [*columns, arrow.array([blob], arrow.binary())], ["bucket", "slice", "chunk", "events"]
                )


def _apply_batches(batches: Iterator[Any]) -> Iterator[Any]:
    arrow: Any = import_module("pyarrow")

    applied = sum(_count(blob.as_py()) for batch in batches for blob in batch.column("events"))
    yield arrow.RecordBatch.from_arrays([arrow.array([applied], arrow.int64())], ["applied"])
