"""`FileSinkOptions`: what the URI of a sink of files says. Pure.

    file:///srv/orders                                                       JSON lines, compressed
    file:///srv/orders?format=bson&compression=none&commit_interval=10s&file_size=16MiB
    file:///srv/orders?format=parquet                                        rows in columns; DDL and watermarks stay JSON
    s3://orders-archive/shop?region=eu-central-1&format=bson                 the same, in a bucket (`store_place.py`)

`commit_interval`: how long a window of the tables that follow spans at least. Nothing is seen before its window is committed.
`file_size`: when a task begins its next file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self

from changefeed.config.options import Mistake
from changefeed.config.sinks.sink_option import SinkOption, one_of, refuse_unknown
from changefeed.config.sinks.store_place import (
    BUCKET_OPTIONS,
    BucketPlace,
    DirectoryPlace,
    StorePlace,
    refuse_half_access,
    written_options,
)

_SECONDS = re.compile(r"(\d{1,5})(s|m)")
_SIZE = re.compile(r"(\d{1,6})(KiB|MiB)")
_LONGEST = 3600
_LEAST_SIZE, _MOST_SIZE = 64 << 10, 4 << 30


class FileFormat(StrEnum):
    JSON = "json"
    BSON = "bson"
    PARQUET = "parquet"


class Compression(StrEnum):
    GZIP = "gzip"
    ZSTD = "zstd"
    NONE = "none"


COMPRESSION_LEVEL = 1
"""Of both: higher ones cost more time than they save bytes in rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSinkOptions:
    place: StorePlace
    format: FileFormat = FileFormat.JSON
    compression: Compression = Compression.GZIP
    commit_seconds: int = 60
    file_bytes: int = 64 << 20

    @classmethod
    def parse(cls, uri: str) -> Self:
        in_bucket = uri.startswith("s3://")
        allowed = (*_READERS, *(option.name for option in BUCKET_OPTIONS if in_bucket))
        found: dict[str, Any] = {}
        others: dict[str, str] = {}
        for name, value in written_options(uri):
            refuse_unknown(name, allowed)
            if name not in _READERS:
                others[name] = value
                continue
            field, read = _READERS[name]
            found[field] = read(value)
        if in_bucket:
            refuse_half_access(uri)
            return cls(place=BucketPlace.parse(uri, others), **found)
        return cls(place=DirectoryPlace.parse(uri), **found)


def _seconds(value: str) -> int:
    match = _SECONDS.fullmatch(value)
    seconds = int(match[1]) * (60 if match[2] == "m" else 1) if match else 0
    if not 1 <= seconds <= _LONGEST:
        raise Mistake(f"found commit_interval={value}; write 1s to 60m, for example 60s")
    return seconds


def _bytes(value: str) -> int:
    match = _SIZE.fullmatch(value)
    size = int(match[1]) << (20 if match[2] == "MiB" else 10) if match else 0
    if not _LEAST_SIZE <= size <= _MOST_SIZE:
        raise Mistake(f"found file_size={value}; write 64KiB to 4096MiB, for example 64MiB")
    return size


OPTIONS = (
    SinkOption(
        name="format",
        values="json, bson, parquet",
        default="json",
        about="lines of JSON; documents one after another, exact for every value; or Parquet with one schema for all tables, which has both",
    ),
    SinkOption(
        name="compression",
        values="gzip, zstd, none",
        default="gzip",
        about="of the files with rows",
    ),
    SinkOption(
        name="commit_interval",
        values="1s to 60m",
        default="60s",
        about="how often windows of tables that follow begin: nothing is seen before its window is committed",
    ),
    SinkOption(name="file_size", values="64KiB to 4096MiB", default="64MiB", about="when a task begins its next file"),
)
_READERS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "format": ("format", one_of(FileFormat, "format")),
    "compression": ("compression", one_of(Compression, "compression")),
    "commit_interval": ("commit_seconds", _seconds),
    "file_size": ("file_bytes", _bytes),
}
