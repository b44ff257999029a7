"""`MessageFormat`: makes each thing that an event sink says into messages with key, value and headers. Pure, and called for each change.

    what                     op     sluice    debezium                      mongodb
    a change                 iuRd   one       one; a delete has a tombstone one
    a copied document        r      one       one                           one, an insert
    DDL                      ddl    one       one, with the server's event  one, as a change event
    a table's schema         b      one       none                          none
    a table is copied anew   ddl    one       none                          none
    a copy is complete       c      one       none                          none
    a watermark              w      one       one, in the format sluice     one, in the format sluice

`in_band`: DDL, schemas and watermarks stand among the rows of their tables, too. Otherwise they are in topics of their own alone.

Headers are the same in all formats, so that a consumer can drop repeats and route messages without parsing them:

    sluice.v       1
    sluice.pos     where it stands in the source's history; the same at each repeat
    sluice.op      as above
    sluice.table   the table's identity; not of a dropDatabase or a watermark
    sluice.schema  of rows: where the version of the table begins that the row has

The key of a row is the same for all `_id`s that the server takes for equal, in `sluice` and `mongodb` (`message_key.py`). What is not a
row has no key, apart from watermarks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from changefeed.cluster_time import ClusterTime
from changefeed.position import Position
from changefeed.records.ddl import DdlRecord
from changefeed.table import TableId, TableName, TableSchema
from sink.ddl import DownstreamDdl
from sink.receipt import CopyEnd
from sink.row import RowChange, TargetTable

Headers: TypeAlias = list[tuple[str, bytes]]

V, POS, OP, TABLE, SCHEMA = "sluice.v", "sluice.pos", "sluice.op", "sluice.table", "sluice.schema"


class KeyedMessage(NamedTuple):
    """`value` is None in a tombstone. A message without a key goes where its sender says."""

    key: bytes | None
    value: bytes | None
    headers: Headers

    @property
    def size(self) -> int:
        """Without the frame that a broker puts around it."""
        headers = sum(len(name) + len(value) for name, value in self.headers)
        return len(self.key or b"") + len(self.value or b"") + headers


class MessageFormat(Protocol):
    @property
    def in_band(self) -> bool: ...

    def change(self, change: RowChange) -> Sequence[KeyedMessage]: ...

    def copied(
        self, table: TargetTable, document: bytes, key: bytes, read_ts: ClusterTime
    ) -> Sequence[KeyedMessage]: ...

    def ddl(self, record: DdlRecord, ddl: DownstreamDdl) -> KeyedMessage | None:
        """None for a DDL that changes nothing downstream."""
        ...

    def schema(self, schema: TableSchema, name: TableName) -> KeyedMessage | None:
        """`name`: the table's name downstream."""
        ...

    def recopy(self, table: TableId, name: TableName, at: Position) -> KeyedMessage | None: ...

    def copy_end(self, end: CopyEnd) -> KeyedMessage | None: ...

    def watermark(self, at: Position, behind: Mapping[TableId, Position]) -> KeyedMessage:
        """`behind`: tables that are not as far as `at`."""
        ...


def headers_of(op: str, pos: str, table: str | None) -> Headers:
    """Of what is not a row."""
    about = [(TABLE, table.encode())] if table is not None else []
    return [(V, b"1"), (POS, pos.encode()), (OP, op.encode()), *about]
