r"""The formats of messages, `DebeziumFormat`, `SluiceFormat` and `MongoFormat`; `message_format` gives the one that a sink's options ask for. Pure.

`debezium`: envelopes as Debezium's connector for MongoDB writes them; with `schemas` each is {"schema": {..}, "payload": {..}}, keys too.

    key       {"id": "7"}
    insert    {"before": null, "after": "{\"_id\": 7,\"n\": 1}", "updateDescription": null, "source": {..}, "op": "c", "ts_ms": .., "transaction": null}
    replace   the same with op u; copy: op r, and snapshot "true" in the source
    update    op u, after null, updateDescription {"removedFields": null or ["a"], "updatedFields": "{\"n\": 2}", "truncatedArrays": null or [{..}]}
    delete    op d, then a tombstone: the key without a value
    DDL       {"source": {..}, "ts_ms": .., "databaseName": "shop", "schemaName": null, "ddl": "<the change event>", "tableChanges": []}

Documents are strings of JSON: in mode `legacy` the first version of Extended JSON, but keys and `updatedFields` the second, relaxed, as
Debezium's default has it; in mode `extended` all canonical. The key is that of Debezium, byte for byte, so `_id`s that differ only in
the type of a number have keys of their own.

A repeat is the same byte for byte: `ts_ms` of the envelope, which Debezium takes from its clock, is that of the source.

`sluice`: the messages of the sinks of files, with keys and headers.

`mongodb`: change events, as MongoDB's connectors for Kafka write and read them. A copied document is an insert. DDL is in a topic of its own. What MongoDB has no event for is not said: schemas, and copies. Watermarks
are those of the format `sluice`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from json.encoder import JSONEncoder, encode_basestring

import bson
from bson.binary import UUID_SUBTYPE, Binary
from bson.raw_bson import RawBSONDocument

from changefeed.cluster_time import ClusterTime
from changefeed.config.sinks.message_options import FormatName, JsonMode, MessageEncoding, MessageOptions
from changefeed.documents.document import raw_document
from changefeed.documents.row_key import id_alone, only_id
from changefeed.event import RowType
from changefeed.records.ddl import DdlRecord
from sink.ddl import DownstreamDdl
from sink.messages.change_event import ChangeEvents, ddl_event, removed_fields
from sink.messages.debezium_schema import key_schema, value_schema
from sink.messages.message import Message, ddl_message
from sink.messages.message_format import KeyedMessage, MessageFormat, RowHeaders, headers_of, watermark_alone
from sink.messages.message_key import keys_json, message_key
from sink.messages.row_message import COPIED, OPS, BsonRows, JsonRows, OfTable, event_pos
from sink.messages.shaped_json import ShapedJson
from sink.row import RowChange, RowDetails, TargetTable
from sluice_client.extended_json import COMPACT, RELAXED, SPACED, STRICT, first_value, to_json
from sluice_client.pos import AFTER_ALL, pos_of

_OPS: Mapping[RowType, str] = {
    RowType.INSERT: "c",
    RowType.UPDATE: "u",
    RowType.REPLACE: "u",
    RowType.DELETE: "d",
}
_READ = "r"
_NO_SESSION = '"lsid": null, "txnNumber": null, "wallTime": null'
_NO_DETAILS = RowDetails()
_quoted = encode_basestring
_json = JSONEncoder(ensure_ascii=False).encode


class DebeziumFormat:
    in_band = False

    def __init__(self, source: str, options: MessageOptions) -> None:
        legacy = options.json_mode is JsonMode.LEGACY
        self._source = source
        self._tombstones = options.tombstones
        self._schemas = options.schemas
        self._documents, self._fields, self._ids = (STRICT, SPACED, RELAXED) if legacy else (COMPACT, COMPACT, COMPACT)
        self._headers = RowHeaders()
        self._sources = OfTable(self._sources_of)
        self._writers = OfTable(lambda _: ShapedJson(self._documents).text)

    def change(self, change: RowChange) -> Sequence[KeyedMessage]:
        table, type, raw_key, document, update, time, _, details = change
        headers = self._headers.of(table, OPS[type], event_pos(change))
        wall, transaction, before, image, _ = details or _NO_DETAILS
        after = self._document(table, image if document is None else document)
        description = "null" if update is None else self._description(update)
        value = self._envelope(
            table,
            time,
            _OPS[type],
            after,
            description,
            self._document(table, before),
            self._in_session(transaction, wall),
        )
        key = self._key(table, raw_key)
        message = KeyedMessage(key, value, headers)
        if type is RowType.DELETE and self._tombstones:
            return message, KeyedMessage(key, None, headers)
        return (message,)

    def copied(self, table: TargetTable, document: bytes, key: bytes, read_ts: ClusterTime) -> Sequence[KeyedMessage]:
        time = read_ts.to_int()
        after = self._document(table, document)
        value = self._envelope(table, time, _READ, after, "null")
        return (KeyedMessage(self._key(table, key), value, self._headers.of(table, COPIED, f"{time:016X}{AFTER_ALL}")),)

    def ddl(self, record: DdlRecord, ddl: DownstreamDdl) -> KeyedMessage | None:
        raw = ddl_event(record, ddl)
        if raw is None:
            return None
        time = record.position.ts.to_int()
        names: Mapping[str, str] = raw_document(raw)["ns"]
        head, tail = self._source_of(names["db"], names.get("coll"), copied=False)
        fields = f'"databaseName": {_quoted(names["db"])}, "schemaName": null, "ddl": {_quoted(to_json(raw))}, "tableChanges": []'
        value = f'{{"source": {_filled(head, tail, time)}, "ts_ms": {_ms(time)}, {fields}}}'
        headers = headers_of("ddl", pos_of(record.position), record.event.id)
        return KeyedMessage(f'{{"databaseName": {_quoted(names["db"])}}}'.encode(), value.encode(), headers)

    def told(self, message: Message) -> KeyedMessage | None:
        return watermark_alone(message)

    def _key(self, table: TargetTable, key: bytes) -> bytes:
        """Without the fields of a shard key, as Debezium's is."""
        identity = key if only_id(key) else id_alone(key)
        _, (head, _), tail = self._sources(table)
        return f'{head}{{"id": {_quoted(first_value(identity, self._ids))}}}{tail}'.encode()

    def _document(self, table: TargetTable, document: bytes | None) -> str:
        return "null" if document is None else _quoted(self._writers(table)(document))

    def _description(self, update: bytes) -> str:
        fields = RawBSONDocument(update)
        removed, truncated = removed_fields(fields) or None, fields.get("truncatedArrays") or None
        arrays = [{"field": each["field"], "size": each["newSize"]} for each in truncated] if truncated else None
        updated = fields.get("updatedFields")
        text = to_json(updated.raw, self._fields) if updated is not None else "{}"
        return f'{{"removedFields": {_json(removed)}, "updatedFields": {_quoted(text)}, "truncatedArrays": {_json(arrays)}}}'

    def _envelope(
        self,
        table: TargetTable,
        time: int,
        op: str,
        after: str,
        description: str,
        before: str = "null",
        session: str = _NO_SESSION,
    ) -> bytes:
        sources, (_, begin), end = self._sources(table)
        head, tail = sources[op == _READ]
        ms = _ms(time)
        return (
            f'{begin}{{"before": {before}, "after": {after}, "updateDescription": {description}, "source": {_filled(head, tail, time, session)}, '
            f'"op": "{op}", "ts_ms": {ms}, "ts_us": {ms}000, "ts_ns": {ms}000000, "transaction": null}}{end}'
        ).encode()

    def _in_session(self, transaction: tuple[str, int] | None, wall: int | None) -> str:
        """What a source says of the transaction, and of the clock."""
        if transaction is None:
            return _NO_SESSION if wall is None else f'"lsid": null, "txnNumber": null, "wallTime": {wall}'
        session = {"id": Binary(bytes.fromhex(transaction[0]), UUID_SUBTYPE)}
        lsid = _quoted(to_json(bson.encode(session), self._documents))
        return f'"lsid": {lsid}, "txnNumber": {transaction[1]}, "wallTime": {"null" if wall is None else wall}'

    def _sources_of(self, table: TargetTable) -> tuple[tuple[tuple[str, str], tuple[str, str]], tuple[str, str], str]:
        """The sources of a change and of a copied document; what stands before a key and before a value, and behind both."""
        db, coll = table.name.db, table.name.coll
        sources = self._source_of(db, coll, copied=False), self._source_of(db, coll, copied=True)
        if not self._schemas:
            return sources, ("", ""), ""
        topic = f"{self._source}.{db}.{coll}"
        key, value = (f'{{"schema": {schema(topic)}, "payload": ' for schema in (key_schema, value_schema))
        return sources, (key, value), "}"

    def _source_of(self, db: str, coll: str | None, *, copied: bool) -> tuple[str, str]:
        """What stands before and behind the times."""
        snapshot = "true" if copied else "false"
        head = f'{{"version": "sluice", "connector": "mongodb", "name": {_quoted(self._source)}, '
        names = f'"db": {_quoted(db)}, "sequence": null, "collection": {_json(coll)}'
        return head, f'"snapshot": "{snapshot}", {names}, '


