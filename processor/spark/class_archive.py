"""`python -m processor.spark.class_archive FILE`: the classes of Spark's driver, ready to be mapped by a JVM that starts.

A node needs `SPARK_SUBMIT_OPTS=-XX:SharedArchiveFile=FILE` in its environment. Its Spark then takes a third of the CPU to start. A JVM that
cannot use the file, since Java or Spark are others by now, starts without it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

_RUN_A_JOB = "from processor.spark.runner import SparkRunner\nwith SparkRunner() as spark: spark.probe()"


def make(file: Path) -> str:
    """Returns what the JVM said if it made none. Does nothing if the file is newer than Java and Spark. The JVM writes it when it ends."""
    spark = Path(str(files("pyspark"))) / "jars"
    if file.exists() and file.stat().st_mtime > max(map(_installed_at, (_java(), spark))):
        return ""
    file.unlink(missing_ok=True)
    unfinished = file.with_suffix(".unfinished")
    unfinished.unlink(missing_ok=True)
    ended = subprocess.run(  # noqa: S603  # our own command; returns when the JVM has ended too, which has the pipe
        [sys.executable, "-c", _RUN_A_JOB],
        env={**os.environ, "SPARK_SUBMIT_OPTS": f"-XX:ArchiveClassesAtExit={unfinished.absolute()}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if not unfinished.exists():
        return ended.stdout
    unfinished.rename(file)
    return ""


def _java() -> Path:
    home = os.environ.get("JAVA_HOME")
    return Path(home, "bin", "java") if home else Path(shutil.which("java") or "java")


def _installed_at(path: Path) -> float:
    return path.resolve().stat().st_ctime


if __name__ == "__main__":
    if said := make(Path(sys.argv[1])):
        sys.exit(f"Spark starts without an archive of its classes; its JVM made none:\n{said}")
