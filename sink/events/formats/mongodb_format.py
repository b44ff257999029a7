"""`MongoFormat`: the format `mongodb`: change events, as MongoDB's connectors for Kafka write and read them. Pure.

A copied document is an insert. DDL is in a topic of its own. What MongoDB has no event for is not said: schemas, and copies. Watermarks
are those of the format `sluice`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from changefeed.cluster_time import ClusterTime
from changefeed.config.sinks.message_options import MessageEncoding
from changefeed.position import Position
from changefeed.records.ddl import DdlRecord
from changefeed.table import TableId, TableName, TableSchema
from sink.ddl import DownstreamDdl
from sink.events.extended_json import to_json
from sink.events.formats.change_event import ChangeEvents, ddl_event
from sink.events.formats.message_format import KeyedMessage, headers_of
from sink.events.formats.row_headers import RowHeaders
from sink.events.message import watermark_message
from sink.events.message_key import message_key
from sink.events.pos import AFTER_ALL, pos_of
from sink.events.row_message import COPIED, OPS, event_pos
from sink.receipt import CopyEnd
from sink.row import RowChange, TargetTable


class MongoFormat:
    in_band = False

    def __init__(self, feed: str, encoding: MessageEncoding) -> None:
        self._feed = feed
        self._json = encoding is MessageEncoding.JSON
        self._events = ChangeEvents()
        self._headers = RowHeaders()

    def change(self, change: RowChange) -> Sequence[KeyedMessage]:
        pos = event_pos(change)
        headers = self._headers.of(change.table, OPS[change.type], pos)
        value = self._encoded(self._events.change(change, pos))
        return (KeyedMessage(self._encoded(message_key(change.key)), value, headers),)

    def copied(self, table: TargetTable, document: bytes, key: bytes, read_ts: ClusterTime) -> Sequence[KeyedMessage]:
        time = read_ts.to_int()
        pos = f"{time:016X}{AFTER_ALL}"
        value = self._encoded(self._events.copied(table, document, key, time, pos))
        return (KeyedMessage(self._encoded(message_key(key)), value, self._headers.of(table, COPIED, pos)),)

    def ddl(self, record: DdlRecord, ddl: DownstreamDdl) -> KeyedMessage | None:
        event = ddl_event(record, ddl)
        if event is None:
            return None
        return KeyedMessage(None, self._encoded(event), headers_of("ddl", pos_of(record.position), record.event.id))

    def schema(self, schema: TableSchema, name: TableName) -> None:  # noqa: ARG002 - MongoDB has no such event
        return None

    def recopy(self, table: TableId, name: TableName, at: Position) -> None:  # noqa: ARG002 - MongoDB has no such event
        return None

    def copy_end(self, end: CopyEnd) -> None:  # noqa: ARG002 - MongoDB has no such event
        return None

    def watermark(self, at: Position, behind: Mapping[TableId, Position]) -> KeyedMessage:
        return KeyedMessage(None, watermark_message(self._feed, at, behind).json(), headers_of("w", pos_of(at), None))

    def _encoded(self, raw: bytes) -> bytes:
        return to_json(raw).encode() if self._json else raw
