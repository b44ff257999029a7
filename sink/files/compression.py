"""`compressor`, `decompressed`: how the content of data files is stored. A file's name says it: `.json`, `.json.gz`, `.json.zst`."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Mapping
from typing import Protocol

import zstandard

from changefeed.config.sinks.file_sink import COMPRESSION_LEVEL, Compression

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


def decompressed(stored: bytes, name: str) -> bytes:
    if name.endswith(".gz"):
        return gzip.decompress(stored)
    if name.endswith(".zst"):
        return zstandard.ZstdDecompressor().decompressobj().decompress(stored)
    return stored


def plain_name(name: str) -> str:
    """Without what says how it is compressed."""
    return name.removesuffix(".gz").removesuffix(".zst")
