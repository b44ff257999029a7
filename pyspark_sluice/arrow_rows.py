"""Rows as Spark takes them: Arrow with the columns of Parquet files, and `ddl`, whatever the messages are stored as.

A row of a DDL, or of the schema with which a table begins (`op` is then `ddl` or `b`), has its message in `ddl`, and no documents. That of a rename
also says what the option `tables` leaves out of its table: `"left_out": "before"`, or `"after"`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sluice_client.extended_json import NoJson, to_json
from sluice_client.feed_directory import stored_messages
from sluice_client.feed_reader import StoredMessage
from sluice_client.manifest import Span
from sluice_client.parquet_rows import SCHEMA

DDL = "ddl"
_MOMENT = pa.timestamp("us", tz="UTC")
ROWS = pa.schema(
    [
        *(pa.field(each.name, _MOMENT if pa.types.is_timestamp(each.type) else each.type) for each in SCHEMA),
        pa.field(DDL, pa.string()),
    ]
)
"""Every column may be null, as Spark has it."""
_SPARK_TYPES = {pa.string(): "string", pa.int64(): "bigint", pa.binary(): "binary", _MOMENT: "timestamp"}
SPARK_SCHEMA = ", ".join(f"`{each.name}` {_SPARK_TYPES[each.type]}" for each in ROWS)
_BATCH_ROWS = 10_000
_DOCUMENTS = ("key", "after", "update", "before")
_TIME = 16

Spans = Mapping[str, Sequence[Span]]
Wants = Callable[[str], bool]


def rows_of_file(name: str, stored: bytes, spans: Spans, wants: Wants) -> Iterator[pa.RecordBatch]:
    if name.endswith(".parquet"):
        for batch in pq.ParquetFile(pa.BufferReader(stored)).iter_batches(_BATCH_ROWS, columns=SCHEMA.names):
            shown = _shown(batch, spans, wants)
            yield _with_ddl(batch if pc.all(shown).as_py() else batch.filter(shown))
        return
    messages = (each for each in stored_messages(name, stored) if _is_shown(each, spans))
    yield from _batches(row for row in map(_row, messages) if wants(row["ns"]))


def rows_of_messages(messages: Iterable[StoredMessage], wants: Wants) -> Iterator[pa.RecordBatch]:
    """Of DDL and schemas."""
    yield from _batches(_told(each, wants) for each in messages)


def positions_of_file(name: str, stored: bytes, spans: Spans) -> Iterator[str]:
    """Where its rows stand in the order of the source."""
    if name.endswith(".parquet"):
        for batch in pq.ParquetFile(pa.BufferReader(stored)).iter_batches(_BATCH_ROWS, columns=["pos", "id"]):
            pairs = zip(batch.column("pos").to_pylist(), batch.column("id").to_pylist(), strict=True)
            yield from (at for pos, table in pairs for at in _places(pos, spans.get(table, ())))
        return
    for message in stored_messages(name, stored):
        yield from _places(message.pos, spans.get(message.table, ()))


def in_order(batches: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Those of one table, DDL first: at one position it comes before the rows."""
    table = pa.Table.from_batches(batches, schema=ROWS)
    yield from table.take(pc.sort_indices(table, sort_keys=[("pos", "ascending")])).to_batches(
        max_chunksize=_BATCH_ROWS
    )


def _places(pos: str, spans: Sequence[Span]) -> Iterator[str]:
    for span in spans:
        if span.start <= pos < span.end:
            yield max(pos, span.at)
            return


def _is_shown(message: StoredMessage, spans: Spans) -> bool:
    return any(span.start <= message.pos < span.end for span in spans.get(message.table, ()))


def _shown(batch: pa.RecordBatch, spans: Spans, wants: Wants) -> pa.Array:
    """Most tables of a file have the same span."""
    tables: dict[tuple[str, str], list[str]] = {}
    for table, found in spans.items():
        for span in found:
            tables.setdefault((span.start, span.end), []).append(table)
    pos, id, ns = (batch.column(name) for name in ("pos", "id", "ns"))
    shown = pa.repeat(pa.scalar(value=False), len(batch))
    for (start, end), ids in tables.items():
        within = pc.and_(pc.greater_equal(pos, start), pc.less(pos, end))
        shown = pc.or_(shown, pc.and_(within, pc.is_in(id, value_set=pa.array(ids, pa.string()))))
    names = [name for name in pc.unique(ns).to_pylist() if wants(name)]
    return pc.and_(shown, pc.is_in(ns, value_set=pa.array(names, pa.string())))


def _with_ddl(batch: pa.RecordBatch) -> pa.RecordBatch:
    columns = [column.cast(field.type) for column, field in zip(batch.columns, ROWS, strict=False)]
    return pa.RecordBatch.from_arrays([*columns, pa.nulls(len(batch), pa.string())], schema=ROWS)


def _batches(rows: Iterable[Mapping[str, Any]]) -> Iterator[pa.RecordBatch]:
    waiting: list[Mapping[str, Any]] = []
    for row in rows:
        waiting.append(row)
        if len(waiting) == _BATCH_ROWS:
            yield pa.RecordBatch.from_pylist(waiting, schema=ROWS)
            waiting = []
    if waiting:
        yield pa.RecordBatch.from_pylist(waiting, schema=ROWS)


def _row(message: StoredMessage) -> dict[str, Any]:
    fields = message.fields
    row = _head(fields)
    row["schema"] = fields["schema"]
    row["images"] = fields.get("images")
    if (transaction := fields.get("txn")) is not None:
        row["txn_session"], row["txn_number"] = transaction["lsid"], transaction["n"]
    for name in _DOCUMENTS:
        if (document := fields.get(name)) is not None:
            row[name], row[f"{name}_bson"] = _json(document.raw), document.raw
    return row


def _told(message: StoredMessage, wants: Wants) -> dict[str, Any]:
    fields, text = message.fields, message.json
    if fields.get("type") == "rename" and wants(fields["ns"]) != wants(fields["to"]):
        text = f'{text.removesuffix("}")}, "left_out": "{"after" if wants(fields["ns"]) else "before"}"}}'
    return _head({**fields, "ns": fields.get("ns") or fields.get("db")}) | {DDL: text}


def _head(fields: Mapping[str, Any]) -> dict[str, Any]:
    pos, wall = fields["pos"], fields.get("wall")
    time = int(pos[:_TIME], 16)
    row: dict[str, Any] = {name: fields.get(name) for name in ("pos", "op", "ns", "id")}
    row["ts"], row["increment"] = (time >> 32) * 1_000_000, time & 0xFFFFFFFF
    row["wall"] = wall if wall is None else int(wall) * 1000
    return row


def _json(document: bytes) -> str | None:
    try:
        return to_json(document)
    except NoJson:
        return None
