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

`key_only` and `claim_check` make what is sent in place of a message that its topic does not take. Key and headers are those of the message, and one
header more. The value is JSON:

    sluice.large  key_only       {"v": 1, "large": "key_only", "bytes": 1234567}
    sluice.large  claim_check    {"v": 1, "large": "claim_check", "bytes": 1234567, "crc32": 305419896, "claim": "<place>/claim/<table>/<name>"}

The file has the value that the message would have had. It has the same name at each repeat.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeAlias

from changefeed.cluster_time import ClusterTime
from changefeed.records.ddl import DdlRecord
from sink.ddl import DownstreamDdl
from sink.messages.message import Message
from sink.messages.row_message import COPIED, OPS, OfTable
from sink.row import RowChange, TargetTable
from sluice_client.pos import pos_of

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

    def told(self, message: Message) -> KeyedMessage | None:
        """What is neither a row nor a DDL of the source. None: the format has no such message."""
        ...


def headers_of(op: str, pos: str, table: str | None) -> Headers:
    """Of what is not a row."""
    about = [(TABLE, table.encode())] if table is not None else []
    return [(V, b"1"), (POS, pos.encode()), (OP, op.encode()), *about]


def watermark_alone(message: Message) -> KeyedMessage | None:
    """Of a format that has nothing else of it."""
    fields = message.fields
    return KeyedMessage(None, message.json(), headers_of("w", fields["pos"], None)) if fields["op"] == "w" else None


class RowHeaders:
    def __init__(self) -> None:
        self._of = OfTable(_made)

    def of(self, table: TargetTable, op: str, pos: str) -> Headers:
        of = self._of
        made = of.last if table is of.table else of(table)
        return [*made[op], (POS, pos.encode())]


def _made(table: TargetTable) -> dict[str, Headers]:
    about = [(TABLE, table.id.encode()), (SCHEMA, pos_of(table.version).encode())]
    return {op: [(V, b"1"), (OP, op.encode()), *about] for op in (*OPS.values(), COPIED)}


LARGE = "sluice.large"
FOLDER = "claim"
_HASH = 24


def key_only(message: KeyedMessage) -> KeyedMessage:
    return _instead(message, "key_only", {})


def claim_check(message: KeyedMessage, place: str) -> KeyedMessage:
    """`place`: of the file, which is written before this is sent."""
    return _instead(message, "claim_check", {"crc32": zlib.crc32(message.value or b""), "claim": place})


def claim_name(message: KeyedMessage) -> str:
    """Copied documents of a chunk have one position, so the key is part of it."""
    headers = dict(message.headers)
    table, pos = headers[TABLE].decode(), headers[POS].decode()
    return f"{FOLDER}/{table}/{pos}.{hashlib.sha256(message.key or b'').hexdigest()[:_HASH]}"


def _instead(message: KeyedMessage, kind: str, more: dict[str, object]) -> KeyedMessage:
    about = {"v": 1, "large": kind, "bytes": len(message.value or b""), **more}
    return KeyedMessage(message.key, json.dumps(about).encode(), [*message.headers, (LARGE, kind.encode())])
