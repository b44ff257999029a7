"""`FileSink`: a directory or a bucket as a sink. Its rows are messages in files, which a commit makes visible."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from changefeed.config.sinks.file_sink import FileSinkOptions
from changefeed.config.sinks.sink_traits import SINKS
from changefeed.position import Position
from changefeed.records.status import LetterTotals
from changefeed.table import TableId, TableName
from credentials.secret_files import SecretFiles
from sink.files.committer import FileCommitter
from sink.files.identity import FeedIdentity
from sink.files.leftovers import FileLeftovers
from sink.files.owner_log import FileDdlApplier, FileMarks
from sink.files.row_writer import FileDocumentLoader, FileRowWriter
from sink.files.stores.opening import open_store
from sink.row import TargetTable
from sink.sink import NamedTables, Permit, TaskTerms


class FileSink:
    traits = SINKS["file"]
    whole_keys = False

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

    def claim(self, life: str, at: Position, tables: NamedTables, permit: Permit) -> None:  # noqa: ARG002 - a commit describes its tables
        self._identity(life).claim(self._store)

    def confirm(self, life: str) -> None:
        self._identity(life).confirm(self._store)

    def ddl(self, life: str, permit: Permit) -> FileDdlApplier:  # noqa: ARG002 - what comes late is the same file
        return FileDdlApplier(self._identity(life), self._store)

    copy_log = ddl

    def marks(self, life: str, permit: Permit) -> FileMarks:  # noqa: ARG002 - what comes late is true
        return FileMarks(self._identity(life), self._store)

    def leftovers(self, life: str) -> FileLeftovers:
        return FileLeftovers(self._identity(life), self._store)

    def open_letters(self, before: LetterTotals) -> LetterTotals:  # noqa: ARG002 - it refuses no row
        return LetterTotals()

    def forget_letters(self, table: TableId, permit: Permit) -> None:
        """As above."""

    def principals(self, permit: Permit) -> None:
        """It has no users."""

    def writer(self, task: TaskTerms) -> FileRowWriter:
        return FileRowWriter(self._feed, self._options, self._store, task.epoch, task.permit)

    def loader(self, table: TargetTable, task: TaskTerms, *, once: bool, shared: bool = False) -> FileDocumentLoader:  # noqa: ARG002 - a file that is not committed is not seen
        return FileDocumentLoader(self._feed, self._options, self._store, task.epoch, table, task.permit)

    def committer(self, life: str, epoch: int) -> FileCommitter:
        return FileCommitter(self._identity(life), self._store, epoch)

    def _identity(self, life: str) -> FeedIdentity:
        return FeedIdentity(feed=self._feed, life=life)
