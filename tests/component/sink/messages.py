"""`Messages`: a changefeed's messages in a folder, a bucket or topics, written and read by what all of these have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import bson

from changefeed.cluster_time import ClusterTime
from changefeed.config.sinks.file_options import FileSinkOptions
from changefeed.event import DdlType
from changefeed.position import Position, Window
from changefeed.table import TableId, TableName, TableSchema
from devstack.kafka.broker import KafkaBroker
from sink.ddl import BeginAgain, DownstreamDdl
from sink.messages.files.directory import open_store
from sink.messages.files.feed_log import FileDdlApplier
from sink.messages.files.file_sink import FileSink
from sink.messages.kafka.kafka_clients import kafka_clients
from sink.messages.kafka.kafka_reader import KafkaReader
from sink.messages.kafka.kafka_sink import KafkaSink
from sink.messages.kafka.owner_log import KafkaDdlApplier
from sink.receipt import Commit, CopyEnd, CopyReceipt
from sink.row import RowChange
from sink.sink import NamedTables, TaskTerms
from sluice_client.feed_directory import FeedDirectory
from sluice_client.feed_reader import FeedReader
from sluice_client.file_reader import Reader
from tests.component.sink.kafka.feed import KafkaFeed
from tests.component.sink.vocabulary import (
    LIFE,
    NOTHING_SEEN,
    A,
    B,
    begin_of,
    described,
    entered,
    moment,
    named,
    recorded,
    target,
    text_of,
)

_BEGUN, _COPIED = (described(A),), (described(A, copied=True),)


@dataclass(frozen=True, slots=True)
class Messages:
    sink: FileSink | KafkaSink
    sink_of: Callable[[str], FileSink | KafkaSink]
    """Of another life of the changefeed."""
    claim: Callable[..., None]
    open_reader: Callable[[], FeedReader]
    close_reader: Callable[[Any], None]
    opened: list[FeedReader] = field(default_factory=list)

    def window(
        self,
        start: int,
        end: int,
        changes: Sequence[RowChange],
        *tables: tuple[TableSchema, TableName],
        epoch: int = 7,
        since: Position | None = None,
    ) -> None:
        """What a task writes of these tables, and its processor commits. `since`: where a table begins within the window."""
        run = self.sink.writer(TaskTerms(epoch=epoch)).begin(lambda _: False)
        run.prepare(changes, replay=False)()
        ranges = {schema.id: Window(since or moment(start), moment(end)) for schema, _ in tables or _BEGUN}
        self._commit(Commit(ranges=ranges, files=tuple(run.settle().receipts), tables=tables or _BEGUN), epoch)

    def copy(
        self,
        start: int,
        at: int | ClusterTime,
        documents: Sequence[Mapping[str, Any]],
        *,
        until: ClusterTime | None = None,
        name: str = "a",
        tables: NamedTables = _COPIED,
        epoch: int = 7,
    ) -> None:
        """Documents that were read between `at` and `until`, for the copy that began at `start`, as the table was there."""
        self.ddl.begin(tables)
        at = ClusterTime(at, 1) if isinstance(at, int) else at
        loader = self.sink.loader(replace(target(A, name), version=moment(start)), TaskTerms(epoch=epoch), once=False)
        loader.load(list(map(bson.encode, documents)), at)
        receipt = CopyReceipt(table=A, start=moment(start), after=at, until=until or at, files=loader.finish())
        self._commit(Commit(ranges={}, copies=(receipt,)), epoch)

    def _commit(self, commit: Commit, epoch: int) -> None:
        if self.sink.commit_seconds is not None:
            self.sink.committer(epoch).commit(commit)

    @property
    def ddl(self) -> FileDdlApplier | KafkaDdlApplier:
        return self.sink.ddl()

    def copied(self, start: int, at: int) -> None:
        """The copy that began at `start` is complete; what changed from `at` on fits it."""
        self.ddl.copied(CopyEnd(table=A, name=named("a"), start=moment(start), at=moment(at)))

    def apply(self, ddl: DownstreamDdl, type: DdlType, at: int, table: TableId = A) -> None:
        self.ddl.apply(ddl, NOTHING_SEEN, recorded(type, at, table))

    def begin_again(
        self, at: int, name: str = "a", *, schema: TableSchema | None = None, skipped_from: Position | None = None
    ) -> None:
        begun = schema or described(A, name, moment(at))[0]
        self.ddl.apply(
            BeginAgain(name=named(name), schema=begun, skipped_from=skipped_from), NOTHING_SEEN, entered(at, name)
        )

    def mark(self, at: int, *, a: int | None = None, b: int | None = None) -> None:
        """`a`, `b`: how far tables A and B are, if they are behind."""
        behind = {table: moment(place) for table, place in ((A, a), (B, b)) if place is not None}
        self.sink.marks().mark(moment(at), behind, list(map(named, "abz")))

    def reader(self) -> FeedReader:
        self.opened.append(self.open_reader())
        return self.opened[-1]

    def read(self, reader: FeedReader | None = None) -> list[str]:
        reader, found = reader or self.reader(), list[str]()
        while (round := reader.look()) is not None:
            found += [text_of(shown.content) for shown in reader.read(round)]
        return found

    def close(self) -> None:
        """Its readers; it can open others."""
        while self.opened:
            self.close_reader(self.opened.pop())


def filed(uri: str) -> Messages:
    options = FileSinkOptions.parse(uri)

    def opened(life: str) -> FileSink:
        return FileSink("orders", options, None, life, lambda: 60.0)

    def claim(*tables: tuple[TableSchema, TableName], life: str = LIFE) -> None:
        opened(life).claim(begin_of(tables), tables)

    return Messages(
        opened(LIFE), opened, claim, lambda: Reader(FeedDirectory(open_store(options.place))), lambda _: None
    )


def in_topics(broker: KafkaBroker, query: str = "partitions=2") -> Messages:
    feed = KafkaFeed(broker, query)

    def reader() -> KafkaReader:
        reader = KafkaReader(partial(kafka_clients, feed.options), feed.options)
        assert reader.identity() == ("orders", LIFE)
        return reader

    return Messages(feed.sink, feed.sink_of, feed.claim, reader, KafkaReader.close)
