"""`DebeziumFormat`: the format `debezium`: envelopes as Debezium's connector for MongoDB writes them, without their schemas. Pure.

    key       {"id": "7"}
    insert    {"before": null, "after": "{\\"_id\\": 7,\\"n\\": 1}", "updateDescription": null, "source": {..}, "op": "c", "ts_ms": .., "transaction": null}
    replace   the same with op u; copy: op r, and snapshot "true" in the source
    update    op u, after null, updateDescription {"removedFields": null or ["a"], "updatedFields": "{\\"n\\": 2}", "truncatedArrays": null or [{..}]}
    delete    op d, then a tombstone: the key without a value
    DDL       {"source": {..}, "ts_ms": .., "databaseName": "shop", "schemaName": null, "ddl": "<the change event>", "tableChanges": []}

Documents are strings of JSON: in mode `legacy` the first version of Extended JSON, but keys and `updatedFields` the second, relaxed, as
Debezium's default has it; in mode `extended` all canonical. The key is that of Debezium, byte for byte, so `_id`s that differ only in
the type of a number have keys of their own.

A repeat is the same byte for byte: `ts_ms` of the envelope, which Debezium takes from its clock, is that of the source.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from json.encoder import encode_basestring_ascii

import bson
from bson.raw_bson import RawBSONDocument

from changefeed.cluster_time import ClusterTime
from changefeed.config.sinks.message_options import JsonMode, MessageOptions
from changefeed.documents.row_key import only_id
from changefeed.event import RowType
from changefeed.position import Position
from changefeed.records.ddl import DdlRecord
from changefeed.table import TableId, TableName, TableSchema
from sink.ddl import DownstreamDdl
from sink.events.extended_json import COMPACT, RELAXED, SPACED, STRICT, first_value, to_json
from sink.events.formats.change_event import RAW, ddl_event, removed_fields
from sink.events.formats.message_format import KeyedMessage, headers_of
from sink.events.formats.row_headers import RowHeaders
from sink.events.message import watermark_message
from sink.events.of_table import OfTable
from sink.events.pos import AFTER_ALL, pos_of
from sink.events.row_message import COPIED, OPS, event_pos
from sink.events.shaped_json import ShapedJson
from sink.receipt import CopyEnd
from sink.row import RowChange, RowDetails, TargetTable

_OPS: Mapping[RowType, str] = {
    RowType.INSERT: "c",
    RowType.UPDATE: "u",
    RowType.REPLACE: "u",
    RowType.DELETE: "d",
}
_READ = "r"
_NO_DETAILS = RowDetails()
_quoted = encode_basestring_ascii


class DebeziumFormat:
    in_band = False

    def __init__(self, feed: str, source: str, options: MessageOptions) -> None:
        legacy = options.json_mode is JsonMode.LEGACY
        self._feed = feed
        self._source = source
        self._tombstones = options.tombstones
        self._documents, self._fields, self._ids = (STRICT, SPACED, RELAXED) if legacy else (COMPACT, COMPACT, COMPACT)
        self._headers = RowHeaders()
        self._sources = OfTable(self._sources_of)
        self._writers = OfTable(lambda _: ShapedJson(self._documents).text)

    def change(self, change: RowChange) -> Sequence[KeyedMessage]:
        table, type, raw_key, document, update, time, _, details = change
        headers = self._headers.of(table, OPS[type], event_pos(change))
        wall, _, before, image, _ = details or _NO_DETAILS
        after = self._document(table, image if document is None else document)
        description = "null" if update is None else self._description(update)
        value = self._envelope(table, time, _OPS[type], after, description, self._document(table, before), wall)
        key = self._key(raw_key)
        message = KeyedMessage(key, value, headers)
        if type is RowType.DELETE and self._tombstones:
            return message, KeyedMessage(key, None, headers)
        return (message,)

    def copied(self, table: TargetTable, document: bytes, key: bytes, read_ts: ClusterTime) -> Sequence[KeyedMessage]:
        time = read_ts.to_int()
        after = self._document(table, document)
        value = self._envelope(table, time, _READ, after, "null")
        return (KeyedMessage(self._key(key), value, self._headers.of(table, COPIED, f"{time:016X}{AFTER_ALL}")),)

    def ddl(self, record: DdlRecord, ddl: DownstreamDdl) -> KeyedMessage | None:
        raw = ddl_event(record, ddl)
        if raw is None:
            return None
        time = record.position.ts.to_int()
        names: Mapping[str, str] = RawBSONDocument(raw, RAW)["ns"]
        head, tail = self._source_of(names["db"], names.get("coll"), copied=False)
        fields = f'"databaseName": {_quoted(names["db"])}, "schemaName": null, "ddl": {_quoted(to_json(raw))}, "tableChanges": []'
        value = f'{{"source": {_filled(head, tail, time)}, "ts_ms": {_ms(time)}, {fields}}}'
        headers = headers_of("ddl", pos_of(record.position), record.event.id)
        return KeyedMessage(json.dumps({"databaseName": names["db"]}).encode(), value.encode(), headers)

    def schema(self, schema: TableSchema, name: TableName) -> None:  # noqa: ARG002 - Debezium has no such message
        return None

    def recopy(self, table: TableId, name: TableName, at: Position) -> None:  # noqa: ARG002 - Debezium has no such message
        return None

    def copy_end(self, end: CopyEnd) -> None:  # noqa: ARG002 - Debezium has no such message
        return None

    def watermark(self, at: Position, behind: Mapping[TableId, Position]) -> KeyedMessage:
        return KeyedMessage(None, watermark_message(self._feed, at, behind).json(), headers_of("w", pos_of(at), None))

    def _key(self, key: bytes) -> bytes:
        """Without the fields of a shard key, as Debezium's is."""
        identity = key if only_id(key) else bson.encode({"_id": RawBSONDocument(key, RAW)["_id"]})
        return f'{{"id": {_quoted(first_value(identity, self._ids))}}}'.encode()

    def _document(self, table: TargetTable, document: bytes | None) -> str:
        return "null" if document is None else _quoted(self._writers(table)(document))

    def _description(self, update: bytes) -> str:
        fields = RawBSONDocument(update)
        removed, truncated = removed_fields(fields) or None, fields.get("truncatedArrays") or None
        arrays = [{"field": each["field"], "size": each["newSize"]} for each in truncated] if truncated else None
        updated = fields.get("updatedFields")
        text = to_json(updated.raw, self._fields) if updated is not None else "{}"
        return f'{{"removedFields": {json.dumps(removed)}, "updatedFields": {_quoted(text)}, "truncatedArrays": {json.dumps(arrays)}}}'

    def _envelope(
        self,
        table: TargetTable,
        time: int,
        op: str,
        after: str,
        description: str,
        before: str = "null",
        wall: int | None = None,
    ) -> bytes:
        head, tail = self._sources(table)[op == _READ]
        return (
            f'{{"before": {before}, "after": {after}, "updateDescription": {description}, "source": {_filled(head, tail, time, wall)}, '
            f'"op": "{op}", "ts_ms": {_ms(time)}, "transaction": null}}'
        ).encode()

    def _sources_of(self, table: TargetTable) -> tuple[tuple[str, str], tuple[str, str]]:
        """Of a change, and of a copied document."""
        db, coll = table.name.db, table.name.coll
        return self._source_of(db, coll, copied=False), self._source_of(db, coll, copied=True)

    def _source_of(self, db: str, coll: str | None, *, copied: bool) -> tuple[str, str]:
        """What stands before and behind the times."""
        snapshot = "true" if copied else "false"
        head = f'{{"version": "sluice", "connector": "mongodb", "name": {_quoted(self._source)}, '
        names = f'"db": {_quoted(db)}, "sequence": null, "collection": {json.dumps(coll)}'
        return head, f'"snapshot": "{snapshot}", {names}, "lsid": null, "txnNumber": null, "wallTime": '


def _filled(head: str, tail: str, time: int, wall: int | None = None) -> str:
    """The source block of an event at this cluster time."""
    ms = _ms(time)
    return f'{head}"ts_ms": {ms}, "ts_us": {ms}000, "ts_ns": {ms}000000, "ord": {time & 0xFFFFFFFF}, {tail}{"null" if wall is None else wall}}}'


def _ms(time: int) -> int:
    return (time >> 32) * 1000
