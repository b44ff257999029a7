"""`ChangeEvents`: change events as MongoDB's change streams show them, in BSON, made from raw changes and DDL. Pure.

    insert    {_id: {_data: pos}, operationType: "insert", clusterTime, fullDocument, ns: {db, coll}, documentKey, collectionUUID}
    replace   the same; a copied document is an insert
    update    updateDescription in place of fullDocument
    delete    neither
    all       wallTime; lsid and txnNumber in a transaction; with images fullDocumentBeforeChange, and fullDocument of an update
    DDL       operationDescription; a rename has `to`, a dropDatabase no `ns.coll`

Names are those downstream. `_id._data` is `pos` and not a resume token: no server takes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from struct import Struct
from typing import Any

import bson
from bson.binary import UUID_SUBTYPE, Binary
from bson.int64 import Int64
from bson.raw_bson import RawBSONDocument

from changefeed.bson_bytes import elements
from changefeed.documents.document import raw_document
from changefeed.event import DdlType, RowType
from changefeed.records.ddl import DdlRecord
from changefeed.table import TableId, TableName
from sink.ddl import DownstreamDdl
from sink.messages.message import EMPTIED, Fields, ddl_message
from sink.messages.row_message import NOTHING_ELSE, OfTable
from sink.row import RowChange, RowDetails, TargetTable

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_HEX_UUID = 32
_TIME = Struct("<13sQ")
_CLUSTER_TIME = b"\x11clusterTime\0"
_BEFORE = b"\x03fullDocumentBeforeChange\0"
_WALL = Struct("<10sq")
_FULL, _KEY, _UPDATE = b"\x03fullDocument\0", b"\x03documentKey\0", b"\x03updateDescription\0"
INSERT = RowType.INSERT.value
_NONE_REMOVED = b"\x04removedFields\0\x05\0\0\0\0\0"
_LESS = len(NOTHING_ELSE) - len(_NONE_REMOVED)


class ChangeEvents:
    def __init__(self) -> None:
        self._of = OfTable(_made)

    def change(self, change: RowChange, pos: str) -> bytes:
        body = b"" if change.update is None else _UPDATE + server_update(change.update)
        if change.document is not None:
            body = _FULL + change.document
        if change.details is not None:
            body = _beside(change.details) + body
        return self._event(change.table, change.type, pos, change.time, change.key, body)

    def copied(self, table: TargetTable, document: bytes, key: bytes, time: int, pos: str) -> bytes:
        return self._event(table, INSERT, pos, time, key, _FULL + document)

    def _event(self, table: TargetTable, type: str, pos: str, time: int, key: bytes, body: bytes) -> bytes:
        operations, namespace = self._of(table)
        place = pos.encode()
        identity = b"\x03_id\0" + (len(place) + 17).to_bytes(4, "little") + b"\x02_data\0"
        pieces = (
            identity + (len(place) + 1).to_bytes(4, "little") + place + b"\0\0",
            operations[type],
            _TIME.pack(_CLUSTER_TIME, time),
            body,
            namespace,
            _KEY,
            key,
        )
        return b"".join(((sum(map(len, pieces)) + 5).to_bytes(4, "little"), *pieces, b"\0"))


def _made(table: TargetTable) -> tuple[dict[str, bytes], bytes]:
    operations = {type.value: bson.encode({"operationType": type.value})[4:-1] for type in RowType}
    return operations, bson.encode({"ns": _names(table.name), **_uuid(table.id)})[4:-1]


def _beside(details: RowDetails) -> bytes:
    wall, transaction, before, after, _ = details
    said = b"" if wall is None else _WALL.pack(b"\x09wallTime\0", wall)
    if transaction is not None:
        session = {"id": Binary(bytes.fromhex(transaction[0]), 4)}
        said += bson.encode({"lsid": session, "txnNumber": Int64(transaction[1])})[4:-1]
    if after is not None:
        said += _FULL + after
    return said if before is None else said + _BEFORE + before


def server_update(update: bytes) -> bytes:
    """As a change stream shows it, but without an empty `truncatedArrays`, which servers before 4.7 do not have and MongoDB's connector refuses up to
    1.13. `upsert` is left out: an operation of a large transaction does not say whether it inserted.
    """
    if update.endswith(NOTHING_ELSE):
        return b"".join(((len(update) - _LESS).to_bytes(4, "little"), update[4 : -len(NOTHING_ELSE)], _NONE_REMOVED))
    fields = {name: value for name, value in raw_document(update).items() if name != "upsert"}
    if not fields.get("truncatedArrays"):
        fields.pop("truncatedArrays", None)
    return bson.encode(fields | {"removedFields": removed_fields(fields)})


def removed_fields(update: Mapping[str, Any]) -> list[str]:
    """Without those that are set again: the oplog says so of each new field. A consumer that makes `$set` and `$unset` of both is refused.

    Values that are set are not decoded: they may be texts that are no UTF-8.
    """
    updated: RawBSONDocument | None = update.get("updatedFields")
    set_again = {name for name, *_ in elements(bytes(updated.raw))} if updated is not None else ()
    return [name for name in update.get("removedFields") or () if name.encode() not in set_again]


def ddl_event(record: DdlRecord, ddl: DownstreamDdl) -> bytes | None:
    """None for a DDL that changes nothing downstream, or for which MongoDB has no event."""
    message = ddl_message("", record, ddl)
    if message is None or message.fields["type"] == EMPTIED:
        return None
    event, said = record.event, message.fields
    wall = {} if event.wall_ms is None else {"wallTime": _EPOCH + timedelta(milliseconds=event.wall_ms)}
    kind = event.type.value if said["type"] == "shard" else said["type"]
    head = {"_id": {"_data": said["pos"]}, "operationType": kind, "clusterTime": event.position.ts.to_bson(), **wall}
    if kind == DdlType.DROP_DATABASE:
        return bson.encode({**head, "ns": {"db": event.db}})
    more: Fields = {"operationDescription": said["spec"]} if "spec" in said else {}
    match kind:
        case DdlType.DROP_INDEXES:
            more = {"operationDescription": RawBSONDocument(event.description.raw)}
        case DdlType.RENAME:
            to = _names(TableName.parse(said["to"]))
            dropped = {"dropTarget": uuid} if (uuid := _uuid(event.drop_target).get("collectionUUID")) else {}
            more = {"to": to, "operationDescription": {"to": to, **dropped}}
    return bson.encode({**head, **_uuid(event.id), "ns": _names(TableName.parse(said["ns"])), **more})


def _names(name: TableName) -> Fields:
    return {"db": name.db, "coll": name.coll}


def _uuid(table: TableId | None) -> Fields:
    """A view has none."""
    if table is None or len(table) != _HEX_UUID:
        return {}
    return {"collectionUUID": Binary(bytes.fromhex(table), UUID_SUBTYPE)}
