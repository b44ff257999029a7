"""`spark_reader`: a stream of Spark reads changes from Parquet files, compared with a change stream that is handed to Spark, batch by batch, and with
Spark's own reading of the same files. All that Spark does is measured, the start of a query too. The change stream reads a part of the changes: it
has no start to speak of, and takes as long for each.
"""

from __future__ import annotations

import os
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bson import json_util
from pyspark.sql import DataFrame, SparkSession

from bench.product import Product
from bench.result import Figure
from bench.workload import Workload
from changefeed.position import Window
from devstack.process import wait_until
from devstack.stack import DevStack
from sink.messages.files.directory import Directory
from sluice_client.feed_directory import FeedDirectory
from source.connection import Client, connect

_EVENTS, _STREAM_EVENTS, _BATCH, _REPETITIONS = 1_000_000, 200_000, 10_000, 3
_PATIENCE_SECONDS = 60.0


def spark_reader(stack: DevStack) -> list[Figure]:
    workload = Workload(events=_EVENTS, tables=4, database=f"bench_{uuid.uuid4().hex[:8]}")
    directory = stack.directory / uuid.uuid4().hex
    with connect(stack.source_uri) as source:
        workload.prepare(source)
        window = workload.insert(source)
        with Product(stack) as product:
            _write(product, workload, window, directory)
        os.environ["PYSPARK_PYTHON"] = sys.executable
        spark = SparkSession.builder.master("local[2]").config("spark.ui.showConsoleProgress", "false").getOrCreate()
        try:
            return _measured(spark, source, workload, window, directory)
        finally:
            spark.stop()


def _write(product: Product, workload: Workload, window: Window, directory: Path) -> None:
    id = product.create(
        workload.database, sink=f"file://{directory}?commit_interval=1s&format=parquet", start=str(window.start.ts)
    )
    product.until_begun(id)
    product.until_at(id, window.end)
    feed = FeedDirectory(Directory(str(directory)))
    assert wait_until(lambda: (mark := feed.mark()) is not None and mark.at >= window.end, _PATIENCE_SECONDS)
    product.remove(id)


def _measured(spark: SparkSession, source: Client, workload: Workload, window: Window, directory: Path) -> list[Figure]:
    place, checkpoints = f"file://{directory}", directory.with_suffix(".checkpoints")

    def streamed() -> None:
        query = spark.readStream.format("sluice").load(place).writeStream.foreachBatch(_take)
        query = query.option("checkpointLocation", str(checkpoints / uuid.uuid4().hex)).trigger(availableNow=True)
        query.start().awaitTermination()

    def plain() -> None:
        _change_stream(spark, source, workload.database, window)

    stream, change_stream = _EVENTS / _least_seconds(streamed), _STREAM_EVENTS / _least_seconds(plain)
    read, parquet = (
        _EVENTS / _least_seconds(lambda rows=rows: _take(rows, 0))  # type: ignore[misc]
        for rows in (spark.read.format("sluice").load(place), spark.read.parquet(f"{place}/data/*/*.parquet"))
    )
    return [
        Figure.more_is_better("spark_stream", stream, "changes/s", baseline=change_stream),
        Figure.more_is_better("spark_read", read, "changes/s", baseline=parquet),
    ]


def _change_stream(spark: SparkSession, source: Client, database: str, window: Window) -> None:
    """As a program does without a source for Spark: a driver's change stream, whose events become a DataFrame for each batch."""
    rows: list[tuple[str, str, str]] = []
    seen = 0
    with source[database].watch(start_at_operation_time=window.start.ts.to_bson(), batch_size=_BATCH) as stream:
        for event in stream:
            rows.append((event["operationType"], event["ns"]["coll"], json_util.dumps(event["fullDocument"])))
            seen += 1
            if len(rows) == _BATCH or seen == _STREAM_EVENTS:
                _take(spark.createDataFrame(rows, "op string, ns string, after string"), 0)
                rows.clear()
            if seen == _STREAM_EVENTS:
                return


def _take(rows: DataFrame, number: int) -> None:  # noqa: ARG001 - Spark gives it
    """All columns of all rows, and nothing is kept."""
    rows.write.format("noop").mode("overwrite").save()


def _least_seconds(run: Callable[[], Any]) -> float:
    """The shortest of several runs, which is the least disturbed one."""
    taken = []
    for _ in range(_REPETITIONS):
        begun_at = time.perf_counter()
        run()
        taken.append(time.perf_counter() - begun_at)
    return min(taken)
