"""What a user of Spark does, in a process of its own: `python -m tests.e2e.spark_reader.reading tables|stream PLACE FOLDER`. Writes what it saw into files of the folder."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from pyspark.sql import Row, SparkSession

from pyspark_sluice import documents, latest

_SLOW = ("failed to connect back", "Timed out", "timed out")
"""What Spark says when a Python of it has not begun after ten seconds, which it has on a busy machine. A query that is started again goes on."""


def main() -> None:
    how, place, folder = sys.argv[1:]
    builder = SparkSession.builder.master("local[2]")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.python.authenticate.socketTimeout": "600s",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.codegen.wholeStage": "false",  # what is compiled runs once
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    {"tables": _tables, "stream": _stream}[how](builder.getOrCreate(), place, Path(folder))


def _tables(spark: SparkSession, place: str, folder: Path) -> None:
    read = spark.read.format("sluice")
    rows = _again(lambda: read.load(place).cache())
    steps: dict[str, Callable[[], object]] = {
        "rows": lambda: _names(rows.collect()),
        "latest": lambda: sorted((row.ns, row.key) for row in latest(rows.where(f"pos < '{141:08X}'")).collect()),
        "documents": lambda: [
            (row.document._id, row.document.at, row._errors)
            for row in documents(rows.where("op = 'i' AND ns = 'shop.a'"), "_id int, at string").collect()
        ],
        "refused": lambda: _told(lambda: latest(rows).collect()),
        "nothing": lambda: _told(lambda: read.load(str(folder)).collect()),
        "option": lambda: _told(lambda: spark.read.format("sluice").option("table", "shop.a").load(place).collect()),
        "one": lambda: _stream_now(spark, place, folder / "one", "7"),
        "other": lambda: _stream_now(spark, place, folder / "other", "1000"),
    }
    (folder / "found.json").write_text(json.dumps({name: _again(step) for name, step in steps.items()}))


def _stream(spark: SparkSession, place: str, folder: Path) -> None:
    """Until it is ended. What it has is told by another process."""
    _again(lambda: _query(spark, place, folder, "40").start(str(folder / "rows")).awaitTermination())


def _stream_now(spark: SparkSession, place: str, folder: Path, limit: str) -> int:
    """How many batches there are up to the newest watermark."""
    _query(spark, place, folder, limit).trigger(availableNow=True).start(str(folder / "rows")).awaitTermination()
    return len(list((folder / "checkpoint" / "commits").glob("[0-9]*")))


def _query(spark: SparkSession, place: str, folder: Path, limit: str) -> Any:
    rows = spark.readStream.format("sluice").option("maxRowsPerTrigger", limit).load(place)
    return rows.writeStream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))


def _again(step: Callable[[], Any]) -> Any:
    while True:
        try:
            return step()
        except Exception as error:  # whichever class Spark makes of it
            if not _is_slow(error):
                raise


def _told(step: Callable[[], object]) -> str:
    try:
        step()
    except Exception as error:
        if _is_slow(error):
            raise
        return str(error)
    return ""


def _is_slow(error: Exception) -> bool:
    return any(text in str(error) for text in _SLOW)


def _names(rows: Iterable[Row]) -> list[tuple[str, str, str, str]]:
    return sorted((row.pos, row.op, row.key or "", row.ddl or "") for row in rows)


if __name__ == "__main__":
    main()
