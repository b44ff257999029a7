"""`message_key`: what a row's message is keyed by: its `_id`, as BSON. Pure, and called for each change.

The server takes 7, 7.0, NumberLong(7) and Decimal128("7.0") for one `_id`, so they have one key and stay in one partition. Otherwise
the deletion of 7 and the insertion of 7.0 after it would be read in any order. The key of

    ObjectId, string, date, binary, ...         {_id: the value}, byte for byte
    an integral number within 64 bits           {_id: NumberLong}
    other numbers                               {_id: Decimal128}, without trailing zeros
    a document or an array                      the same with each number in it

The fields of a shard key are left out: they may change while the row stays the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from struct import Struct
from typing import Any

import bson
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.decimal128 import Decimal128
from bson.int64 import Int64

from changefeed.documents.row_key import canonical, only_id, row_key

_LOSSLESS: CodecOptions[dict[str, Any]] = CodecOptions(dict, datetime_conversion=DatetimeConversion.DATETIME_MS)
_INTEGER, _DECIMAL = 0x12, 0x13
_INT_KEY, _LONG_KEY = b"\x0e\0\0\0\x10_id\0", b"\x12\0\0\0\x12_id\0"
"""Their sizes leave no room for another field."""
_AT = len(_LONG_KEY)

_int32: Callable[[bytes, int], tuple[int]] = Struct("<i").unpack_from
_long: Callable[[int], bytes] = Struct("<q").pack


def message_key(document_key: bytes) -> bytes:
    """From a raw `documentKey`."""
    if document_key.startswith(_INT_KEY):
        return b"".join((_LONG_KEY, _long(_int32(document_key, _AT)[0]), b"\0"))
    if document_key.startswith(_LONG_KEY):
        return document_key
    if not only_id(document_key):
        return bson.encode({"_id": _plain(bson.decode(document_key, _LOSSLESS)["_id"])})
    found = row_key(document_key)
    if found is document_key:
        return document_key
    if found[0] == _INTEGER and len(found) == 9:
        return _LONG_KEY + found[1:] + b"\0"
    return bson.encode({"_id": _plain(bson.decode(document_key, _LOSSLESS)["_id"])})


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, list):
        return list(map(_plain, value))
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal128)):
        return value
    found = canonical(value)
    return (
        Int64(int.from_bytes(found[1:], "little", signed=True))
        if found[0] == _INTEGER
        else Decimal128(found[1:].decode())
    )
