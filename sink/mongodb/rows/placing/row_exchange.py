"""`exchanged`: rows are removed and inserted as their changes leave them, in one transaction: at the same place, or under another shard key."""

from __future__ import annotations

from collections.abc import Sequence

from bson.codec_options import CodecOptions, DatetimeConversion
from bson.raw_bson import RawBSONDocument

from changefeed.errors import SinkUnavailable
from sink.mongodb.commander import Send
from sink.mongodb.rows.bulk_command import RowQuery, exchange_commands, found_command, own_filter, places_command
from sink.mongodb.rows.placing.whole_key import key_of_document
from sink.mongodb.rows.statements.document_edit import changed
from sink.row import RowChange, TargetTable

_RAW: CodecOptions[RawBSONDocument] = CodecOptions(RawBSONDocument, datetime_conversion=DatetimeConversion.DATETIME_MS)


def exchanged(table: TargetTable, rows: Sequence[Sequence[RowChange]], send: Send) -> None:
    """`rows`: the changes of each row. All are removed before one is inserted: the values of a unique index may change hands."""
    filters: list[RowQuery] = []
    documents: list[tuple[RowQuery, bytes]] = []
    for changes in rows:
        places = _places(changes[0], send)
        filters += places
        for document in _foretold(changes, places, send):
            place = _decoded(key_of_document(document, table.shard_key)) if table.shard_key else places[0]
            documents.append((place, document))
    for command in exchange_commands(table, filters, documents):
        reply = send(table.name.db, command)
        if table.shard_key and "delete" in command and reply["n"] != 1:
            raise SinkUnavailable(
                f"{table.name}: a document that is to move was on its way to another shard; it is looked for again"
            )


def _places(change: RowChange, send: Send) -> list[RowQuery]:
    if not change.table.shard_key:
        return [own_filter(change)]
    found = send(*places_command([change]))["cursor"]["firstBatch"]
    return [_decoded(key_of_document(bytes(document.raw), change.table.shard_key)) for document in found]


def _foretold(changes: Sequence[RowChange], places: Sequence[RowQuery], send: Send) -> list[bytes]:
    """Nothing if there is no document that the changes could change."""
    table = changes[0].table
    found = send(table.name.db, found_command(table, places[0]))["cursor"]["firstBatch"] if places else []
    there = bytes(found[0].raw) if found else None
    document = changed(there, [(change.document, change.update) for change in changes])
    return [] if document is None else [document]


def _decoded(key: bytes) -> RowQuery:
    return RawBSONDocument(key, _RAW)
