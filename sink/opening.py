"""`EventSink`: the parts of an event sink, opened from its URI. What is not an event sink has none of them (`event_sink`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from changefeed.config.configuration import Configuration
from changefeed.config.sinks.file_sink import FileSinkOptions
from sink.files.committer import FileCommitter
from sink.files.directory import Directory
from sink.files.identity import FeedIdentity
from sink.files.leftovers import FileLeftovers
from sink.files.owner_log import FileDdlApplier, FileMarks
from sink.files.row_writer import FileDocumentLoader, FileRowWriter
from sink.receipt import Committer
from sink.row import TargetTable


@dataclass(frozen=True, slots=True)
class EventSink:
    """`life`: differs for each changefeed that was ever created, even under one id."""

    feed: str
    options: FileSinkOptions

    def check(self) -> None:
        Directory(self.options.directory).check()

    def claim(self, life: str) -> None:
        """Makes the sink this changefeed's. Once, when it begins."""
        self._identity(life).claim(Directory(self.options.directory))

    def confirm(self, life: str) -> None:
        self._identity(life).confirm(Directory(self.options.directory))

    def is_empty(self) -> bool:
        return Directory(self.options.directory).empty()

    def writer(self, epoch: int, permit: Callable[[], object]) -> FileRowWriter:
        """`epoch`: that of the task's node."""
        return FileRowWriter(self.feed, self.options, epoch, permit)

    def loader(self, epoch: int, table: TargetTable, permit: Callable[[], object]) -> FileDocumentLoader:
        return FileDocumentLoader(self.feed, self.options, epoch, table, permit)

    def committer(self, life: str, epoch: int) -> Committer:
        return FileCommitter(self._identity(life), self.options, epoch)

    def ddl(self, life: str) -> FileDdlApplier:
        return FileDdlApplier(self._identity(life), self.options)

    def marks(self, life: str) -> FileMarks:
        return FileMarks(self._identity(life), self.options)

    def leftovers(self, life: str) -> FileLeftovers:
        return FileLeftovers(self._identity(life), self.options.directory)

    def _identity(self, life: str) -> FeedIdentity:
        return FeedIdentity(feed=self.feed, life=life)


def event_sink(configuration: Configuration) -> EventSink | None:
    if not configuration.sink_can.keeps_messages:
        return None
    return EventSink(configuration.id, FileSinkOptions.parse(configuration.sink.reference))