def _filled(head: str, tail: str, time: int, session: str = _NO_SESSION) -> str:
    """The source block of an event at this cluster time."""
    ms = _ms(time)
    return f'{head}"ts_ms": {ms}, "ts_us": {ms}000, "ts_ns": {ms}000000, "ord": {time & 0xFFFFFFFF}, {tail}{session}}}'


def _ms(time: int) -> int:
    return (time >> 32) * 1000


_new = tuple.__new__


class SluiceFormat:
    in_band = True

    def __init__(self, feed: str, encoding: MessageEncoding) -> None:
        self._feed = feed
        self._json = encoding is MessageEncoding.JSON
        self._encoder: JsonRows | BsonRows = JsonRows(feed) if self._json else BsonRows(feed)
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
        return None if message is None else self.told(message)

    def _key(self, key: bytes) -> bytes:
        return keys_json(key)[1].encode() if self._json else message_key(key)

    def told(self, message: Message) -> KeyedMessage:
        headers = headers_of(message.fields["op"], message.fields["pos"], message.fields.get("id"))
        return KeyedMessage(None, message.json() if self._json else message.bson(), headers)


class MongoFormat:
    in_band = False

    def __init__(self, encoding: MessageEncoding) -> None:
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

    def told(self, message: Message) -> KeyedMessage | None:
        return watermark_alone(message)

    def _encoded(self, raw: bytes) -> bytes:
        return to_json(raw).encode() if self._json else raw


def message_format(feed: str, source: str, options: MessageOptions) -> MessageFormat:
    """`source`: the name that `debezium` gives the source, by which its topics begin."""
    match options.format:
        case FormatName.DEBEZIUM:
            return DebeziumFormat(source, options)
        case FormatName.MONGODB:
            return MongoFormat(options.encoding)
        case FormatName.SLUICE:
            return SluiceFormat(feed, options.encoding)
