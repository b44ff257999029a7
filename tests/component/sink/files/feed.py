"""`Feed`: the writers of a changefeed into files, in a directory or a bucket, without a node."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import bson

from changefeed.cluster_time import ClusterTime
from changefeed.config.sinks.file_options import FileSinkOptions
from changefeed.position import Window
from changefeed.table import TableId
from sink.messages.files.directory import open_store
from sink.messages.files.feed_log import FeedIdentity, FileCommitter, FileDdlApplier, FileMarks
from sink.messages.files.file_sink import FileDocumentLoader, FileRowWriter
from sink.messages.files.store import Store
from sink.receipt import Commit, CopyReceipt, Receipt
from sink.row import RowChange
from sluice_client.feed_directory import FeedDirectory
from sluice_client.file_reader import Reader
from tests.component.sink.vocabulary import LIFE, A, described, moment, target, text_of

IDENTITY = FeedIdentity(feed="orders", life=LIFE)


class Feed:
    """A changefeed's writers."""

    def __init__(self, uri: str, store: Store | None = None) -> None:
        self.options = FileSinkOptions.parse(uri)
        self.store = store or open_store(self.options.place)
        IDENTITY.claim(self.store)
        self.marks = FileMarks(IDENTITY, self.store)
        self.ddl = FileDdlApplier(IDENTITY, self.store)

    @property
    def path(self) -> Path:
        return Path(str(self.store))

    def committer(self, epoch: int = 7) -> FileCommitter:
        return FileCommitter(IDENTITY, self.store, epoch)

    def written(self, changes: Sequence[RowChange], epoch: int = 7) -> tuple[Receipt, ...]:
        run = self.writer(epoch).begin(lambda _: False)
        for change in changes:
            run.prepare([change], replay=False)()
        return tuple(run.settle().receipts)

    def window(self, start: int, end: int, changes: Sequence[RowChange], *tables: TableId, epoch: int = 7) -> None:
        ranges = {table: Window(moment(start), moment(end)) for table in tables or (A,)}
        named = tuple(described(table) for table in tables or (A,))
        self.committer(epoch).commit(Commit(ranges=ranges, files=self.written(changes, epoch), tables=named))

    def writer(self, epoch: int = 7) -> FileRowWriter:
        return FileRowWriter("orders", self.options, self.store, epoch, lambda: None)

    def read(self, reader: Reader | None = None) -> list[str]:
        reader = reader or self.reader()
        round = reader.look()
        return [text_of(shown.content) for shown in reader.read(round)] if round is not None else []

    def reader(self) -> Reader:
        return Reader(FeedDirectory(self.store))


def copied(
    feed: Feed, start: int, at: int, documents: Sequence[dict[str, Any]], epoch: int = 7, name: str = "a"
) -> CopyReceipt:
    loader = FileDocumentLoader(feed.writer(epoch), target(A, name))
    loader.load(list(map(bson.encode, documents)), ClusterTime(at, 1))
    return CopyReceipt(
        table=A, start=moment(start), after=ClusterTime(at, 1), until=ClusterTime(at, 1), files=loader.finish()
    )
