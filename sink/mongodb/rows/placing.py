"""`ShardKeys`: by which fields the target shards its tables, whatever the source's are; `exchanged`: rows that leave their places for others."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import bson
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.raw_bson import RawBSONDocument

from changefeed.errors import SinkRefused, SinkUnavailable
from sink.mongodb.commander import Commander, Send
from sink.mongodb.rows.bulk_command import RowQuery, exchange_commands, found_command, own_filter, places_command
from sink.mongodb.rows.row_place import key_of_document
from sink.mongodb.rows.statements.document_edit import changed
from sink.row import RowChange, TargetTable

_ID = "_id"
_RAW: CodecOptions[RawBSONDocument] = CodecOptions(RawBSONDocument, datetime_conversion=DatetimeConversion.DATETIME_MS)


class ShardKeys:
    """For one run: a table that is made anew is another `TargetTable`. For several threads."""

    def __init__(self, commander: Commander) -> None:
        """`commander`: of its own, since keys are read while rows are written."""
        self._commander = commander
        self._known: dict[TargetTable, TargetTable] = {}
        self._reading = threading.Lock()

    def known(self, changes: Sequence[RowChange]) -> Sequence[RowChange]:
        """The changes, of tables with their shard keys."""
        with self._reading:
            new = {change.table for change in changes} - self._known.keys()
            if new:
                self._read(new)
            known = self._known
            return [change._replace(table=known[change.table]) for change in changes]

    def _read(self, tables: set[TargetTable]) -> None:
        self._commander.begin()
        names = sorted({str(table.name) for table in tables})
        find = {
            "find": "collections",
            "filter": {"_id": {"$in": names}},
            "batchSize": len(names) + 1,
            "singleBatch": True,
        }
        found = self._commander.found(("config", find), f"reading the shard keys of {len(names)} tables of the target")
        entries = {entry["_id"]: entry for entry in (bson.decode(bytes(each.raw)) for each in found)}
        for table in tables:
            placed = replace(table, shard_key=shard_key_of(entries.get(str(table.name))))
            self._known[table] = self._known[placed] = placed


def shard_key_of(entry: Mapping[str, Any] | None) -> tuple[str, ...]:
    """The fields besides `_id` of an entry of `config.collections`. Empty: the `_id` says where a row is."""
    if entry is None or entry.get("dropped") or entry.get("unsplittable"):
        return ()
    if entry.get("defaultCollation"):
        raise SinkRefused(
            f"{entry['_id']}: it is sharded at the target and has a collation, under which a router does not find one row by its shard key; "
            "drop it there, create it without sharding it, and copy the table anew (`sluice table recopy`)"
        )
    return tuple(path for path in entry["key"] if path != _ID)


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
