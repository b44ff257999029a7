"""`FileRowWriter`, `FileDocumentLoader`: write the messages of a task into data files. What they write counts once it is committed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import bson
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.raw_bson import RawBSONDocument

from changefeed.cluster_time import ClusterTime
from changefeed.config.sinks.file_sink import FileSinkOptions
from changefeed.documents.row_key import KeyRange
from changefeed.event import RowTally
from sink.files.data_format import Encoder, data_format
from sink.files.data_writer import DataWriter
from sink.files.stores.retries import RETRIES
from sink.files.stores.store import Store
from sink.receipt import Receipt
from sink.row import AskedRows, RowChange, Sole, TargetTable, Unfinished, Write, WriteResult

_RAW: CodecOptions[RawBSONDocument] = CodecOptions(RawBSONDocument, datetime_conversion=DatetimeConversion.DATETIME_MS)


class FileRowWriter:
    """Rows never wait and never differ: nothing is read. A replayed change has the same message as before."""

    def __init__(
        self, feed: str, options: FileSinkOptions, store: Store, epoch: int, permit: Callable[[], object]
    ) -> None:
        format = data_format(feed, options)
        self._encoder = format.encoder
        self._writer = DataWriter(format, options.file_bytes, store, epoch)
        self._permit = permit

    def begin(
        self,
        unfinished: Unfinished,  # noqa: ARG002 - no row waits
        sole: Sole | None = None,  # noqa: ARG002 - no row was refused
        asked: Sequence[AskedRows] = (),  # noqa: ARG002 - nothing can be compared, so nothing is asked
    ) -> FileRun:
        self._writer.abandon()
        return FileRun(self._encoder, self._writer, self._permit)

    def close(self) -> None:
        self._writer.abandon()


class FileRun:
    def __init__(self, encoder: Encoder[Any], writer: DataWriter[Any], permit: Callable[[], object]) -> None:
        self._encoder = encoder
        self._writer = writer
        self._permit = permit
        self._retried = RETRIES.count

    def prepare(self, changes: Sequence[RowChange], *, replay: bool) -> Write:  # noqa: ARG002 - a message is the same in a replay
        return partial(self._write, list(map(self._encoder.change, changes)))

    def settle(self) -> WriteResult:
        self._permit()
        began_at = time.monotonic()
        receipts = self._writer.finish()
        tally = RowTally(
            messages=sum(receipt.rows for receipt in receipts),
            message_bytes=sum(receipt.bytes for receipt in receipts),
            confirm_seconds=time.monotonic() - began_at,
            retries=RETRIES.count - self._retried,
        )
        return WriteResult(tally=tally, receipts=list(receipts))

    def _write(self, messages: Sequence[Any]) -> WriteResult:
        self._permit()
        self._writer.write(messages)
        return WriteResult()


class FileDocumentLoader:
    """Nothing is cleared: what an earlier attempt has committed is true at its time, and all changes since the copy's start follow."""

    def __init__(
        self,
        feed: str,
        options: FileSinkOptions,
        store: Store,
        epoch: int,
        table: TargetTable,
        permit: Callable[[], object],
    ) -> None:
        format = data_format(feed, options)
        self._encoder = format.encoder
        self._writer = DataWriter(format, options.file_bytes, store, epoch)
        self._table = table
        self._permit = permit

    def empty(self) -> bool:
        return True

    def clear(self, range: KeyRange) -> int:  # noqa: ARG002 - nothing can be cleared
        return 0

    def load(self, documents: Sequence[bytes], read_ts: ClusterTime) -> None:
        self._permit()
        copied, table = self._encoder.copied, self._table
        self._writer.write([copied(table, document, _key(document), read_ts) for document in documents])

    def finish(self) -> tuple[Receipt, ...]:
        return self._writer.finish()


def _key(document: bytes) -> bytes:
    return bson.encode({"_id": RawBSONDocument(document, _RAW)["_id"]})
