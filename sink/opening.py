"""`EventSink`: the parts of an event sink, opened from its URI. What is not an event sink has none of them (`event_sink`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from changefeed.config.configuration import Configuration
from changefeed.config.sinks.file_sink import FileSinkOptions
from credentials.secret_files import SecretFiles
from sink.files.committer import FileCommitter
from sink.files.identity import FeedIdentity
from sink.files.leftovers import FileLeftovers
from sink.files.owner_log import FileDdlApplier, FileMarks
from sink.files.row_writer import FileDocumentLoader, FileRowWriter
from sink.files.stores.opening import open_store
from sink.files.stores.store import Store
from sink.receipt import Committer
from sink.row import TargetTable


@dataclass(frozen=True, slots=True)
class EventSink:
    """`life`: differs for each changefeed that was ever created, even under one id."""

    feed: str
    options: FileSinkOptions
    store: Store

    def check(self) -> None:
        self.store.check()

    def claim(self, life: str) -> None:
        """Makes the sink this changefeed's. Once, when it begins."""
        self._identity(life).claim(self.store)

    def confirm(self, life: str) -> None:
        self._identity(life).confirm(self.store)

    def is_empty(self) -> bool:
        return self.store.empty()

    def writer(self, epoch: int, permit: Callable[[], object]) -> FileRowWriter:
        """`epoch`: that of the task's node."""
        return FileRowWriter(self.feed, self.options, self.store, epoch, permit)

    def loader(self, epoch: int, table: TargetTable, permit: Callable[[], object]) -> FileDocumentLoader:
        return FileDocumentLoader(self.feed, self.options, self.store, epoch, table, permit)

    def committer(self, life: str, epoch: int) -> Committer:
        return FileCommitter(self._identity(life), self.store, epoch)

    def ddl(self, life: str) -> FileDdlApplier:
        return FileDdlApplier(self._identity(life), self.store)

    def marks(self, life: str) -> FileMarks:
        return FileMarks(self._identity(life), self.store)

    def leftovers(self, life: str) -> FileLeftovers:
        return FileLeftovers(self._identity(life), self.store)

    def _identity(self, life: str) -> FeedIdentity:
        return FeedIdentity(feed=self.feed, life=life)


def event_sink(configuration: Configuration, files: SecretFiles | None = None) -> EventSink | None:
    """`files`: from which credentials may be read, if not those that this process was started with."""
    if not configuration.sink_can.keeps_messages:
        return None
    options = FileSinkOptions.parse(configuration.sink.reference)
    return EventSink(configuration.id, options, open_store(options.place, files))
