"""How events go through a shuffle: `TableRoute` says to which bucket, `pieces` in which portions. Pure.

Changes that depend on each other go to one bucket, so that they are applied in order:

    table                                          its rows go to
    its documents do not depend on each other      the bucket of hash(table, _id)
    unique secondary index, capped, collation      one bucket for all rows: the bucket of hash(table)
    the same, but order_by: id                     the bucket of hash(table, _id), at the user's risk
    any, with order_by: table                      one bucket for all rows

A `divisible` table whose changes carry the old unique values (pre-images) is divided further, in wide windows: see `division.py`.

The hash is crc32, the same in every process and version, so that a slice that is read again or elsewhere is routed in the same way.

**Portions.** Many small events are packed into one blob, and a large event is cut into pieces: PySpark takes a hundred or more records into memory
whatever their size, so each record must be small. A worked example, blobs of 4 bytes at most:

    events                      aa  b  cccccccccc  d
    blobs                       aab  cccc  cccc  cc  d       the first piece starts with the event's length, so the next pieces are recognized
    put together again          aab  cccccccccc  d
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from struct import Struct
from typing import Any, TypeVar
from zlib import crc32

from changefeed.config.configuration import OrderBy
from changefeed.documents.row_key import row_key
from changefeed.table import TableSchema
from sink.dependence import Dependence


def dependent(schema: TableSchema) -> bool:
    """Whether rows with different `_id`s depend on each other, or `_id`s with different bytes may be equal."""
    return _whole(schema) or bool(unique_indexes(schema))


def dependence(schema: TableSchema, order_by: OrderBy) -> Dependence | None:
    """None where the rows depend on each other in other ways, or not at all."""
    options = schema.options.decode()
    if order_by is OrderBy.TABLE or not dependent(schema) or _collated(schema, options):
        return None
    return Dependence.of(unique_indexes(schema), capped=bool(options.get("capped")))


def divisible(schema: TableSchema) -> bool:
    """Whether rows depend on each other only through unique values that can be read from the document."""
    indexes = unique_indexes(schema)
    return bool(indexes) and not _whole(schema) and all(map(_plain, indexes))


def unique_indexes(schema: TableSchema) -> list[dict[str, Any]]:
    """The unique indexes other than the index on `_id`."""
    indexes = [index.decode() for index in schema.indexes]
    return [index for index in indexes if _unique(index) and list(index["key"]) != ["_id"]]


def _whole(schema: TableSchema) -> bool:
    options = schema.options.decode()
    return bool(options.get("capped")) or _collated(schema, options)


def _collated(schema: TableSchema, options: Mapping[str, Any]) -> bool:
    """The `_id`s of buckets are ObjectIds, whatever the collation of their time series."""
    return _folds_case(options.get("collation")) and not schema.bucketed


def _unique(index: dict[str, Any]) -> bool:
    """An index with `prepareUnique` refuses the same writes as a unique one."""
    return bool(index.get("unique") or index.get("prepareUnique"))


def _plain(index: dict[str, Any]) -> bool:
    return not _folds_case(index.get("collation")) and not any(
        isinstance(order, str) for order in index["key"].values()
    )


def _folds_case(collation: dict[str, Any] | None) -> bool:
    """Any collation but the binary one may treat different strings as equal."""
    return collation is not None and collation.get("locale", "simple") != "simple"


@dataclass(frozen=True, slots=True)
class TableRoute:
    """How one version of a table is routed. Created once for each version, used for each event."""

    seed: int
    whole: bool

    @classmethod
    def of(cls, schema: TableSchema, order_by: OrderBy) -> TableRoute:
        whole = order_by is OrderBy.TABLE or (order_by is OrderBy.AUTO and dependent(schema))
        return cls(crc32(schema.id.encode()), whole)

    def bucket(self, document_key: bytes, buckets: int) -> int:
        return (self.seed if self.whole else crc32(row_key(document_key), self.seed)) % buckets


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
