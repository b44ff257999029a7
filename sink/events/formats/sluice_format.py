"""`SluiceFormat`: the format `sluice`, whose messages are those of the sinks of files, with keys and headers. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from changefeed.cluster_time import ClusterTime
from changefeed.config.sinks.message_options import MessageEncoding
from changefeed.position import Position
from changefeed.records.ddl import DdlRecord
from changefeed.table import TableId, TableName, TableSchema
from sink.ddl import DownstreamDdl
from sink.events.formats.message_format import KeyedMessage, headers_of
from sink.events.formats.row_headers import RowHeaders
from sink.events.key_json import keys_json
from sink.events.message import (
    Message,
    copy_end_message,
    ddl_message,
    recopy_message,
    schema_message,
    watermark_message,
)
from sink.events.message_key import message_key
from sink.events.pos import AFTER_ALL
from sink.events.row_message import COPIED, OPS, event_pos, row_encoder
from sink.receipt import CopyEnd
from sink.row import RowChange, TargetTable

_new = tuple.__new__


class SluiceFormat:
    in_band = True

    def __init__(self, feed: str, encoding: MessageEncoding) -> None:
        self._feed = feed
        self._json = encoding is MessageEncoding.JSON
        self._encoder = row_encoder(feed, encoding)
        self._headers = RowHeaders()

    def change(self, change: RowChange) -> Sequence[KeyedMessage]:
        pos = event_pos(change)
        key, value = self._encoder.keyed(change, pos)
        return (_new(KeyedMessage, (key, value, self._headers.of(change.table, OPS[change.type], pos))),)

    def copied(self, table: TargetTable, document: bytes, key: bytes, read_ts: ClusterTime) -> Sequence[KeyedMessage]:
        headers = self._headers.of(table, COPIED, f"{read_ts.to_int():016X}{AFTER_ALL}")
        return (KeyedMessage(self._key(key), self._encoder.copied(table, document, key, read_ts), headers),)

    def ddl(self, record: DdlRecord, ddl: DownstreamDdl) -> KeyedMessage | None:
        message = ddl_message(self._feed, record, ddl)
        return None if message is None else self._keyless(message, "ddl")

    def schema(self, schema: TableSchema, name: TableName) -> KeyedMessage:
        return self._keyless(schema_message(self._feed, schema, name), "b")

    def recopy(self, table: TableId, name: TableName, at: Position) -> KeyedMessage:
        return self._keyless(recopy_message(self._feed, table, name, at), "ddl")

    def copy_end(self, end: CopyEnd) -> KeyedMessage:
        return self._keyless(copy_end_message(self._feed, end), "c")

    def watermark(self, at: Position, behind: Mapping[TableId, Position]) -> KeyedMessage:
        return self._keyless(watermark_message(self._feed, at, behind), "w")

    def _key(self, key: bytes) -> bytes:
        return keys_json(key)[1].encode() if self._json else message_key(key)

    def _keyless(self, message: Message, op: str) -> KeyedMessage:
        pos, table = str(message.fields["pos"]), message.fields.get("id")
        headers = headers_of(op, pos, str(table) if table is not None else None)
        return KeyedMessage(None, message.json() if self._json else message.bson(), headers)
