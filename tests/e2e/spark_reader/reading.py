"""What a user of Spark does, in a process of its own: `python -m tests.e2e.spark_reader.reading tables|stream PLACE FOLDER`. Writes what it saw into files of the folder."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pyspark.sql import DataFrame, SparkSession

from pyspark_sluice import documents, latest

T = TypeVar("T")
_GIVEN_UP = "Python worker failed to connect back"


def main() -> None:
    how, place, folder = sys.argv[1:]
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    session = spark.config("spark.sql.shuffle.partitions", "2").config(
        "spark.python.authenticate.socketTimeout", "120s"
    )
    {"tables": _tables, "stream": _stream}[how](session.getOrCreate(), place, Path(folder))


def _tables(spark: SparkSession, place: str, folder: Path) -> None:
    rows = spark.read.format("sluice").load(place)
    found: dict[str, Any] = {"rows": _names(rows)}
    whole = rows.where(f"pos < '{141:08X}'")
    found["latest"] = sorted((row.ns, row.key) for row in _again(lambda: latest(whole).collect()))
    fitted = documents(rows.where("op = 'i' AND ns = 'shop.a'"), "_id int, at string").orderBy("pos")
    found["documents"] = [(row.document._id, row.document.at, row._errors) for row in _again(fitted.collect)]
    found["refused"] = _told(lambda: latest(rows).collect())
    found["nothing"] = _told(lambda: spark.read.format("sluice").load(str(folder)).collect())
    found["option"] = _told(lambda: spark.read.format("sluice").option("table", "shop.a").load(place).collect())
    for name, limit in (("one", "7"), ("other", "1000")):
        query = _query(spark, place, folder / name, limit).trigger(availableNow=True)
        _again(partial(_run, query, folder / name))
        found[name] = _names(spark.read.parquet(str(folder / name / "rows")))
        found[f"{name} batches"] = len(list((folder / name / "checkpoint" / "commits").glob("[0-9]*")))
    (folder / "found.json").write_text(json.dumps(found))


def _stream(spark: SparkSession, place: str, folder: Path) -> None:
    """Until it is ended. What it has is told by another process."""
    _query(spark, place, folder, "40").start(str(folder / "rows")).awaitTermination()


def _query(spark: SparkSession, place: str, folder: Path, limit: str) -> Any:
    rows = spark.readStream.format("sluice").option("maxRowsPerTrigger", limit).load(place)
    return rows.writeStream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))


def _run(query: Any, folder: Path) -> None:
    query.start(str(folder / "rows")).awaitTermination()


def _again(step: Callable[[], T]) -> T:
    """On a busy machine Spark gives a worker of Python up that has not begun after ten seconds. A query that is started again goes on."""
    while True:
        try:
            return step()
        except Exception as error:  # whichever class Spark makes of it
            if _GIVEN_UP not in str(error):
                raise


def _names(rows: DataFrame) -> list[tuple[str, str, str | None, str | None]]:
    found = _again(rows.select("pos", "op", "key", "ddl").collect)
    return sorted((row.pos, row.op, row.key or "", row.ddl or "") for row in found)


def _told(step: Callable[[], object]) -> str:
    try:
        _again(step)
    except Exception as error:  # noqa: BLE001 - whatever Spark makes of it
        return str(error)
    return ""


if __name__ == "__main__":
    main()
