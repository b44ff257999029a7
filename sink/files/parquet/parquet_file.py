"""`ParquetFile`: the content of one data file. Rows are gathered into row groups, so memory holds one group however large the file is."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.parquet as pq

from changefeed.config.sinks.file_sink import COMPRESSION_LEVEL, Compression
from sink.files.parquet.columns import REPEATED, SCHEMA, ParquetRow, schema_of

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
        self._bytes += row.size
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
