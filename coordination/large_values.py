"""`encoded`: a record, and those of its documents that are too large for it. Pure.

A server takes definitions up to 16 MB, etcd requests up to 1.5 MiB. So a document above 64 KiB stands in etcd beside the record, as its BSON, under
a name that its content decides. The record refers to it:

    ddl/<position>               {"v": 2, "event": {.., "description": {"$large": "<digest>-<bytes>"}}, ..}
    ~~large/<id>/<digest>-<bytes>/00, 01 ..      the bytes, in pieces of 512 KiB at most

If the record is still large, since it has many documents, all above 1 KiB stand beside it. What is written once is shared: the same document has
the same name in a DDL, in what was seen before it, and in a base schema. Any other record has the same bytes as without this.

**A record never lacks what it refers to.** Pieces are written before it, and deleted after the last record that refers to them
(`large_store.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256

from changefeed.documents.document import Document
from changefeed.errors import DefinitionsTooLarge
from coordination.layout import encode

LARGE_BYTES = 64 << 10
SMALL_BYTES = 1 << 10
_MOST_RECORD_BYTES = 256 << 10
PIECE_BYTES = 512 << 10
MOST_BYTES = 256 << 20
"""Of one changefeed: an eighth of the 2 GiB that etcd has by default, since what was deleted counts until etcd is compacted."""


@dataclass(slots=True)
class _Apart:
    least: int
    values: dict[str, bytes] = field(default_factory=dict)

    def take(self, document: Document) -> str | None:
        if len(document.raw) <= self.least:
            return None
        name = name_of(document.raw)
        self.values[name] = document.raw
        return name


def encoded(record: object) -> tuple[bytes, Mapping[str, bytes]]:
    """The record's value, and the large ones that it refers to, by their names."""
    apart = _Apart(LARGE_BYTES)
    value = encode(record, apart.take)
    if len(value) > _MOST_RECORD_BYTES:
        apart = _Apart(SMALL_BYTES)
        value = encode(record, apart.take)
    return value, apart.values


def name_of(raw: bytes) -> str:
    return f"{sha256(raw).hexdigest()}-{len(raw):x}"


def bytes_of(name: str) -> int:
    return int(name.rpartition("-")[2], 16)


def pieces_of(name: str, raw: bytes) -> dict[str, bytes]:
    """By their keys below those of all large values."""
    starts = range(0, len(raw), PIECE_BYTES)
    return {f"{name}/{number:02x}": raw[at : at + PIECE_BYTES] for number, at in enumerate(starts)}


def whole(keys: Iterable[str]) -> frozenset[str]:
    """The names of which all pieces are there."""
    found: dict[str, int] = {}
    for key in keys:
        name = key.partition("/")[0]
        found[name] = found.get(name, 0) + 1
    return frozenset(name for name, pieces in found.items() if pieces == -(-bytes_of(name) // PIECE_BYTES))


def check_room(about: str, size: int, room: int) -> None:
    """`about`: whose definitions they are."""
    if size > room:
        raise DefinitionsTooLarge(
            f"{about}: found definitions of {size:,} bytes, expected {max(room, 0):,} at most: large definitions of a changefeed's tables may have "
            f"{MOST_BYTES:,} in all, since they stand in etcd; make some smaller, or replicate some of the tables by another changefeed"
        )
