"""`parquet_rows`: the columns of a file with rows in Parquet, the same for every table and every version of the format, and how they are read.

    pos, op, ns, id, schema           as in the messages
    ts, increment                     the cluster time: its seconds as a moment, and its increment
    wall                              the source's clock, where the source says it
    txn_session, txn_number           the transaction that the change was part of
    key, after, update, before        canonical Extended JSON; null where the document has no JSON
    key_bson, after_bson, ..          the same documents, exact for every value
    images                            which images the changefeed asked for and found

`parquet_messages` makes rows of Parquet messages of the format `sluice` again, in BSON, from its exact columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import bson
import pyarrow as pa
import pyarrow.parquet as pq
from bson.int64 import Int64
from bson.raw_bson import RawBSONDocument

from sluice_client.feed_reader import StoredMessage

_MOMENT = pa.timestamp("ms", tz="UTC")
SCHEMA = pa.schema(
    [
        pa.field("pos", pa.string(), nullable=False),
        pa.field("op", pa.string(), nullable=False),
        pa.field("ns", pa.string(), nullable=False),
        pa.field("id", pa.string(), nullable=False),
        pa.field("schema", pa.string(), nullable=False),
        pa.field("ts", _MOMENT, nullable=False),
        pa.field("increment", pa.int64(), nullable=False),
        pa.field("wall", _MOMENT),
        pa.field("txn_session", pa.string()),
        pa.field("txn_number", pa.int64()),
        pa.field("key", pa.string()),
        pa.field("key_bson", pa.binary(), nullable=False),
        pa.field("after", pa.string()),
        pa.field("after_bson", pa.binary()),
        pa.field("update", pa.string()),
        pa.field("update_bson", pa.binary()),
        pa.field("before", pa.string()),
        pa.field("before_bson", pa.binary()),
        pa.field("images", pa.string()),
    ]
)


_BATCH_ROWS = 4_096
_DOCUMENTS = ("key", "before", "after", "update")
_READ = [field.name for field in SCHEMA if field.name not in _DOCUMENTS]


def parquet_messages(stored: bytes) -> Iterator[StoredMessage]:
    file = pq.ParquetFile(pa.BufferReader(stored))
    written: Mapping[bytes, bytes] = file.schema_arrow.metadata
    head = {"v": int(written[b"sluice.v"]), "feed": written[b"sluice.feed"].decode()}
    for batch in file.iter_batches(_BATCH_ROWS, columns=_READ):
        columns = [column.to_pylist() for column in _plain(batch)]
        for values in zip(*columns, strict=True):
            row = dict(zip(_READ, values, strict=True))
            yield StoredMessage(row["pos"], row["id"], bson.encode(head | _fields(row)))


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
