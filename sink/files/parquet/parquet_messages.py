"""`parquet_messages`: the rows of a Parquet file as messages of the format `sluice` in BSON, made from its exact columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import bson
import pyarrow as pa
import pyarrow.parquet as pq
from bson.int64 import Int64
from bson.raw_bson import RawBSONDocument

from sink.files.parquet.columns import SCHEMA

_BATCH_ROWS = 4_096
_DOCUMENTS = ("key", "before", "after", "update")
_READ = [field.name for field in SCHEMA if field.name not in _DOCUMENTS]


class ParquetMessage(NamedTuple):
    pos: str
    table: str
    bson: bytes


def parquet_messages(stored: bytes) -> Iterator[ParquetMessage]:
    file = pq.ParquetFile(pa.BufferReader(stored))
    written: Mapping[bytes, bytes] = file.schema_arrow.metadata
    head = {"v": int(written[b"sluice.v"]), "feed": written[b"sluice.feed"].decode()}
    for batch in file.iter_batches(_BATCH_ROWS, columns=_READ):
        columns = [column.to_pylist() for column in _plain(batch)]
        for values in zip(*columns, strict=True):
            row = dict(zip(_READ, values, strict=True))
            yield ParquetMessage(row["pos"], row["id"], bson.encode(head | _fields(row)))


def _plain(batch: pa.RecordBatch) -> Iterator[pa.Array]:
    """Moments as numbers."""
    for column in batch.columns:
        yield column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column


def _fields(row: Mapping[str, Any]) -> dict[str, Any]:
    """In the order of `BsonRows`."""
    fields = {name: row[name] for name in ("op", "ns", "id", "pos")}
    fields["ts"] = {"t": Int64(row["ts"] // 1000), "i": Int64(row["increment"])}
    if row["wall"] is not None:
        fields["wall"] = Int64(row["wall"])
    if row["txn_session"] is not None:
        fields["txn"] = {"lsid": row["txn_session"], "n": Int64(row["txn_number"])}
    fields["schema"] = row["schema"]
    if row["images"] is not None:
        fields["images"] = row["images"]
    for name in _DOCUMENTS:
        if (document := row[f"{name}_bson"]) is not None:
            fields[name] = RawBSONDocument(document)
    return fields
