"""What a user of Spark does, in a process of its own: `python -m tests.e2e.spark_reader.reading HOW PLACE FOLDER`. Writes what it saw into files of the folder.

SPARK_MASTER names a cluster; without it Spark is in the process.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession

from pyspark_sluice import documents, latest

_RECIPES = Path(__file__).parents[3] / "docs" / "how-to" / "spark-recipes.md"
DAYS = ("1970-01-02", "1970-01-03", "1970-01-02")
_SLOW = ("failed to connect back", "Timed out", "timed out")
"""What Spark says when a Python of it has not begun after ten seconds, which it has on a busy machine. A query that is started again goes on."""


def main() -> None:
    how, place, folder = sys.argv[1:]
    os.environ["PYSPARK_PYTHON"] = sys.executable  # `python3` of the PATH may be one without this source
    builder = SparkSession.builder.master(os.environ.get("SPARK_MASTER", "local[2]"))
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.python.authenticate.socketTimeout": "1h",  # no task fails because the machine is busy
        "spark.network.timeout": "1h",
        "spark.sql.broadcastTimeout": "3600",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.codegen.wholeStage": "false",  # what is compiled runs once
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    {"tables": _tables, "stream": _stream, "now": _now, "refused": _refused, "recipes": _recipes}[how](
        builder.getOrCreate(), place, Path(folder)
    )


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
        "identities": lambda: sorted(row.key for row in latest(read.load(f"{folder}/identities")).collect()),
        "refused": lambda: _told(lambda: latest(rows).collect()),
        "old name": lambda: latest(_of_table(spark, place, "shop.b")).collect(),
        "new name": lambda: _told(lambda: latest(_of_table(spark, place, "shop.c")).collect()),
        "nothing": lambda: _told(lambda: read.load(str(folder)).collect()),
        "newest": lambda: spark.read.format("sluice").option("start", "newest").load(place).count(),
        "option": lambda: _told(lambda: spark.read.format("sluice").option("table", "shop.a").load(place).collect()),
        "batches": lambda: _two_streams(spark, place, folder),
        "damaged": lambda: [
            _told(step)
            for each in ("cut", "spoilt")
            for step in (
                lambda each=each: read.load(f"{folder}/{each}").collect(),
                lambda each=each: _now(spark, f"{folder}/{each}", folder / f"{each} query"),
            )
        ],
        "again": lambda: _again_and_another_life(spark, f"{place}_again", folder),
    }
    (folder / "found.json").write_text(json.dumps({name: _again(step) for name, step in steps.items()}))


def _stream(spark: SparkSession, place: str, folder: Path) -> None:
    """Until it is ended. What it has is told by another process."""
    _again(lambda: _query(spark, place, folder, "40").start(str(folder / "rows")).awaitTermination())


def _refused(spark: SparkSession, place: str, folder: Path) -> None:
    told = _again(lambda: _told(lambda: spark.read.format("sluice").load(place).collect()))
    (folder / "found.json").write_text(json.dumps(told))


def _recipes(spark: SparkSession, place: str, folder: Path) -> None:
    """Delta in batches of two rows, and anew in one; snapshots of two days, the first one again; minutes."""
    lake, days, minutes = (
        "\n".join(line[4:] for line in part.splitlines() if line.startswith("    "))
        for part in _RECIPES.read_text(encoding="utf-8").split("\n## ")[1:]
    )
    limited = lake.replace('"ddl", "stop")', '"ddl", "stop").option("maxRowsPerTrigger", "2")')
    for number, code in enumerate((limited, lake, *(days.replace("2026-11-29", day) for day in DAYS), minutes)):
        here = code.replace("file:///srv/orders", place).replace("/srv/", f"{folder}/")
        _again(partial(exec, here, {"spark": spark}))
        if number == 0:
            shutil.copytree(folder / "lake", folder / "lake before")
            shutil.rmtree(folder / "checkpoints")


def _of_table(spark: SparkSession, place: str, name: str) -> DataFrame:
    return spark.read.format("sluice").option("tables", name).load(place)


def _two_streams(spark: SparkSession, place: str, folder: Path) -> list[int]:
    """At the same time. How many batches each has up to the newest watermark."""
    queries = [
        _query(spark, place, folder / name, limit).trigger(availableNow=True).start(str(folder / name / "rows"))
        for name, limit in (("one", "7"), ("other", "1000"))
    ]
    for query in queries:
        query.awaitTermination()
    return [len(list((folder / name / "checkpoint" / "commits").glob("[0-9]*"))) for name in ("one", "other")]


def _again_and_another_life(spark: SparkSession, place: str, folder: Path) -> dict[str, object]:
    """A stream whose tables begin again, and then the changefeed, in the same place."""
    _now(spark, place, folder / "again", "9")
    found = sorted((row.ns, row.key) for row in latest(spark.read.format("sluice").load(place)).collect())
    there = Path(place.removeprefix("file://"))
    if (other := folder / "another life").exists():
        shutil.rmtree(there)
        other.rename(there)
    return {"latest": found, "another life": _told(lambda: _now(spark, place, folder / "again"))}


def _now(spark: SparkSession, place: str, folder: Path, limit: str = "1000") -> None:
    """What there is. A query goes on where it was."""
    query = _query(spark, place, folder, limit).trigger(availableNow=True).start(str(folder / "rows"))
    query.awaitTermination()


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
