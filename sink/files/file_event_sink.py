"""`FileEventSink`: the parts of a sink of files."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from changefeed.config.sinks.file_sink import FileSinkOptions
from changefeed.position import Position
from changefeed.table import TableName
from credentials.secret_files import SecretFiles
from sink.event_sink import NamedTables
from sink.files.committer import FileCommitter
from sink.files.identity import FeedIdentity
from sink.files.leftovers import FileLeftovers
from sink.files.owner_log import FileDdlApplier, FileMarks
from sink.files.row_writer import FileDocumentLoader, FileRowWriter
from sink.files.stores.opening import open_store
from sink.row import TargetTable

_Permit = Callable[[], object]


class FileEventSink:
    def __init__(self, feed: str, options: FileSinkOptions, files: SecretFiles | None) -> None:
        self._feed = feed
        self._options = options
        self._store = open_store(options.place, files)
        self.commit_seconds: int | None = options.commit_seconds

    def check(self) -> None:
        self._store.check()

    def obstacles(self, tables: Collection[TableName]) -> Iterator[str]:  # noqa: ARG002 - the place is for all of them
        if not self._store.empty():
            yield f"sink: {self._store} is not empty; name an empty directory or prefix, one for each changefeed"

    def claim(self, life: str, at: Position, tables: NamedTables, permit: _Permit) -> None:  # noqa: ARG002 - a commit describes its tables
        self._identity(life).claim(self._store)

    def confirm(self, life: str) -> None:
        self._identity(life).confirm(self._store)

    def writer(self, epoch: int, permit: _Permit) -> FileRowWriter:
        return FileRowWriter(self._feed, self._options, self._store, epoch, permit)

    def loader(self, epoch: int, table: TargetTable, permit: _Permit) -> FileDocumentLoader:
        return FileDocumentLoader(self._feed, self._options, self._store, epoch, table, permit)

    def committer(self, life: str, epoch: int) -> FileCommitter:
        return FileCommitter(self._identity(life), self._store, epoch)

    def ddl(self, life: str, permit: _Permit) -> FileDdlApplier:  # noqa: ARG002 - what comes late is the same file
        return FileDdlApplier(self._identity(life), self._store)

    def marks(self, life: str, permit: _Permit) -> FileMarks:  # noqa: ARG002 - what comes late is true
        return FileMarks(self._identity(life), self._store)

    def leftovers(self, life: str) -> FileLeftovers:
        return FileLeftovers(self._identity(life), self._store)

    def _identity(self, life: str) -> FeedIdentity:
        return FeedIdentity(feed=self._feed, life=life)
