"""Events in a shuffle: many small events are packed into one blob, and a large event is cut into pieces. Pure.

PySpark takes a hundred or more records into memory whatever their size, so each record must be small. A worked example, blobs of 4 bytes
at most:

    events                      aa  b  cccccccccc  d
    blobs                       aab  cccc  cccc  cc  d       the first piece starts with the event's length, so the next pieces are recognized
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
    """The blob itself, unless it contains a large event."""
    if len(blob) <= 2 * BLOB_BYTES:
        yield blob
        return
    for event in unpacked(blob):
        for at in range(0, len(event), BLOB_BYTES):
            yield event[at : at + BLOB_BYTES]


def whole(records: Iterable[tuple[K, bytes | E]]) -> Iterator[tuple[K, bytes | E]]:
    """Records in order, with the pieces of each event put together. A record that is not bytes is passed on, and discards an incomplete event."""
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
