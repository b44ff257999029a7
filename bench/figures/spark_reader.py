"""`spark_reader`: a stream of Spark reads changes from Parquet files, compared with a change stream that is handed to Spark, batch by batch, with the
stream of MongoDB's own connector, and with Spark's own reading of the same files. All that Spark does is measured, the start of a query too. The
change streams read fewer changes: they have no start to speak of, and take as long for each.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bson import json_util
from pyspark.sql import DataFrame, SparkSession

from bench.product import Product
from bench.result import Figure
from bench.workload import Workload
from changefeed.cluster_time import ClusterTime
from changefeed.position import Window
from devstack.kafka.release import PinnedJars
from devstack.process import wait_until
from devstack.stack import DevStack
from sink.messages.files.directory import Directory
from sluice_client.feed_directory import FeedDirectory
from source.connection import Client, connect

_EVENTS, _FEW_EVENTS, _BATCH, _REPETITIONS = 1_000_000, 200_000, 10_000, 3
_PATIENCE_SECONDS, _WRITE_EVERY_SECONDS = 60.0, 0.05
_CONNECTOR = PinnedJars(
    "org.mongodb.spark",
    "mongo-spark-connector_2.13",
    "10.5.0",
    "fe2cc66df44b83ee13776fb3a678a4432a22eff8f6b9f6615e1bbcda86a338e4",
)


def spark_reader(stack: DevStack) -> list[Figure]:
    workload, few = (
        Workload(events=events, tables=4, database=f"bench_{uuid.uuid4().hex[:8]}") for events in (_EVENTS, _FEW_EVENTS)
    )
    directory = stack.directory / uuid.uuid4().hex
    with connect(stack.source_uri) as source:
        workload.prepare(source)
        window = workload.insert(source)
        with Product(stack) as product:
            _write(product, workload, window, directory)
        few.prepare(source)
        start = few.insert(source).start.ts
        os.environ["PYSPARK_PYTHON"] = sys.executable
        builder = SparkSession.builder.master("local[2]").config("spark.ui.showConsoleProgress", "false")
        jars = ",".join(map(str, _CONNECTOR.folder().glob("*.jar")))
        spark = builder.config("spark.jars", jars).getOrCreate()
        try:
            with _later_writes(source):
                connector = _connector(spark, stack.source_uri, few.database, start)
                return _measured(
                    spark, directory, lambda: _change_stream(spark, source, few.database, start), connector
                )
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


def _measured(
    spark: SparkSession, directory: Path, change_stream: Callable[[], None], connector: DataFrame
) -> list[Figure]:
    place, checkpoints = f"file://{directory}", directory.with_suffix(".checkpoints")
    feed = spark.readStream.format("sluice").load(place)
    stream = _EVENTS / _least_seconds(lambda: _streamed(feed, checkpoints, _EVENTS))
    plain = _FEW_EVENTS / _least_seconds(change_stream)
    connected = _FEW_EVENTS / _least_seconds(lambda: _streamed(connector, checkpoints, _FEW_EVENTS))
    read, parquet = (
        _EVENTS / _least_seconds(lambda rows=rows: _take(rows, 0))  # type: ignore[misc]
        for rows in (spark.read.format("sluice").load(place), spark.read.parquet(f"{place}/data/*/*.parquet"))
    )
    return [
        Figure.more_is_better("spark_stream", stream, "changes/s", baseline=plain),
        Figure.more_is_better("spark_stream_connector", stream, "changes/s", baseline=connected),
        Figure.more_is_better("spark_read", read, "changes/s", baseline=parquet),
    ]


def _streamed(rows: DataFrame, checkpoints: Path, events: int) -> None:
    query = rows.writeStream.foreachBatch(_take).option("checkpointLocation", str(checkpoints / uuid.uuid4().hex))
    running = query.trigger(availableNow=True).start()
    running.awaitTermination()
    assert sum(batch["numInputRows"] for batch in running.recentProgress) >= events


def _connector(spark: SparkSession, uri: str, database: str, start: ClusterTime) -> DataFrame:
    """What `_change_stream` takes of an event, by MongoDB's connector."""
    options = {
        "connection.uri": uri,
        "database": database,
        "collection": "*",
        "change.stream.publish.full.document.only": "false",
        "change.stream.startup.mode": "timestamp",
        "change.stream.startup.mode.timestamp.start.at.operation.time": str(start.seconds),
        "outputExtendedJson": "true",
    }
    events = spark.readStream.format("mongodb").options(**options)
    return events.schema("operationType string, ns struct<coll: string>, fullDocument string").load()


@contextmanager
def _later_writes(source: Client) -> Iterator[None]:
    """The connector ends a batch when the source shows something later."""
    ended = threading.Event()

    def write() -> None:
        while not ended.wait(_WRITE_EVERY_SECONDS):
            source["later"]["later"].insert_one({})

    with ThreadPoolExecutor(1) as thread:
        writing = thread.submit(write)
        try:
            yield
        finally:
            ended.set()
            writing.result()


def _change_stream(spark: SparkSession, source: Client, database: str, start: ClusterTime) -> None:
    """As a program does without a source for Spark: a driver's change stream, whose events become a DataFrame for each batch."""
    rows: list[tuple[str, str, str]] = []
    seen = 0
    with source[database].watch(start_at_operation_time=start.to_bson(), batch_size=_BATCH) as stream:
        for event in stream:
            rows.append((event["operationType"], event["ns"]["coll"], json_util.dumps(event["fullDocument"])))
            seen += 1
            if len(rows) == _BATCH or seen == _FEW_EVENTS:
                _take(spark.createDataFrame(rows, "op string, ns string, after string"), 0)
                rows.clear()
            if seen == _FEW_EVENTS:
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
