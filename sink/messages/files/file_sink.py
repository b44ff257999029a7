"""`FileSink`: a directory or a bucket as a sink. Its rows are messages in files, which a commit makes visible.

`FileRowWriter` and `FileDocumentLoader` write the messages of a task into data files. What they write counts once it is committed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Any, Self

from changefeed.cluster_time import ClusterTime
from changefeed.config.sinks.file_options import FileSinkOptions
from changefeed.documents.row_key import id_alone, key_text
from changefeed.event import RowTally
from changefeed.position import Position
from changefeed.table import TableName
from credentials.secret_files import SecretFiles
from sink.messages.files.data_files import Origin, data_format, data_writer
from sink.messages.files.directory import open_store
from sink.messages.files.feed_log import FeedIdentity, FileCommitter, FileDdlApplier, FileLeftovers, FileMarks
from sink.messages.files.store import RETRIES, Store
from sink.messages.row_message import without_json
from sink.receipt import Receipt
from sink.row import AskedRows, RowChange, Sole, TargetTable, Unfinished, Write, WriteResult
from sink.sink import DocumentLoader, NamedTables, Permit, Sink, TaskTerms
from sluice_client.extended_json import NoJson

_EXACT = "format=bson or format=parquet"


class FileSink(Sink):
    every_change = True

    def __init__(
        self, feed: str, options: FileSinkOptions, files: SecretFiles | None, life: str, permit: Permit
    ) -> None:
        self._feed = feed
        self._options = options
        self._permit = permit
        self._identity = FeedIdentity(feed=feed, life=life)
        self._store = open_store(options.place, files)
        self.commit_seconds = options.commit_seconds

    def check(self) -> None:
        self._store.check()

    def obstacles(self, tables: Collection[TableName]) -> Iterator[str]:  # noqa: ARG002 - the place is for all of them
        if not self._store.empty():
            yield f"sink: {self._store} is not empty; name an empty directory or prefix, one for each changefeed"

    def claim(self, at: Position, tables: NamedTables) -> None:  # noqa: ARG002 - a commit describes its tables
        self._identity.claim(self._store)

    def confirm(self) -> None:
        self._identity.confirm(self._store)

    def ddl(self) -> FileDdlApplier:
        """Without the permit: what comes late is the same file."""
        return FileDdlApplier(self._identity, self._store)

    copy_log = ddl

    def marks(self) -> FileMarks:
        """Without the permit: what comes late is true."""
        return FileMarks(self._identity, self._store)

    def leftovers(self) -> FileLeftovers:
        return FileLeftovers(self._identity, self._store)

    def writer(self, task: TaskTerms) -> FileRowWriter:
        return FileRowWriter(self._feed, self._options, self._store, task.epoch, self._permit)

    def loader(self, table: TargetTable, task: TaskTerms, *, once: bool, shared: bool = False) -> FileDocumentLoader:  # noqa: ARG002 - a file that is not committed is not seen
        return FileDocumentLoader(self.writer(task), table)

    def committer(self, epoch: int) -> FileCommitter:
        return FileCommitter(self._identity, self._store, epoch)


class FileRowWriter:
    """Rows never wait and never differ: nothing is read. A replayed change has the same message as before. It is its own run."""

    def __init__(
        self, feed: str, options: FileSinkOptions, store: Store, epoch: int, permit: Callable[[], object]
    ) -> None:
        format = data_format(feed, options)
        self.encoder = format.encoder
        self.files = data_writer(format, options, store, epoch)
        self.permit = permit
        self._retried = 0

    def begin(
        self,
        unfinished: Unfinished,  # noqa: ARG002 - no row waits
        sole: Sole | None = None,  # noqa: ARG002 - no row was refused
        asked: Sequence[AskedRows] = (),  # noqa: ARG002 - nothing can be compared, so nothing is asked
    ) -> Self:
        self.files.abandon()
        self._retried = RETRIES.count
        return self

    def prepare(self, changes: Sequence[RowChange], *, replay: bool) -> Write:  # noqa: ARG002 - a message is the same in a replay
        encoded, messages = self.encoder.change, list[Any]()
        for change in changes:
            try:
                messages.append(encoded(change))
            except NoJson as error:
                raise without_json(str(change), change.table, error, _EXACT) from None
        return partial(self._write, changes, messages)

    def settle(self) -> WriteResult:
        self.permit()
        began_at = time.monotonic()
        receipts = self.files.finish()
        tally = RowTally(
            messages=sum(receipt.rows for receipt in receipts),
            message_bytes=sum(receipt.bytes for receipt in receipts),
            confirm_seconds=time.monotonic() - began_at,
            retries=RETRIES.count - self._retried,
        )
        return WriteResult(tally=tally, receipts=list(receipts))

    def _write(self, changes: Sequence[RowChange], messages: Sequence[Any]) -> WriteResult:
        self.permit()
        self.files.write(messages, (Origin(each.table, each.time >> 32, each.size) for each in changes))
        return WriteResult()

    def close(self) -> None:
        self.files.abandon()


class FileDocumentLoader(DocumentLoader):
    """Nothing is cleared: what an earlier attempt has committed is true at its time, and all changes since the copy's start follow."""

    def __init__(self, writer: FileRowWriter, table: TargetTable) -> None:
        self._writer = writer
        self._table = table

    def load(self, documents: Sequence[bytes], read_ts: ClusterTime) -> None:
        self._writer.permit()
        copied, table, messages = self._writer.encoder.copied, self._table, list[Any]()
        for document in documents:
            key = id_alone(document)
            try:
                messages.append(copied(table, document, key, read_ts))
            except NoJson as error:
                raise without_json(f"{table.source} {key_text(key)}", table, error, _EXACT) from None
        self._writer.files.write(messages, (Origin(table, read_ts.seconds, len(document)) for document in documents))

    def finish(self) -> tuple[Receipt, ...]:
        return self._writer.files.finish()
