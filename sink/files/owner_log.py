"""`FileDdlApplier`, `FileMarks`: what the owner writes into a sink of files, DDL and watermarks.

A DDL is one file whose name is its position. However often it is written, by whichever owner, it is the same file with the same content.
A mark says that everything before its position is there. It is true for ever, so a mark of an old owner that comes late does no harm:
a reader takes the highest of the newest ones.

    a table begins again    its schema, then the DDL

Nothing else need say that schema: a copy that is interrupted at once begins at the interruption. A crash between the two leaves a schema
that nobody needs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from changefeed.cluster_time import ClusterTime
from changefeed.errors import DdlAmbiguous
from changefeed.position import Position
from changefeed.records.ddl import DdlRecord, Observation
from changefeed.table import TableId, TableKind, TableName, TableSchema, view_id
from sink.ddl import BeginAgain, CreateTable, DownstreamDdl, Skip
from sink.files.identity import FeedIdentity
from sink.files.manifest import CHECKPOINT, DDL, VERSION, copied_name, number_name, number_of, place_name, schema_name
from sink.files.stores.store import Store, create_same
from sink.messages.message import ddl_message, recopy_message, schema_message, watermark_message
from sink.messages.message_key import pos_of
from sink.receipt import CopyEnd
from sink.sink import NamedTables

KEPT_MARKS = 64
_NONE: Mapping[TableId, Position] = MappingProxyType({})
_ALWAYS = Position(ClusterTime(0, 0))


class FileDdlApplier:
    """Without a record, `apply` makes the views with which a changefeed starts, and prepares or completes a copy at another sink: here there is
    nothing to prepare.
    """

    def __init__(self, identity: FeedIdentity, store: Store) -> None:
        self._identity = identity
        self._store = store

    def observe(self, names: Iterable[TableName]) -> Observation:
        return Observation(tables=dict.fromkeys(names))

    def apply(self, ddl: DownstreamDdl, before: Observation, record: DdlRecord | None = None) -> str:  # noqa: ARG002 - nothing is compared
        if isinstance(ddl, Skip):
            return ddl.note
        if isinstance(ddl, BeginAgain):
            self._describe(ddl.schema, ddl.name)
        message = ddl_message(self._identity.feed, record, ddl) if record is not None else None
        if record is not None and message is not None:
            self._put(f"{DDL}/{place_name(record.position)}.json", message.json())
        if record is None and isinstance(ddl, CreateTable) and "viewOn" in ddl.options.decode():
            view = TableSchema(
                id=view_id(ddl.name), name=ddl.name, kind=TableKind.VIEW, options=ddl.options, valid_from=_ALWAYS
            )
            self._describe(view, ddl.name)
        return ""

    def _describe(self, schema: TableSchema, name: TableName) -> None:
        message = schema_message(self._identity.feed, schema, name)
        self._store.create(schema_name(schema.id, schema.valid_from), message.json())
        self._identity.confirm(self._store)

    def begin(self, tables: NamedTables) -> None:
        """The windows of a table that is not copied describe it."""
        for schema, name in tables:
            self._describe(schema, name)

    def recopy(self, table: TableId, name: TableName, at: Position) -> None:
        """The table is empty from there, and is copied again."""
        message = recopy_message(self._identity.feed, table, name, at)
        self._put(f"{DDL}/{place_name(at)}.recopy.{table}.json", message.json())

    def copied(self, end: CopyEnd) -> None:
        content = json.dumps({"v": VERSION, "feed": self._identity.feed, "id": end.table, "start": pos_of(end.start)})
        self._store.create(copied_name(end.table, end.start), content.encode())
        self._identity.confirm(self._store)

    def close(self) -> None:
        """Nothing is open."""

    def _put(self, name: str, content: bytes) -> None:
        same = create_same(self._store, name, content)
        self._identity.confirm(self._store)
        if not same:
            raise DdlAmbiguous(
                f"{self._store}/{name}: expected {content.decode()}, found another DDL of this position; compare the two, "
                f"and remove the file if it is wrong"
            )


class FileMarks:
    """For one owner's term. `mark` is called with rising positions. `behind`: tables that are not as far, each with its own position."""

    def __init__(self, identity: FeedIdentity, store: Store) -> None:
        self._identity = identity
        self._store = store
        self._number: int | None = None

    def mark(self, at: Position, behind: Mapping[TableId, Position] = _NONE, tables: Iterable[TableName] = ()) -> None:  # noqa: ARG002 - the mark is about all
        if self._number is None:
            self._identity.confirm(self._store)
            self._number = max((number_of(name) + 1 for name in self._store.names(CHECKPOINT)), default=0)
        content = watermark_message(self._identity.feed, at, behind).json()
        while not self._store.create(f"{CHECKPOINT}/{number_name(self._number)}", content):
            self._number += 1
        self._identity.confirm(self._store)
        if self._number >= KEPT_MARKS:
            self._store.remove(f"{CHECKPOINT}/{number_name(self._number - KEPT_MARKS)}")
        self._number += 1
