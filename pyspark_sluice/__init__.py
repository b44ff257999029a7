"""Spark reads a changefeed in files: `spark.read.format("sluice")`, `spark.readStream.format("sluice")`, and what makes tables of its rows.

Spark finds `DefaultSource` by itself, because this package is named `pyspark_..`.
"""

from __future__ import annotations

from pyspark_sluice.frames import documents, latest
from pyspark_sluice.spark_source import DefaultSource

__all__ = ["DefaultSource", "documents", "latest"]
