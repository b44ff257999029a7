"""`DataWriter`: writes messages of rows into data files, one after another, and gives their receipts.

`DataFormat` says how messages are stored: JSON or BSON one after another, or Parquet. A file's name says how its content is compressed:
`.json`, `.json.gz`, `.json.zst`.
"""

from __future__ import annotations

import secrets
import zlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import zstandard

from changefeed.cluster_time import ClusterTime
from changefeed.config.sinks.file_options import COMPRESSION_LEVEL, Compression, FileFormat, FileSinkOptions
from changefeed.errors import SluiceError
from sink.messages.files.store import Store
from sink.messages.row_message import BsonRows, JsonRows
from sink.receipt import Receipt
from sink.row import RowChange, TargetTable
from sluice_client.manifest import DATA

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
    from sink.messages.files.parquet import ParquetFile, ParquetRows  # noqa: PLC0415 - pyarrow takes time and memory to load

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


SUFFIXES: Mapping[Compression, str] = {Compression.GZIP: ".gz", Compression.ZSTD: ".zst", Compression.NONE: ""}


class Compressor(Protocol):
    def compress(self, data: bytes, /) -> bytes: ...
    def flush(self) -> bytes: ...


def compressor(compression: Compression) -> Compressor | None:
    match compression:
        case Compression.GZIP:
            return zlib.compressobj(COMPRESSION_LEVEL, wbits=zlib.MAX_WBITS | 16)
        case Compression.ZSTD:
            return zstandard.ZstdCompressor(level=COMPRESSION_LEVEL).compressobj()
        case Compression.NONE:
            return None


class DataWriter(Generic[M]):
    """For one task's run. An attempt that ends without `finish` leaves files that no manifest names (`leftovers.py`)."""

    def __init__(self, format: DataFormat[M], file_bytes: int, store: Store, epoch: int) -> None:
        """`epoch`: that of the task's node."""
        self._format = format
        self._file_bytes = file_bytes
        self._store = store
        self._folder = f"{DATA}/{epoch}"
        self._attempt = secrets.token_hex(12)
        self._open: _OpenFile[M] | None = None
        self._written: list[Receipt] = []

    def write(self, messages: Iterable[M]) -> None:
        for message in messages:
            if self._open is None:
                name = f"{self._folder}/{self._attempt}-{len(self._written)}.{self._format.suffix}"
                self._open = _OpenFile(self._store, name, self._format)
            self._open.add(message)
            if self._open.size >= self._file_bytes:
                self._end_file()

    def finish(self) -> tuple[Receipt, ...]:
        """Everything is durable. The writer begins anew after it."""
        self._end_file()
        written, self._written, self._attempt = tuple(self._written), [], secrets.token_hex(12)
        return written

    def abandon(self) -> None:
        """What was written since the last `finish` is garbage. What cannot be removed now is removed when the node is gone."""
        garbage = [receipt.name for receipt in self._written]
        if self._open is not None:
            self._open.close()
            garbage.append(self._open.name)
        self._open, self._written = None, []
        with suppress(SluiceError):
            for name in garbage:
                self._store.remove(name)

    def _end_file(self) -> None:
        if self._open is not None:
            self._written.append(self._open.end())
            self._open = None


class _OpenFile(Generic[M]):
    def __init__(self, store: Store, name: str, format: DataFormat[M]) -> None:
        self.name = name
        self._file = store.new(name)
        self._rows = self._crc = self.size = 0
        self._dropped = False
        self._content = format.content(self._store)

    def add(self, message: M) -> None:
        self._rows += 1
        self._content.add(message)

    def end(self) -> Receipt:
        self._content.end()
        self._file.end()
        return Receipt(name=self.name, rows=self._rows, bytes=self.size, crc32=self._crc)

    def close(self) -> None:
        self._dropped = True
        self._file.close()

    def _store(self, stored: bytes) -> None:
        """Some formats write their end when they are thrown away."""
        if self._dropped:
            return
        self._file.write(stored)
        self._crc = zlib.crc32(stored, self._crc)
        self.size += len(stored)
