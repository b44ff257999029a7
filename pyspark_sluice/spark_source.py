"""`DefaultSource`: the data source `sluice` of Spark. Its readers live in a Python process at the driver; `read` runs in tasks.

From PySpark 4.2 on a source is told where a batch begins and how much it may take, and hears of `availableNow`. Before that it says only what is
newest, so limits and ddl=stop are refused there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from typing import ParamSpec, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from pyspark_sluice.feed_batches import FeedBatches, FeedPartition, Offset
from pyspark_sluice.reader_options import BatchLimits, ReaderOptions
from sluice_client.feed_errors import ConfigurationError, SluiceError
from sluice_client.feed_reader import Watermark

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxFiles,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )

    LIMITED = True
except ImportError:  # before 4.2
    LIMITED = False

P = ParamSpec("P")
T = TypeVar("T")


class SluiceReadError(Exception):
    """What a user has to do, without the way there."""


def told(step: Callable[P, T]) -> Callable[P, T]:
    @wraps(step)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return step(*args, **kwargs)
        except SluiceError as error:
            problem = str(error)
        raise SluiceReadError(problem)

    return run


class DefaultSource(DataSource):
    @told
    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        self._parsed = ReaderOptions.parse(options)

    @classmethod
    def name(cls) -> str:
        return "sluice"

    def schema(self) -> str:
        from pyspark_sluice.arrow_rows import SPARK_SCHEMA  # noqa: PLC0415 - it takes time to load, and few of a query's processes need it

        return SPARK_SCHEMA

    @told
    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - it is the only one
        if self._parsed.stop_at_ddl:
            problem = "ddl=stop ends a stream: a table that is read at once would end there without a word; leave it out, or use readStream"
            raise ConfigurationError([problem])
        return FeedTableReader(self._parsed)

    @told
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802 - it is the only one; Spark names it
        if LIMITED:
            return LimitedStreamReader(self._parsed)
        if self._parsed.limits or self._parsed.stop_at_ddl:
            raise ConfigurationError(["limits and ddl=stop need PySpark 4.2: leave them out, or install a newer one"])
        return FeedStreamReader(self._parsed)


def _read(partition: InputPartition) -> Iterator[pa.RecordBatch]:
    assert isinstance(partition, FeedPartition)
    batches = partition.read()
    while (batch := told(next)(batches, None)) is not None:
        yield batch


class FeedTableReader(DataSourceReader):
    """From the start to the newest watermark."""

    def __init__(self, options: ReaderOptions) -> None:
        self._options = options

    @told
    def partitions(self) -> Sequence[InputPartition]:
        batches = FeedBatches(self._options)
        first = batches.first()
        found = batches.partitions(first, batches.end(first, batches.newest(), BatchLimits()))
        return found or [FeedPartition(self._options, [], [])]  # Spark makes one of its own of none

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(partition)


class FeedStreamReader(DataSourceStreamReader):
    def __init__(self, options: ReaderOptions) -> None:
        self._options = options
        self._opened: FeedBatches | None = None
        """In the process that plans; tasks get the reader without it."""
        self._until: Watermark | None = None
        """With availableNow: no batch goes beyond it."""

    @told
    def initialOffset(self) -> Offset:  # noqa: N802 - Spark names it
        return self._batches.offset(self._batches.first())

    @told
    def latestOffset(self) -> Offset:  # type: ignore[override] # noqa: N802 - as it was before 4.2
        return self._batches.offset(self._newest())

    @told
    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        return self._batches.partitions(self._batches.mark(start), self._batches.mark(end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(partition)

    @told
    def commit(self, end: Offset) -> None:
        self._batches.passed(self._batches.mark(end))

    @property
    def _batches(self) -> FeedBatches:
        self._opened = self._opened or FeedBatches(self._options)
        return self._opened

    def _newest(self) -> Watermark:
        return self._until or self._batches.newest()


if LIMITED:

    class LimitedStreamReader(FeedStreamReader, SupportsTriggerAvailableNow):
        @told
        def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # type: ignore[override] # noqa: N802 - Spark names it
            limits = BatchLimits() if isinstance(limit, ReadAllAvailable) else self._options.limits
            return self._batches.offset(self._batches.end(self._batches.mark(start), self._newest(), limits))

        def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark names it
            """Spark knows one limit; all that are asked for hold."""
            limits = self._options.limits
            if limits.rows:
                return ReadMaxRows(limits.rows)
            if limits.bytes:
                return ReadMaxBytes(limits.bytes)
            return ReadMaxFiles(limits.files) if limits.files else ReadAllAvailable()

        @told
        def reportLatestOffset(self) -> Offset | None:  # noqa: N802 - Spark names it
            return self._batches.offset(self._newest())

        @told
        def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark names it
            self._until = self._batches.newest()
