"""`logged_content`: the content of one large event from its entry in the oplog, if the entry alone determines it exactly.

    entry                              event
    i, o: a document                   insert: fullDocument
    u, o: a document with an _id       replace: fullDocument
    u, o: {$v: 2, diff: {d, u, i}}     update: updateDescription, of whole fields on the top level with plain names

In a transaction it is one of the operations in its entries, which are followed from the last one back to the first. It has to be the
only operation on its document. For other updates the content is not determined.
"""

from __future__ import annotations

from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from bson.timestamp import Timestamp
from pymongo.errors import OperationFailure
from pymongo.read_concern import ReadConcern

from changefeed.bson_bytes import document_of, fields_of
from changefeed.cluster_time import ClusterTime
from changefeed.table import TableName
from source.connection import Client
from source.errors import is_refusal
from source.raw.raw_find import RawFind
from source.raw.row_header import Header
from source.stream.events.raw_event import table_name

_OPLOG = TableName("local", "oplog.rs")
_RAW: CodecOptions[RawBSONDocument] = CodecOptions(RawBSONDocument)
_OPERATIONS = {b"insert": "i", b"replace": "u", b"update": "u"}
_LARGE_KEY = 2 << 20
_NOWHERE = Timestamp(0, 0)
_NO_ARRAY = b"\x05\0\0\0\0"


def logged_content(client: Client, header: Header) -> bytes | None:
    """A raw document or `updateDescription`. None if the oplog may not be read, or does not determine the content."""
    if client.is_mongos or header.type not in _OPERATIONS:
        return None
    logged = _entry(client, header) or _operation(client, header)
    if logged is None:
        return None
    key, fields = fields_of(header.key).get(b"_id"), fields_of(logged)
    if header.type != b"update":
        return logged if fields.get(b"_id") == key else None
    diff = fields.get(b"diff")
    return described(diff[len(b"\x03diff\0") :]) if b"_id" not in fields and diff is not None else None


def _entry(client: Client, header: Header) -> bytes | None:
    """`o` of the only entry of that time."""
    arguments = {
        "filter": {
            "ts": header.position.ts.to_bson(),
            "op": _OPERATIONS[header.type],
            "ns": str(table_name(header.ns)),
        },
        "projection": {"_id": 0, "o": 1},
        "readConcern": {"level": "majority"},
    }
    try:
        with RawFind(client, _OPLOG, arguments, most=2) as replies:
            found = [document for reply in replies for document in reply.documents]
    except OperationFailure as error:
        if is_refusal(error):
            return None
        raise
    if len(found) != 1:
        return None
    return fields_of(found[0])[b"o"][len(b"\x03o\0") :]


def _operation(client: Client, header: Header) -> bytes | None:
    """`o` of the only operation on the document in the transaction of that time."""
    oplog = client["local"].get_collection("oplog.rs", codec_options=_RAW, read_concern=ReadConcern("majority"))
    key, name, found = fields_of(header.key)[b"_id"], str(table_name(header.ns)), []
    place: Timestamp | None = header.position.ts.to_bson()
    while place is not None:
        try:
            entry = oplog.find_one({"ts": place, "op": "c"})
        except OperationFailure as error:
            if is_refusal(error):
                return None
            raise
        if entry is None or "multiOpType" in entry:
            return None
        for operation in entry["o"].get("applyOps", ()):
            identity = operation.get("o2", operation["o"])
            if operation["ns"] == name and fields_of(bytes(identity.raw)).get(b"_id") == key:
                found.append(operation)
        before = entry.get("prevOpTime", {}).get("ts")
        place = before if before != _NOWHERE else None
    if len(found) != 1 or found[0]["op"] != _OPERATIONS[header.type]:
        return None
    return bytes(found[0]["o"].raw)


def large_key_entry(client: Client, start_ts: ClusterTime) -> str | None:
    """A text about the first change from there on whose `_id` has megabytes. None if there is none, or if the oplog may not be read."""
    if client.is_mongos:
        return None
    key = {"$bsonSize": {"$ifNull": ["$o2", "$o"]}}
    long = {"$cond": [{"$in": ["$op", ["i", "u", "d"]]}, {"$gt": [key, _LARGE_KEY]}, False]}
    try:
        found = client["local"]["oplog.rs"].find_one(
            {"ts": {"$gte": start_ts.to_bson()}, "$expr": long},
            {"ts": 1, "ns": 1, "op": 1, "bytes": key},
            sort=[("$natural", 1)],
        )
    except OperationFailure as error:
        if is_refusal(error):
            return None
        raise
    if found is None:
        return None
    kind = {"i": "insert", "u": "update", "d": "delete"}[found["op"]]
    return f"{kind} of {found['ns']}, its key has {found['bytes']} bytes, at {ClusterTime.from_bson(found['ts'])}"


def described(diff: bytes) -> bytes | None:
    """A `$v: 2` diff as an `updateDescription`."""
    sections = {name: element[len(name) + 2 :] for name, element in fields_of(diff).items()}
    if sections.keys() - {b"d", b"u", b"i"}:
        return None
    updated = {**fields_of(sections.get(b"u", _NO_ARRAY)), **fields_of(sections.get(b"i", _NO_ARRAY))}
    removed = list(fields_of(sections.get(b"d", _NO_ARRAY)))
    if not all(map(_plain, [*updated, *removed])):
        return None
    names = [
        b"\x02%d\0%s%s\0" % (number, (len(name) + 1).to_bytes(4, "little"), name) for number, name in enumerate(removed)
    ]
    return document_of(
        [
            b"\x03updatedFields\0" + document_of(list(updated.values())),
            b"\x04removedFields\0" + document_of(names),
            b"\x04truncatedArrays\0" + _NO_ARRAY,
        ]
    )


def _plain(name: bytes) -> bool:
    return bool(name) and b"." not in name and b"$" not in name and not name.isdigit()
