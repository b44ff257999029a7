"""`FileDdlApplier`, `FileMarks`: what the owner writes into a sink of files, DDL and watermarks.

A DDL is one file whose name is its position. However often it is written, by whichever owner, it is the same file with the same content.
A mark says that everything before its position is there. It is true for ever, so a mark of an old owner that comes late does no harm:
a reader takes the highest of the newest ones.
"""

from __future__ import annotations

from collections.abc import Iterable

from changefeed.config.file_sink import FileSinkOptions
from changefeed.errors import DdlAmbiguous
from changefeed.position import Position
from changefeed.records import DdlRecord, Observation
from changefeed.table import TableId, TableName
from sink.ddl import DownstreamDdl, Skip
from sink.events.message import ddl_message, recopy_message, watermark_message
from sink.events.pos import pos_of
from sink.files.directory import Directory
from sink.files.identity import FeedIdentity
from sink.files.manifest import CHECKPOINT, DDL, number_name, number_of

KEPT_MARKS = 64


class FileDdlApplier:
    """Without a record, `apply` prepares or completes a copy at another sink. Here there is nothing to prepare."""

    def __init__(self, identity: FeedIdentity, options: FileSinkOptions) -> None:
        self._identity = identity
        self._directory = Directory(options.directory)

    def observe(self, names: Iterable[TableName]) -> Observation:
        return Observation(tables=dict.fromkeys(names))

    def apply(self, ddl: DownstreamDdl, before: Observation, record: DdlRecord | None = None) -> str:  # noqa: ARG002 - nothing is compared
        if isinstance(ddl, Skip):
            return ddl.note
        message = ddl_message(self._identity.feed, record, ddl) if record is not None else None
        if record is not None and message is not None:
            self._put(f"{DDL}/{pos_of(record.position)}.json", message.json())
        return ""

    def recopy(self, table: TableId, name: TableName, at: Position) -> None:
        """The table is empty from there, and is copied again."""
        message = recopy_message(self._identity.feed, table, name, at)
        self._put(f"{DDL}/{pos_of(at)}.recopy.{table}.json", message.json())

    def close(self) -> None:
        """Nothing is open."""

    def _put(self, name: str, content: bytes) -> None:
        self._identity.claim(self._directory)
        if not self._directory.create_same(name, content):
            raise DdlAmbiguous(
                f"{self._directory.path}/{name}: expected {content.decode()}, found another DDL of this position; compare the two, "
                f"and remove the file if it is wrong"
            )


class FileMarks:
    """For one owner's term. `mark` is called with rising positions."""

    def __init__(self, identity: FeedIdentity, options: FileSinkOptions) -> None:
        self._identity = identity
        self._directory = Directory(options.directory)
        self._number: int | None = None

    def mark(self, at: Position) -> None:
        if self._number is None:
            self._identity.claim(self._directory)
            self._number = max((number_of(name) + 1 for name in self._directory.names(CHECKPOINT)), default=0)
        content = watermark_message(self._identity.feed, at).json()
        while not self._directory.create(f"{CHECKPOINT}/{number_name(self._number)}", content):
            self._number += 1
        if self._number >= KEPT_MARKS:
            self._directory.remove(f"{CHECKPOINT}/{number_name(self._number - KEPT_MARKS)}")
        self._number += 1
