"""`Feed`: the writers of a changefeed into files, in a directory or a bucket, without a node."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import bson

from changefeed.cluster_time import ClusterTime
from changefeed.config.sinks.file_sink import FileSinkOptions
from changefeed.event import DdlEvent, DdlType, RowType
from changefeed.position import Position, Window
from changefeed.records import DdlRecord, Observation, Scope
from changefeed.table import TableId, TableName, TableSchema
from sink.files.committer import FileCommitter
from sink.files.identity import FeedIdentity
from sink.files.owner_log import FileDdlApplier, FileMarks
from sink.files.reading.feed_directory import FeedDirectory
from sink.files.reading.reader import Reader
from sink.files.row_writer import FileDocumentLoader, FileRowWriter
from sink.files.stores.opening import open_store
from sink.files.stores.store import Store
from sink.reading.shown import Copied, CopyBegins
from sink.reading.stored_message import StoredMessage
from sink.receipt import Commit, CopyEnd, CopyReceipt, Receipt
from sink.row import RowChange, TargetTable

IDENTITY = FeedIdentity(feed="orders", life="c/1")
A, B = TableId("aa" * 16), TableId("bb" * 16)
NOTHING_SEEN = Observation(tables={})


def moment(seconds: int, index: int | None = None) -> Position:
    return Position(ClusterTime(seconds, 1), "" if index is None else f"{index:08X}")


def target(table: TableId, name: str = "a") -> TargetTable:
    return TargetTable(id=table, source=TableName("shop", name), name=TableName("shop", name), version=moment(100))


def described(table: TableId, name: str = "a", at: Position | None = None) -> tuple[TableSchema, TableName]:
    return TableSchema(id=table, name=TableName("shop", name), valid_from=at or moment(100)), TableName("shop", name)


def insert(table: TableId, at: int, key: int, name: str = "a") -> RowChange:
    document = bson.encode({"_id": key, "at": at})
    return RowChange(
        table=target(table, name),
        type=RowType.INSERT,
        key=bson.encode({"_id": key}),
        document=document,
        update=None,
        time=ClusterTime(at, 1).to_int(),
        token=b"00000000",
    )


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
        run = FileRowWriter("orders", self.options, self.store, epoch, lambda: None).begin(lambda _: False)
        for change in changes:
            run.prepare([change], replay=False)()
        return tuple(run.settle().receipts)

    def window(self, start: int, end: int, changes: Sequence[RowChange], *tables: TableId, epoch: int = 7) -> None:
        ranges = {table: Window(moment(start), moment(end)) for table in tables or (A,)}
        named = tuple(described(table) for table in tables or (A,))
        self.committer(epoch).commit(Commit(ranges=ranges, files=self.written(changes, epoch), tables=named))

    def read(self, reader: Reader | None = None) -> list[str]:
        reader = reader or self.reader()
        round = reader.look()
        return [text_of(shown.content) for shown in reader.read(round)] if round is not None else []

    def reader(self) -> Reader:
        return Reader(FeedDirectory(self.store))


def text_of(shown: Any) -> str:
    if isinstance(shown, Copied | CopyBegins):
        return "copied" if isinstance(shown, Copied) else "copy"
    assert isinstance(shown, StoredMessage)
    fields = shown.fields
    match fields["op"]:
        case "ddl":
            return f"{fields['type']} {fields.get('ns', fields.get('db'))}"
        case "b":
            return f"schema {fields['ns']}"
        case op:
            return f"{op}{fields['key']['_id']}@{fields['after']['at']}"


def recorded(type: DdlType, at: int, table: TableId = A, **more: Any) -> DdlRecord:
    event = DdlEvent(position=moment(at, 0), type=type, db="shop", table=TableName("shop", "a"), id=table, **more)
    return DdlRecord(
        event=event, scope=Scope(tables=frozenset({table}), ended=frozenset({table})), seen_at=datetime.now(UTC)
    )


def copy_end(start: int) -> CopyEnd:
    return CopyEnd(table=A, name=TableName("shop", "a"), start=moment(start), at=moment(start + 1))


def copied(
    feed: Feed, start: int, at: int, documents: Sequence[dict[str, Any]], epoch: int = 7, name: str = "a"
) -> CopyReceipt:
    loader = FileDocumentLoader("orders", feed.options, feed.store, epoch, target(A, name), lambda: None)
    loader.load(list(map(bson.encode, documents)), ClusterTime(at, 1))
    return CopyReceipt(
        table=A, start=moment(start), after=ClusterTime(at, 1), until=ClusterTime(at, 1), files=loader.finish()
    )
