"""The events of a change stream: those of rows by their bytes (`scan`), those of DDL (`ddl_of_change`), and the replies that have them. Pure.

`scan` gives the few header fields of a raw event that routing needs, found in the bytes by offset. This is the hot path: each microsecond here is a tenth of what replicating an event may cost. So events stay the bytes that the
server sent, and `scan` builds one tuple with slices and offsets. It first tries the usual layout by comparing whole stretches of bytes
(`_scan_known`, 2 us). It walks the document element by element if the layout is another one, as in a transaction or with a pre-image
(`_walk`, 8 us). `bench/` measures both.

    0                          _id._data              opening                                 middle           body
    size 03 _id 00 size 02 ... "8265F1...04" 00 00    02 operationType ... 11 clusterTime 00   collectionUUID   fullDocument, ns,
                                                                                              wallTime         documentKey, ...

A reply to `aggregate` or `getMore` is parsed without decoding its events (`StreamReply`). Of DDL, the oplog's counterpart is `oplog/ddl_entry.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from struct import Struct
from typing import Any

import bson
from bson.codec_options import CodecOptions

from changefeed.bson_bytes import NULL, STRING, MalformedBson, document_of, documents_of, elements, fields_of
from changefeed.cluster_time import ClusterTime
from changefeed.errors import InvariantError
from changefeed.event import SHOWN_BY_STREAMS, DdlEvent, DdlType
from changefeed.table import SYSTEM_DATABASES, TableName, view_id
from source.ddl_description import check_names, describe, printable, printable_name, shown, uuid_of, wall_ms_of
from source.raw_row import Header, RowAbout, milliseconds, transaction_of
from source.resume_token import position_of

_INT32: Callable[[bytes, int], tuple[int]] = Struct("<i").unpack_from
_UINT64: Callable[[bytes], tuple[int]] = Struct("<Q").unpack_from

_TOKEN_AT = 24
_PRINTABLE: CodecOptions[dict[str, str]] = CodecOptions(dict, unicode_decode_error_handler="backslashreplace")
"""Names that are no UTF-8 are told as DDL tells them (`source/ddl_description.py`)."""
_FULL = b"\x03fullDocument\x00"
_BEFORE = b"\x03fullDocumentBeforeChange\x00"
_NS = b"\x03ns\x00"
_KEY = b"\x03documentKey\x00"
_UPDATE = b"\x03updateDescription\x00"
_UUID = b"\x05collectionUUID\x00\x10\x00\x00\x00\x04"
_WALL = b"\x09wallTime\x00"
_EXPANDED = Struct(f"<Q{len(_UUID)}s16s{len(_WALL)}s8x")
_MIDDLE = _EXPANDED.unpack_from


def _opening(operation: bytes) -> bytes:
    size = (len(operation) + 1).to_bytes(4, "little")
    return b"\x00\x00\x02operationType\x00" + size + operation + b"\x00\x11clusterTime\x00"


_OPENINGS = {_opening(operation): operation for operation in (b"insert", b"update", b"delete", b"replace")}
_SHORT, _LONG = len(_opening(b"insert")), len(_opening(b"replace"))


class MalformedEvent(InvariantError):
    """These bytes are not a change event."""


_new = tuple.__new__


def scan(event: bytes) -> Header:
    """The header of one event, or of one fragment of a split event."""
    token_end = event.find(0, _TOKEN_AT)
    at = token_end + _SHORT
    operation = _OPENINGS.get(event[token_end:at])
    if operation is None:
        at = token_end + _LONG
        operation = _OPENINGS.get(event[token_end:at])
    if operation is not None and len(event) > at + _EXPANDED.size:
        header = _scan_known(event, operation, token_end, at)
        if header is not None:
            return header
    return _walk(event)


def _scan_known(event: bytes, operation: bytes, token_end: int, at: int) -> Header | None:
    """None if it has other fields than a plain event, or has them in another order."""
    time, uuid_head, uuid, wall_head = _MIDDLE(event, at)
    if uuid_head == _UUID and wall_head == _WALL:
        at += _EXPANDED.size
    else:
        at, uuid = at + 8, b""
    full_at = full_end = update_at = update_end = 0
    if event.startswith(_FULL, at):
        full_at = at + len(_FULL)
        at = full_end = full_at + _INT32(event, full_at)[0]
    ns_at = at + len(_NS)
    if event[at:ns_at] != _NS:
        return None
    ns_end = ns_at + _INT32(event, ns_at)[0]
    key_at = ns_end + len(_KEY)
    if event[ns_end:key_at] != _KEY:
        return None
    at = key_end = key_at + _INT32(event, key_at)[0]
    if event.startswith(_UPDATE, at):
        update_at = at + len(_UPDATE)
        at = update_end = update_at + _INT32(event, update_at)[0]
    if at + 1 != len(event):
        return None
    token, ns, key = event[_TOKEN_AT:token_end], event[ns_at:ns_end], event[key_at:key_end]
    return _new(Header, (operation, time, token, ns, key, uuid, full_at, full_end, update_at, update_end, 0, 0, None))


def _walk(event: bytes) -> Header:
    found = {name: (at, end) for name, kind, at, end in elements(event) if kind != NULL}

    def raw(name: bytes) -> bytes:
        at, end = found.get(name, (0, 0))
        return event[at:end]

    if b"_id" not in found:
        raise MalformedEvent(f"a change event without a resume token: fields {sorted(found)}")
    time = raw(b"clusterTime")
    return Header(
        raw(b"operationType")[4:-1],
        _UINT64(time)[0] if time else 0,
        token_of(raw(b"_id")),
        raw(b"ns"),
        raw(b"documentKey"),
        raw(b"collectionUUID")[5:],
        *found.get(b"fullDocument", (0, 0)),
        *found.get(b"updateDescription", (0, 0)),
        *found.get(b"fullDocumentBeforeChange", (0, 0)),
        _split(raw(b"splitEvent")),
    )


def token_of(resume_token: bytes) -> bytes:
    """`_data` of a raw resume token document."""
    for name, kind, at, end in elements(resume_token):
        if name == b"_data" and kind == STRING:
            return resume_token[at + 4 : end - 1]
    raise MalformedEvent(f"a resume token without text in _data: {resume_token.hex()}")


def _split(raw: bytes) -> tuple[int, int] | None:
    if not raw:
        return None
    split = bson.decode(raw)
    return int(split["fragment"]), int(split["of"])


def update_of(event: bytes, header: Header) -> bytes:
    """The raw `updateDescription` of an update."""
    return event[header.update_at : header.update_end]


def about_of(event: bytes, _: Header) -> RowAbout:
    """Before 6.0 an event has no wall time."""
    token_end = event.find(0, _TOKEN_AT)
    for size in (_SHORT, _LONG):
        at = token_end + size
        if event[token_end:at] in _OPENINGS and len(event) > at + _EXPANDED.size:
            _, uuid_head, _, wall_head = _MIDDLE(event, at)
            if uuid_head == _UUID and wall_head == _WALL:
                return _new(RowAbout, (milliseconds(event, at + _EXPANDED.size - 8), None))
    found = {name: event[at:end] for name, _, at, end in elements(event)}
    wall = found.get(b"wallTime")
    of_transaction = b"lsid" in found and b"txnNumber" in found
    return RowAbout(
        milliseconds(wall, 0) if wall is not None else None,
        transaction_of(found[b"lsid"], found[b"txnNumber"]) if of_transaction else None,
    )


def without_images(event: bytes, header: Header) -> bytes:
    """The event without the document before the change, and without the document after an update."""
    cuts = [(header.before_at - len(_BEFORE), header.before_end)] if header.before_end else []
    if header.update_end and header.full_end:
        cuts.append((header.full_at - len(_FULL), header.full_end))
    body, at = [], 4
    for cut_at, cut_end in sorted(cuts):
        body.append(event[at:cut_at])
        at = cut_end
    return document_of([*body, event[at:-1]]) if cuts else event


def table_name(ns: bytes) -> TableName | None:
    """The table that a raw `ns` names. None if it names a whole database, or nothing."""
    names = bson.decode(ns, _PRINTABLE) if ns else {}
    return TableName(names["db"], names["coll"]) if "coll" in names else None


def assemble(fragments: list[bytes]) -> bytes:
    """One event from all fragments of a split one, with the token of the first. It may be larger than the limit of BSON documents."""
    splits = [scan(fragment).split for fragment in fragments]
    if splits != [(number + 1, len(fragments)) for number in range(len(fragments))]:
        raise MalformedEvent(f"fragments of a split change event are missing or out of order: {splits}")
    dropped = (b"_id", b"splitEvent")
    body = [
        element
        for number, fragment in enumerate(fragments)
        for name, element in fields_of(fragment).items()
        if name not in dropped or (name == b"_id" and number == 0)
    ]
    return document_of(body)


_INT64 = Struct("<q").unpack


@dataclass(frozen=True, slots=True)
class StreamReply:
    events: list[bytes]
    resume_token: str | None
    """The post-batch resume token: all later events sort after it."""
    operation_ts: ClusterTime
    """The newest time that a majority had committed when the source answered."""
    cursor_id: int


def parse_reply(raw: bytes) -> StreamReply:
    """From the reply to `aggregate` or `getMore`."""
    cursor_id, token, operation_ts = 0, None, None
    events: list[bytes] = []
    for name, _, at, end in elements(raw):
        if name == b"operationTime":
            operation_ts = ClusterTime.from_int(_UINT64(raw[at:end])[0])
        elif name == b"cursor":
            for field, _, value_at, value_end in elements(raw, at):
                if field == b"id":
                    cursor_id = _INT64(raw[value_at:value_end])[0]
                elif field == b"postBatchResumeToken":
                    token = token_of(raw[value_at:value_end]).decode()
                elif field in (b"nextBatch", b"firstBatch"):
                    events = documents_of(raw, value_at, value_end)
    if operation_ts is None:
        raise MalformedBson("a reply to a change stream without operationTime: the source is no replica set")
    return StreamReply(events, token, operation_ts, cursor_id)


def ddl_of_change(change: Mapping[str, Any]) -> DdlEvent | None:
    """None for DDL of the server itself: on system databases and `system.*` collections."""
    if change["operationType"] not in SHOWN_BY_STREAMS:
        raise ValueError(f"{change['operationType']!r} is not a DDL event")
    ddl_type = DdlType(change["operationType"])
    db = change["ns"]["db"]
    table = TableName(db, change["ns"]["coll"]) if "coll" in change["ns"] else None
    if db in SYSTEM_DATABASES or (table is not None and table.system):
        return None
    stated = change.get("operationDescription") or {}
    to = change.get("to") or stated.get("to")
    unexplained = DdlEvent(
        position=position_of(change["_id"]["_data"]),
        type=DdlType.UNKNOWN,
        db=printable(db),
        table=printable_name(table),
        id=None if table is None else uuid_of(change.get("collectionUUID")) or view_id(table),
        renamed_to=printable_name(TableName(to["db"], to["coll"]) if to else None),
        drop_target=uuid_of(stated.get("dropTarget")),
        wall_ms=wall_ms_of(change.get("wallTime")),
    )
    try:
        event = replace(unexplained, type=ddl_type, description=describe(ddl_type, stated))
        check_names(db, table, to)
    except Exception:  # noqa: BLE001 - whatever a definition holds concerns its table alone
        return replace(unexplained, description=shown(stated))
    return event
