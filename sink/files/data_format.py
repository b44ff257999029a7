"""`DataFormat`: how messages of rows are made and stored in data files: JSON or BSON one after another, or Parquet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from changefeed.cluster_time import ClusterTime
from changefeed.config.sinks.file_sink import Compression, FileFormat, FileSinkOptions
from sink.files.compression import SUFFIXES, compressor
from sink.messages.row_message import BsonRows, JsonRows
from sink.row import RowChange, TargetTable

M = TypeVar("M")
M_co = TypeVar("M_co", covariant=True)
M_contra = TypeVar("M_contra", contravariant=True)
_BUFFER_BYTES = 1 << 20


class Encoder(Protocol[M_co]):
    def change(self, change: RowChange) -> M_co: ...

    def copied(self, table: TargetTable, document: bytes, key: bytes, read_ts: ClusterTime) -> M_co: ...


class Content(Protocol[M_contra]):
    """Of one file."""

    def add(self, message: M_contra) -> None: ...

    def end(self) -> None:
        """Everything has been given to the store."""


@dataclass(frozen=True, slots=True)
class DataFormat(Generic[M]):
    suffix: str
    encoder: Encoder[M]
    content: Callable[[Callable[[bytes], None]], Content[M]]
    """Of a new file, whose bytes it gives to the function in their order."""


def data_format(feed: str, options: FileSinkOptions) -> DataFormat[Any]:
    compression = options.compression
    match options.format:
        case FileFormat.JSON:
            name = f"json{SUFFIXES[compression]}"
            return DataFormat(name, JsonRows(feed), lambda store: _OneAfterAnother(compression, b"\n", store))
        case FileFormat.BSON:
            name = f"bson{SUFFIXES[compression]}"
            return DataFormat(name, BsonRows(feed), lambda store: _OneAfterAnother(compression, b"", store))
        case FileFormat.PARQUET:
            return _parquet(feed, options)


def _parquet(feed: str, options: FileSinkOptions) -> DataFormat[Any]:
    from sink.files.parquet.parquet_file import ParquetFile  # noqa: PLC0415 - pyarrow takes time and memory to load
    from sink.files.parquet.parquet_rows import ParquetRows  # noqa: PLC0415 - as above

    return DataFormat(
        "parquet",
        ParquetRows(),
        lambda store: ParquetFile(feed, options.compression, options.file_bytes, store),
    )


class _OneAfterAnother:
    def __init__(self, compression: Compression, separator: bytes, store: Callable[[bytes], None]) -> None:
        self._compressor = compressor(compression)
        self._separator = separator
        self._store = store
        self._buffer = bytearray()

    def add(self, message: bytes) -> None:
        self._buffer += message
        self._buffer += self._separator
        if len(self._buffer) >= _BUFFER_BYTES:
            self._pass_on()

    def end(self) -> None:
        self._pass_on()
        if self._compressor is not None:
            self._store(self._compressor.flush())

    def _pass_on(self) -> None:
        buffer, self._buffer = bytes(self._buffer), bytearray()
        self._store(buffer if self._compressor is None else self._compressor.compress(buffer))
