"""`RawFind`: the documents of one `find`, read by plain commands whose replies stay bytes.

It has one session for `find` and `getMore`, as the server requires. The client must send both to one server (`connect` ensures it).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from struct import Struct
from typing import Any, Self

import structlog
from bson.int64 import Int64
from pymongo.errors import OperationFailure, PyMongoError

from changefeed.bson_bytes import documents_of, elements
from changefeed.cluster_time import ClusterTime
from changefeed.documents.document import RAW
from changefeed.table import TableName
from source.connection import Client, read_command
from source.errors import error_text, readable

_GROWTH = 4
_INT64 = Struct("<q").unpack
_UINT64 = Struct("<Q").unpack

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Found:
    """One reply: up to 16 MB of documents."""

    documents: list[bytes]
    cursor_id: int
    at_ts: ClusterTime | None
    """In a snapshot read: the time of the documents."""


def parse_found(raw: bytes) -> Found:
    cursor_id, at_ts = 0, None
    documents: list[bytes] = []
    for name, _, at, _ in elements(raw):
        if name != b"cursor":
            continue
        for field, _, value_at, value_end in elements(raw, at):
            if field == b"id":
                cursor_id = _INT64(raw[value_at:value_end])[0]
            elif field == b"atClusterTime":
                at_ts = ClusterTime.from_int(_UINT64(raw[value_at:value_end])[0])
            elif field in (b"nextBatch", b"firstBatch"):
                documents = documents_of(raw, value_at, value_end)
    return Found(documents, cursor_id, at_ts)


class RawFind:
    """A context manager; iterates over the replies. Errors are the driver's."""

    def __init__(
        self, client: Client, table: TableName, arguments: Mapping[str, object], *, most: int, first: int | None = None
    ) -> None:
        """`arguments` are those of the `find` command. A reply has at most `most` documents; the first has at most `first`, and each next
        one may have four times as many.
        """
        self._client = client
        self._table = table
        self._arguments = arguments
        self._most, self._next = most, min(most, first or most)
        self._session = client.start_session(causal_consistency=False)
        self._cursor_id = 0

    def __enter__(self) -> Self:
        return self

    def __iter__(self) -> Iterator[Found]:
        found = self._run({"find": self._table.coll, "batchSize": self._next, **self._arguments})
        while True:
            self._cursor_id = found.cursor_id
            yield found
            if not self._cursor_id:
                return
            self._next = min(self._most, _GROWTH * self._next)
            more = {"getMore": Int64(self._cursor_id), "collection": self._table.coll, "batchSize": self._next}
            found = self._run(more)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            if self._cursor_id and not isinstance(error, PyMongoError):
                kill: dict[str, Any] = {"killCursors": self._table.coll, "cursors": [Int64(self._cursor_id)]}
                read_command(self._client, self._table.db, kill, session=self._session)
        except PyMongoError as failed:
            log.info("cursor_left_to_its_timeout", cursor=self._cursor_id, reason=error_text(failed))
        finally:
            self._cursor_id = 0
            self._session.end_session()

    def _run(self, command: dict[str, Any]) -> Found:
        try:
            reply = read_command(self._client, self._table.db, command, codec_options=RAW, session=self._session)
        except OperationFailure as error:
            raise readable(error) from error
        return parse_found(bytes(reply.raw))
