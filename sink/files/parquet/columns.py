"""`SCHEMA`: the columns of a Parquet file, the same for every table and every version of the format; `ParquetRow`: one message in them.

    pos, op, ns, id, schema           as in the messages
    ts, increment                     the cluster time: its seconds as a moment, and its increment
    wall                              the source's clock, where the source says it
    txn_session, txn_number           the transaction that the change was part of
    key, after, update, before        canonical Extended JSON, as in the messages; null where the document has no JSON
    key_bson, after_bson, ..          the same documents, exact for every value
    images                            which images the changefeed asked for and found

Nothing is inferred from documents: a table whose documents change has the same columns. A column that a message has nothing for is null.
The version of the format and the changefeed stand in the file's metadata, as `sluice.v` and `sluice.feed`.
"""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from sink.messages.row_message import VERSION

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
REPEATED = ["op", "ns", "id", "schema", "txn_session", "images"]
"""Columns of few values, for which a dictionary is worth its time."""


def schema_of(feed: str) -> pa.Schema:
    return SCHEMA.with_metadata({"sluice.v": str(VERSION), "sluice.feed": feed})


class ParquetRow(NamedTuple):
    """The columns in their order, and how many bytes they have."""

    pos: str
    op: str
    ns: str
    id: str
    schema: str
    ts: int
    increment: int
    wall: int | None
    txn_session: str | None
    txn_number: int | None
    key: str | None
    key_bson: bytes
    after: str | None
    after_bson: bytes | None
    update: str | None
    update_bson: bytes | None
    before: str | None
    before_bson: bytes | None
    images: str | None

    @property
    def size(self) -> int:
        changed = len(self.after_bson or b"") + len(self.update_bson or b"")
        return 150 + 3 * (len(self.key_bson) + changed + len(self.before_bson or b""))
