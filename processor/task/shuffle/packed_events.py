"""Events on their way through a shuffle: packed into blobs of many, or cut into pieces of one that is large. Pure.

PySpark takes a hundred records and more into memory whatever they weigh, so each must be small. A worked example, blobs of 4 at most:

    events                      aa  b  cccccccccc  d
    blobs                       aab  cccc  cccc  cc  d       a piece starts with the length of the whole, so the next ones are known for what they are
    put together again          aab  cccccccccc  d
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from struct import Struct
from typing import TypeVar

BLOB_BYTES = 256 * 1024

K = TypeVar("K")
E = TypeVar("E")

_INT32: Callable[[bytes, int], tuple[int]] = Struct("<i").unpack_from


def unpacked(blob: bytes) -> Iterator[bytes]:
    at, end = 0, len(blob)
    while at < end:
        size = _INT32(blob, at)[0]
        yield blob[at : at + size]
        at += size


def pieces(blob: bytes) -> Iterator[bytes]:
    """The blob itself, unless a large event is in it."""
    if len(blob) <= 2 * BLOB_BYTES:
        yield blob
        return
    for event in unpacked(blob):
        for at in range(0, len(event), BLOB_BYTES):
            yield event[at : at + BLOB_BYTES]


def whole(records: Iterable[tuple[K, bytes | E]]) -> Iterator[tuple[K, bytes | E]]:
    """Records in order, with the pieces of each event put together. What is no bytes passes, and ends an event that broke off."""
    parts: list[bytes] = []
    missing = 0
    for key, content in records:
        if not isinstance(content, bytes):
            parts, missing = [], 0
            yield key, content
        elif missing:
            parts.append(content)
            missing -= len(content)
            if not missing:
                yield key, b"".join(parts)
                parts = []
        elif (size := _INT32(content, 0)[0]) > len(content):
            parts, missing = [content], size - len(content)
        else:
            yield key, content
