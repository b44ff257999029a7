"""`ParquetFile`: a data file with rows in columns. `sluice_client/parquet_rows.py` lists the columns, and reads them again.

They are the same for every table and every version of the format. Nothing is inferred from documents: a table whose documents change has
the same columns. A column that a message has nothing for is null. The version of the format and the changefeed stand in the
file's metadata, as `sluice.v` and `sluice.feed`.

`ParquetRows` makes row changes and copied documents rows of such a file, and is called for each change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from changefeed.cluster_time import ClusterTime
from changefeed.config.sinks.file_options import COMPRESSION_LEVEL, Compression
from sink.messages.message_key import key_json
from sink.messages.row_message import COPIED, OPS, VERSION, OfTable, event_pos, update_body
from sink.messages.shaped_json import ShapedJson
from sink.row import RowChange, RowDetails, TargetTable
from sluice_client.extended_json import NoJson, to_json
from sluice_client.parquet_rows import SCHEMA
from sluice_client.pos import AFTER_ALL, pos_of

REPEATED = ["op", "ns", "id", "schema", "txn_session", "images"]
"""Columns of few values, for which a dictionary is worth its time."""


def schema_of(feed: str) -> pa.Schema:
    return SCHEMA.with_metadata({"sluice.v": str(VERSION), "sluice.feed": feed})


ParquetRow: TypeAlias = tuple[Any, ...]
"""The columns in their order."""
_DOCUMENTS = [SCHEMA.names.index(name) for name in ("key_bson", "after_bson", "update_bson", "before_bson")]


def _size(row: ParquetRow) -> int:
    """About how many bytes it has."""
    return 150 + 3 * sum(len(row[at] or b"") for at in _DOCUMENTS)


_GROUP_BYTES = 16 << 20
_GROUP_ROWS = 50_000


class ParquetFile:
    def __init__(self, feed: str, compression: Compression, group_bytes: int, store: Callable[[bytes], None]) -> None:
        """`store` takes the file's bytes in their order."""
        self._rows: list[ParquetRow] = []
        self._bytes = 0
        self._group_bytes = min(_GROUP_BYTES, group_bytes)
        self._writer = pq.ParquetWriter(
            pa.PythonFile(_Sink(store), mode="w"),
            schema_of(feed),
            compression=compression.value,
            compression_level=None if compression is Compression.NONE else COMPRESSION_LEVEL,
            use_dictionary=REPEATED,
            write_statistics=["pos", "op", "ns", "id", "ts"],
        )

    def add(self, row: ParquetRow) -> None:
        self._rows.append(row)
        self._bytes += _size(row)
        if self._bytes >= self._group_bytes or len(self._rows) >= _GROUP_ROWS:
            self._end_group()

    def end(self) -> None:
        self._end_group()
        self._writer.close()

    def _end_group(self) -> None:
        if not self._rows:
            return
        columns = zip(*self._rows, strict=True)
        arrays = [pa.array(values, field.type) for values, field in zip(columns, SCHEMA, strict=True)]
        self._rows, self._bytes = [], 0
        self._writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=self._writer.schema))


class _Sink:
    """What pyarrow writes to. It only appends."""

    closed = False

    def __init__(self, store: Callable[[bytes], None]) -> None:
        self._store = store
        self._at = 0

    def write(self, content: bytes) -> int:
        self._store(bytes(content))
        self._at += len(content)
        return len(content)

    def tell(self) -> int:
        return self._at

    def flush(self) -> None:
        """Nothing is kept here."""

    def close(self) -> None:
        self.closed = True


_NO_DETAILS = RowDetails()
_NO_TRANSACTION = None, None


class ParquetRows:
    def __init__(self) -> None:
        self._of = OfTable(_made)

    def change(self, change: RowChange) -> ParquetRow:
        table, type_, key, document, update, time, _, details = change
        pos = event_pos(change)
        body = update_body(update) if update is not None else None
        if details is None:
            return self._row(table, OPS[type_], pos, time, key, document, body)
        after = details.after if document is None else document
        return self._row(table, OPS[type_], pos, time, key, after, body, details)

    def copied(self, table: TargetTable, document: bytes, key: bytes, read_ts: ClusterTime) -> ParquetRow:
        time = read_ts.to_int()
        return self._row(table, COPIED, f"{time:016X}{AFTER_ALL}", time, key, document, None)

    def _row(
        self,
        table: TargetTable,
        op: str,
        pos: str,
        time: int,
        key: bytes,
        after: bytes | None,
        update: bytes | None,
        details: RowDetails = _NO_DETAILS,
    ) -> ParquetRow:
        wall, transaction, before, _, images = details
        session, number = transaction or _NO_TRANSACTION
        ns, version, json = self._of(table)
        times = (time >> 32) * 1000, time & 0xFFFFFFFF, wall
        documents = _key_json(key), key, _json(after, json), after, _json(update), update, _json(before, json), before
        return pos, op, ns, table.id, version, *times, session, number, *documents, images


def _key_json(key: bytes) -> str | None:
    try:
        return key_json(key)
    except NoJson:
        return None


def _json(document: bytes | None, json: Callable[[bytes], str] = to_json) -> str | None:
    """Null where there is none: the column with the BSON has the document."""
    if document is None:
        return None
    try:
        return json(document)
    except NoJson:
        return None


def _made(table: TargetTable) -> tuple[str, str, Callable[[bytes], str]]:
    """Its name downstream, where this version begins, and what writes its documents."""
    return str(table.name), pos_of(table.version), ShapedJson().text
