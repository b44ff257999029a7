"""`DataWriter`: writes messages of rows into data files, one after another, and gives their receipts.

`HiveWriter`: by table and day, with `layout=hive`. `data_writer` gives that of a sink.

`DataFormat` says how messages are stored: JSON or BSON one after another, or Parquet. A file's name says how its content is compressed:
`.json`, `.json.gz`, `.json.zst`.
"""

from __future__ import annotations

import secrets
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import zstandard

from changefeed.cluster_time import ClusterTime
from changefeed.config.sinks.file_options import COMPRESSION_LEVEL, Compression, FileFormat, FileLayout, FileSinkOptions
from changefeed.errors import SluiceError
from sink.messages.files.store import Store
from sink.messages.row_message import BsonRows, JsonRows
from sink.receipt import Receipt
from sink.row import RowChange, TargetTable
from sluice_client.manifest import data_stem, hive_stem

M = TypeVar("M")
M_co = TypeVar("M_co", covariant=True)
M_contra = TypeVar("M_contra", contravariant=True)
_BUFFER_BYTES = 1 << 20
_HELD_BYTES = 16 << 20
_ENVELOPE_BYTES = 300
_MOST_OPEN = 8
_SECONDS_A_DAY = 86_400


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


class Origin(NamedTuple):
    """Of a message: its table, its cluster time, and the bytes of its documents."""

    table: TargetTable
    seconds: int
    size: int


class RowFiles(Protocol[M_contra]):
    """For one task's run. An attempt that ends without `finish` leaves files that no manifest names (`FileLeftovers`)."""

    def write(self, messages: Sequence[M_contra], origins: Iterable[Origin]) -> None: ...

    def finish(self) -> tuple[Receipt, ...]:
        """Everything is durable. The writer begins anew after it."""
        ...

    def abandon(self) -> None:
        """What was written since the last `finish` is garbage. What cannot be removed now is removed when the node is gone."""


def data_writer(format: DataFormat[M], options: FileSinkOptions, store: Store, epoch: int) -> RowFiles[M]:
    """`epoch`: that of the task's node."""
    if options.layout is FileLayout.HIVE:
        return HiveWriter(lambda stem: DataWriter(format, options.file_bytes, store, stem), epoch)
    return DataWriter(format, options.file_bytes, store, data_stem(epoch))


class DataWriter(Generic[M]):
    def __init__(self, format: DataFormat[M], file_bytes: int, store: Store, stem: str) -> None:
        """`stem`: how the names of its files begin."""
        self._format = format
        self._file_bytes = file_bytes
        self._store = store
        self._stem = stem
        self._attempt = secrets.token_hex(12)
        self._open: _OpenFile[M] | None = None
        self._written: list[Receipt] = []

    @property
    def open(self) -> bool:
        """Whether its last file has not ended."""
        return self._open is not None

    def write(self, messages: Iterable[M], origins: Iterable[Origin] = ()) -> None:  # noqa: ARG002 - its files are of all tables
        for message in messages:
            if self._open is None:
                name = f"{self._stem}{self._attempt}-{len(self._written)}.{self._format.suffix}"
                self._open = _OpenFile(self._store, name, self._format)
            self._open.add(message)
            if self._open.size >= self._file_bytes:
                self.end_file()

    def finish(self) -> tuple[Receipt, ...]:
        self.end_file()
        written, self._written, self._attempt = tuple(self._written), [], secrets.token_hex(12)
        return written

    def abandon(self) -> None:
        garbage = [receipt.name for receipt in self._written]
        if self._open is not None:
            self._open.close()
            garbage.append(self._open.name)
        self._open, self._written, self._attempt = None, [], secrets.token_hex(12)
        with suppress(SluiceError):
            for name in garbage:
                self._store.remove(name)

    def end_file(self) -> None:
        if self._open is not None:
            self._written.append(self._open.end())
            self._open = None


class HiveWriter(Generic[M]):
    """A file is of one table and one day of cluster time, so that a change lies in the same folder however often it is read.

    A task has the rows of its tables in any order, so their messages are held, and those of the folder with most are written when they are
    too many in all. Few files are open at a time: with rows of 1,000 tables each file has some 16 KiB at least, or all that there is.
    """

    def __init__(self, new: Callable[[str], DataWriter[M]], epoch: int) -> None:
        """`new`: makes the writer of a folder."""
        self._new = new
        self._stem = lru_cache(1_000)(lambda name, day: hive_stem(epoch, name.db, name.coll, day))
        self._held: defaultdict[str, list[M]] = defaultdict(list)
        self._sizes: Counter[str] = Counter()
        self._total = 0
        self._writers: dict[str, DataWriter[M]] = {}
        self._open: dict[str, DataWriter[M]] = {}
        """Those with an open file; the one written to last stands last."""

    def write(self, messages: Sequence[M], origins: Iterable[Origin]) -> None:
        for message, (table, seconds, size) in zip(messages, origins, strict=True):
            stem = self._stem(table.name, seconds // _SECONDS_A_DAY)
            self._held[stem].append(message)
            self._sizes[stem] += size + _ENVELOPE_BYTES
            self._total += size + _ENVELOPE_BYTES
            if self._total >= _HELD_BYTES:
                self._pass_on(max(self._sizes, key=self._sizes.__getitem__))

    def finish(self) -> tuple[Receipt, ...]:
        for stem in list(self._held):
            self._pass_on(stem)
        receipts = [receipt for writer in self._writers.values() for receipt in writer.finish()]
        self._writers, self._open = {}, {}
        return tuple(receipts)

    def abandon(self) -> None:
        for writer in self._writers.values():
            writer.abandon()
        self._held.clear()
        self._sizes.clear()
        self._total, self._writers, self._open = 0, {}, {}

    def _pass_on(self, stem: str) -> None:
        self._total -= self._sizes.pop(stem)
        self._open.pop(stem, None)
        if len(self._open) >= _MOST_OPEN:
            self._open.pop(next(iter(self._open))).end_file()
        writer = self._writers.get(stem) or self._writers.setdefault(stem, self._new(stem))
        writer.write(self._held.pop(stem))
        if writer.open:
            self._open[stem] = writer


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
