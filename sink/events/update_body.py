"""`update_body`, `update_json`: the "update" of a message from the change's raw `updateDescription`, in BSON and as canonical Extended JSON. Pure.

    {updatedFields: {n: 2}, removedFields: ["a.b"], truncatedArrays: [{field: "x", newSize: 2}], disambiguatedPaths: {}}
    {set: {n: 2}, unset: ["a.b"], truncate: [{field: "x", size: 2}]}

What is unset comes before what is set: a field under both is put at the end of its document, as the oplog says of each new one. Fields
without content are left out. The bytes of all others but the few truncated arrays are taken as they are. `upsert` says that the source
may have inserted the document by this update: an operation of a large transaction does not tell.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct

import bson

from changefeed.errors import InvariantError
from sink.events.extended_json import to_json

_INT32: Callable[[bytes, int], tuple[int]] = Struct("<i").unpack_from
_DOCUMENT, _ARRAY, _BOOLEAN = 0x03, 0x04, 0x08
_NAMES = {
    b"updatedFields": b"\x03set\0",
    b"removedFields": b"\x04unset\0",
    b"truncatedArrays": b"\x04truncate\0",
    b"disambiguatedPaths": b"\x03paths\0",
}
_TRUNCATED, _UPSERT = b"truncatedArrays", b"upsert"
_EMPTY_SIZE = 5
_UPDATED = b"\x03updatedFields\0"
NOTHING_ELSE = b"\x04removedFields\0\x05\0\0\0\0\x04truncatedArrays\0\x05\0\0\0\0\0"
_SET_AT = 4 + len(_UPDATED)


def update_json(description: bytes, text: Callable[[bytes], str]) -> str:
    """`text`: writes the document of the fields that are set. Most updates do nothing else."""
    if description.endswith(NOTHING_ELSE) and description.startswith(_UPDATED, 4):
        fields = description[_SET_AT : -len(NOTHING_ELSE)]
        if len(fields) == _INT32(fields, 0)[0] > _EMPTY_SIZE:
            return f'{{"set": {text(fields)}}}'
    return to_json(update_body(description))


def update_body(description: bytes) -> bytes:
    at, end = 4, _INT32(description, 0)[0] - 1
    pieces: list[bytes] = []
    while at < end:
        kind, name_end = description[at], description.index(0, at + 1)
        name, value_at = description[at + 1 : name_end], name_end + 1
        if kind == _BOOLEAN:
            at = value_at + 1
            if name == _UPSERT and description[value_at]:
                pieces.append(b"\x08upsert\0\x01")
            continue
        if kind not in (_DOCUMENT, _ARRAY) or name not in _NAMES:
            raise InvariantError(f"an update description: expected {sorted(_NAMES)}, observed {name!r} of type {kind}")
        at = value_at + _INT32(description, value_at)[0]
        if at - value_at > _EMPTY_SIZE:
            value = description[value_at:at]
            pieces.append(_NAMES[name] + (_sizes(value) if name == _TRUNCATED else value))
    return b"".join(((sum(map(len, pieces)) + 5).to_bytes(4, "little"), *pieces, b"\0"))


def _sizes(truncated: bytes) -> bytes:
    arrays = bson.decode(truncated).values()
    return bson.encode({str(n): {"field": each["field"], "size": each["newSize"]} for n, each in enumerate(arrays)})
